//! The output of an exec as JSON: small documents whole, large ones written while they are sent.

use std::rc::Rc;

use serde::Serialize;

use super::answer::UsageAnswer;
use super::written;
use crate::api::row::{Answer, Produce, Source};
use crate::error::Result;
use crate::exec::{Excerpt, Phase, Report};
use crate::ring::{self, Outflow, Step};
use crate::wire::json;

/// An exec with what it wrote, in the order of the contract.
pub(super) struct Document {
    /// All before the text of the standard output.
    opening: Vec<u8>,
    stdout: Text,
    stderr: Text,
    /// All behind the text of the standard error.
    closing: Vec<u8>,
}

/// The bytes of one stream from an offset on; they are shared, not copied.
struct Text {
    bytes: Rc<Vec<u8>>,
    from: usize,
}

#[derive(Serialize)]
struct Opening<'a> {
    exec_id: &'a str,
    phase: Phase,
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: &'a str,
}

#[derive(Serialize)]
struct Closing {
    truncated: bool,
    writers_may_be_alive: bool,
    usage: Option<UsageAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_offset: Option<u64>,
}

#[derive(Serialize)]
struct RunningOpening<'a> {
    exec_id: &'a str,
    phase: Phase,
    stdout: &'a str,
}

#[derive(Serialize)]
struct RunningClosing {
    truncated: bool,
    stdout_offset: u64,
    stderr_offset: u64,
}

impl Document {
    /// The document of `report`; with offsets its texts begin there, and it tells the next ones.
    ///
    /// # Errors
    /// None that is known: numbers, flags and text are always JSON.
    pub(super) fn ended(
        exec_id: &str,
        phase: Phase,
        report: Report,
        offsets: Option<[u64; 2]>,
    ) -> Result<Self> {
        let outcome = &report.outcome;
        let [stdout, stderr] = [
            Text::new(report.stdout, offsets.map_or(0, |[stdout, _]| stdout)),
            Text::new(report.stderr, offsets.map_or(0, |[_, stderr]| stderr)),
        ];
        let opening = Opening {
            exec_id,
            phase,
            exit_code: outcome.exit.code,
            signal: outcome.exit.signal,
            timed_out: outcome.timed_out,
            stdout: "",
        };
        let closing = Closing {
            truncated: outcome.truncated,
            writers_may_be_alive: outcome.writers_may_be_alive,
            usage: UsageAnswer::of(outcome),
            stdout_offset: offsets.map(|[from, _]| stdout.end().max(from)),
            stderr_offset: offsets.map(|[_, from]| stderr.end().max(from)),
        };
        Self::around(&opening, stdout, stderr, &closing)
    }

    /// The document of an exec that runs, with a part of what it has written so far.
    ///
    /// # Errors
    /// As [`Document::ended`].
    pub(super) fn running(exec_id: &str, excerpt: Excerpt) -> Result<Self> {
        let opening = RunningOpening {
            exec_id,
            phase: Phase::Running,
            stdout: "",
        };
        let [stdout_offset, stderr_offset] = excerpt.next;
        let closing = RunningClosing {
            truncated: excerpt.truncated,
            stdout_offset,
            stderr_offset,
        };
        let [stdout, stderr] = excerpt.texts.map(|text| Text::new(Rc::new(text), 0));
        Self::around(&opening, stdout, stderr, &closing)
    }

    fn around(
        opening: &impl Serialize,
        stdout: Text,
        stderr: Text,
        closing: &impl Serialize,
    ) -> Result<Self> {
        let mut opening = written(opening)?;
        // The output goes between the last two quotes, and the object goes on behind it.
        opening.truncate(opening.len() - b"\"}".len());
        let mut closing = written(closing)?;
        closing.splice(..b"{".len(), *b"\",");
        Ok(Self {
            opening,
            stdout,
            stderr,
            closing,
        })
    }

    /// The answer; how long it will be is known before its first byte.
    pub(super) async fn answer(self) -> Answer {
        if self.stdout.rest().len() + self.stderr.rest().len() <= SMALL {
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
        json::escape(&mut text, self.stdout.rest());
        text.extend_from_slice(BETWEEN);
        json::escape(&mut text, self.stderr.rest());
        text.extend_from_slice(&self.closing);
        text
    }

    async fn length(&self) -> u64 {
        let around = self.opening.len() + BETWEEN.len() + self.closing.len();
        let mut length = around as u64;
        for output in [&self.stdout, &self.stderr] {
            let mut rest = output.rest();
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
            let mut rest = output.rest();
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

impl Text {
    /// What stands behind the first `from` bytes; nothing where there are no more.
    fn new(bytes: Rc<Vec<u8>>, from: u64) -> Self {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Self {
            from: from.min(bytes.len()),
            bytes,
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn end(&self) -> u64 {
        self.bytes.len() as u64
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
    use crate::ring::child::{Exit, Usage};

    /// The document in one piece, as the library writes it.
    #[derive(Serialize)]
    struct Whole<'a> {
        exec_id: &'a str,
        phase: Phase,
        exit_code: Option<i32>,
        signal: Option<i32>,
        timed_out: bool,
        stdout: &'a str,
        stderr: &'a str,
        truncated: bool,
        writers_may_be_alive: bool,
        usage: Option<UsageAnswer>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stdout_offset: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stderr_offset: Option<u64>,
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
                usage: Some(Usage {
                    user: Duration::from_micros(1_500),
                    system: Duration::ZERO,
                    peak: 4096,
                    block_reads: 1,
                    block_writes: 2,
                    voluntary_switches: 3,
                    involuntary_switches: 4,
                }),
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
        check_from(id, None, stdout, stderr, is_small);
    }

    fn check_from(
        id: &'static str,
        offsets: Option<[usize; 2]>,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        is_small: bool,
    ) {
        let [from_out, from_err] = offsets.unwrap_or_default();
        let [out, err] = [(&stdout, from_out), (&stderr, from_err)]
            .map(|(bytes, from)| String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()));
        let next = |bytes: &Vec<u8>, from: usize| bytes.len().max(from) as u64;
        let whole = Whole {
            exec_id: id,
            phase: Phase::Exited,
            exit_code: None,
            signal: Some(9),
            timed_out: true,
            stdout: &out,
            stderr: &err,
            truncated: false,
            writers_may_be_alive: true,
            usage: UsageAnswer::of(&outcome()),
            stdout_offset: offsets.map(|_| next(&stdout, from_out)),
            stderr_offset: offsets.map(|_| next(&stderr, from_err)),
        };
        let expected = serde_json::to_vec(&whole).expect("text is JSON");
        on_a_runtime(async move || {
            let report = Report {
                outcome: outcome(),
                stdout: Rc::new(stdout),
                stderr: Rc::new(stderr),
            };
            let offsets = offsets.map(|both| both.map(|from| from as u64));
            let document = Document::ended(id, Phase::Exited, report, offsets);
            let document = document.expect("text is JSON");
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
                _ => panic!("an answer without a document"),
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

    #[test]
    fn a_result_may_begin_at_an_offset_of_each_stream() {
        let [out, err] = [&b"0123456789"[..], b"abc"].map(<[u8]>::to_vec);
        for offsets in [[0, 0], [3, 1], [10, 3], [11, 99]] {
            check_from("e", Some(offsets), out.clone(), err.clone(), true);
        }
        let large = vec![b'x'; SMALL + 10];
        check_from("tail", Some([20, 0]), large.clone(), err.clone(), true);
        check_from("large", Some([5, 2]), large, err, false);
    }

    #[test]
    fn a_running_exec_tells_what_there_is_and_where_to_go_on() {
        on_a_runtime(async || {
            let excerpt = Excerpt {
                texts: [b"a\n".to_vec(), Vec::new()],
                next: [7, 0],
                truncated: false,
            };
            let document = Document::running("e", excerpt).expect("text is JSON");
            let Answer::Json(text) = document.answer().await else {
                panic!("it is small");
            };
            let expected = r#"{"exec_id":"e","phase":"running","stdout":"a\n","stderr":"","truncated":false,"stdout_offset":7,"stderr_offset":0}"#;
            assert_eq!(String::from_utf8_lossy(&text), expected);
        });
    }

    #[test]
    fn usage_that_nobody_counted_is_null() {
        let mut outcome = outcome();
        outcome.exit.usage = None;
        let report = Report {
            outcome,
            stdout: Rc::default(),
            stderr: Rc::default(),
        };
        let document = Document::ended("e", Phase::Exited, report, None).expect("text is JSON");
        let text = document.whole();
        assert!(text.ends_with(b"\"writers_may_be_alive\":true,\"usage\":null}"));
    }
}
