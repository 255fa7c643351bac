//! The result of an exec as JSON: small ones whole, large ones written while they are sent.

use std::rc::Rc;

use serde::Serialize;

use crate::api::row::{Answer, Produce, Source};
use crate::error::{Kind, Result};
use crate::exec::Report;
use crate::ring::{self, Outflow, Step};
use crate::wire::json;

/// An exec with its result, in the order of the contract.
pub(super) struct Document {
    /// All before the text of the standard output.
    opening: Vec<u8>,
    stdout: Rc<Vec<u8>>,
    stderr: Rc<Vec<u8>>,
    /// All behind the text of the standard error.
    closing: Vec<u8>,
}

#[derive(Serialize)]
struct Opening<'a> {
    exec_id: &'a str,
    phase: &'a str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: &'a str,
}

#[derive(Serialize)]
struct Closing {
    truncated: bool,
    writers_may_be_alive: bool,
}

impl Document {
    /// The document of `report`.
    ///
    /// # Errors
    /// None that is known: numbers, flags and text are always JSON.
    pub(super) fn new(exec_id: &str, phase: &str, report: Report) -> Result<Self> {
        let outcome = &report.outcome;
        let mut opening = written(&Opening {
            exec_id,
            phase,
            exit_code: outcome.exit.code,
            signal: outcome.exit.signal,
            timed_out: outcome.timed_out,
            stdout: "",
        })?;
        // The output goes between the last two quotes, and the object goes on behind it.
        opening.truncate(opening.len() - b"\"}".len());
        let mut closing = written(&Closing {
            truncated: outcome.truncated,
            writers_may_be_alive: outcome.writers_may_be_alive,
        })?;
        closing.splice(..b"{".len(), *b"\",");
        Ok(Self {
            opening,
            stdout: report.stdout,
            stderr: report.stderr,
            closing,
        })
    }

    /// The answer; how long it will be is known before its first byte.
    pub(super) async fn answer(self) -> Answer {
        if self.stdout.len() + self.stderr.len() <= SMALL {
            return Answer::Json(self.whole());
        }
        Answer::Bytes(Source {
            media: "application/json",
            length: Some(self.length().await),
            part: None,
            fields: Vec::new(),
            produce: Box::new(self),
        })
    }

    fn whole(&self) -> Vec<u8> {
        let mut text = self.opening.clone();
        json::escape(&mut text, &self.stdout);
        text.extend_from_slice(BETWEEN);
        json::escape(&mut text, &self.stderr);
        text.extend_from_slice(&self.closing);
        text
    }

    async fn length(&self) -> u64 {
        let around = self.opening.len() + BETWEEN.len() + self.closing.len();
        let mut length = around as u64;
        for output in [&self.stdout, &self.stderr] {
            let mut rest = &output[..];
            while !rest.is_empty() {
                let (piece, later) = json::cut(rest, STRETCH);
                length += json::escaped_length(piece);
                rest = later;
                ring::turn().await;
            }
        }
        length
    }

    async fn run(self: Box<Self>, sink: &mut dyn Outflow) -> Result<()> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut sent = 0;
        sink.write(&self.opening).await?;
        for (output, end) in [(&self.stdout, BETWEEN), (&self.stderr, &self.closing)] {
            let mut rest = &output[..];
            while !rest.is_empty() {
                let (window, later) = json::cut(rest, WINDOW);
                json::escape(&mut piece, window);
                rest = later;
                if piece.len() + WINDOW * json::MOST_PER_BYTE <= PIECE {
                    continue;
                }
                sink.write(&piece).await?;
                sent += piece.len();
                piece.clear();
                if sent >= STRETCH {
                    sent = 0;
                    ring::turn().await;
                }
            }
            sink.write(&piece).await?;
            piece.clear();
            sink.write(end).await?;
        }
        Ok(())
    }
}

impl Produce for Document {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(self.run(sink))
    }
}

fn written(part: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(part).map_err(|error| Kind::Internal.told("internal error").because(error))
}

/// What stands between the two texts.
const BETWEEN: &[u8] = b"\",\"stderr\":\"";
/// Bytes of output up to which a document is made whole.
const SMALL: usize = 64 * 1024;
/// Bytes of text that are sent in one piece at most.
const PIECE: usize = 64 * 1024;
/// Bytes of output that are escaped at a time.
const WINDOW: usize = 4 * 1024;
/// Bytes that are scanned or sent before others have their turn.
const STRETCH: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::exec::Outcome;
    use crate::ring::Choice;
    use crate::ring::Frame;
    use crate::ring::child::Exit;

    /// The document in one piece, as the library writes it.
    #[derive(Serialize)]
    struct Whole<'a> {
        exec_id: &'a str,
        phase: &'a str,
        exit_code: Option<i32>,
        signal: Option<i32>,
        timed_out: bool,
        stdout: &'a str,
        stderr: &'a str,
        truncated: bool,
        writers_may_be_alive: bool,
    }

    #[derive(Default)]
    struct Sink {
        seen: Vec<u8>,
        largest: usize,
    }

    impl Outflow for Sink {
        fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()> {
            self.seen.extend_from_slice(bytes);
            self.largest = self.largest.max(bytes.len());
            Box::pin(std::future::ready(Ok(())))
        }

        fn flush(&mut self) -> Step<'_, ()> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn offer(&mut self, _: &[Frame<'_>]) -> Result<usize> {
            unreachable!("nobody offers here")
        }

        fn ready(&mut self) -> Step<'_, ()> {
            unreachable!("nobody offers here")
        }

        fn send_file<'a>(&'a mut self, _: &'a File, _: u64, _: u64) -> Step<'a, ()> {
            unreachable!("a document is no file")
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            exit: Exit {
                code: None,
                signal: Some(9),
                user: Duration::ZERO,
                system: Duration::ZERO,
                peak: 0,
            },
            timed_out: true,
            truncated: false,
            writers_may_be_alive: true,
            total: 0,
            wall: Duration::ZERO,
        }
    }

    /// Runs `test` on a thread of its own: a runtime is for life.
    fn on_a_runtime(test: impl AsyncFnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            let code = crate::ring::start(Choice::Epoll, async {
                test().await;
                0
            });
            code.expect("epoll runs everywhere");
        });
        thread.join().expect("it does not panic");
    }

    fn check(id: &'static str, stdout: Vec<u8>, stderr: Vec<u8>, is_small: bool) {
        let [out, err] = [&stdout, &stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let whole = Whole {
            exec_id: id,
            phase: "exited",
            exit_code: None,
            signal: Some(9),
            timed_out: true,
            stdout: &out,
            stderr: &err,
            truncated: false,
            writers_may_be_alive: true,
        };
        let expected = serde_json::to_vec(&whole).expect("text is JSON");
        on_a_runtime(async move || {
            let report = Report {
                outcome: outcome(),
                stdout: Rc::new(stdout),
                stderr: Rc::new(stderr),
            };
            let document = Document::new(id, "exited", report).expect("text is JSON");
            match document.answer().await {
                Answer::Json(text) => assert!(is_small && text == expected, "{id}"),
                Answer::Bytes(source) => {
                    assert!(!is_small && source.media == "application/json");
                    assert_eq!(source.length, Some(expected.len() as u64), "{id}");
                    let mut sink = Sink::default();
                    let produced = source.produce.produce(&mut sink).await;
                    produced.expect("the sink takes everything");
                    assert!(sink.seen == expected, "{id}");
                    assert!(sink.largest <= PIECE, "{id}: {}", sink.largest);
                }
                Answer::Done | Answer::Empty => panic!("an answer without a document"),
            }
        });
    }

    #[test]
    fn a_small_result_is_the_document_that_the_library_writes() {
        check("e", Vec::new(), Vec::new(), true);
        check("\"},\\ é", b"a\0\xff\"\n".to_vec(), "é\u{7f}".into(), true);
        check("most", vec![b'x'; SMALL - 1], vec![b'y'], true);
    }

    #[test]
    fn a_large_result_is_the_same_document_in_pieces_of_a_known_length() {
        check("one more", vec![b'x'; SMALL], vec![b'y'], false);
        check("nul", vec![0; 3 * STRETCH + 7], vec![0xff; 100_000], false);
        check("stderr", Vec::new(), "é€😀\n".repeat(200_000).into(), false);
        let torn: Vec<u8> = (0..=255).cycle().take(2 * STRETCH).collect();
        check("torn", torn.clone(), torn, false);
    }
}
