//! How far an exec is, and its result.

use std::rc::Rc;
use std::time::Duration;

use super::answer::Brief;
use super::document::Document;
use super::{json, offset};
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::exec::{Exec, Phase};
use crate::ring::clock::within;
use crate::wire::http::query::Query;

/// What a poll asks for beyond the phase.
struct Question {
    /// How long to wait for news.
    wait: Option<Duration>,
    /// Where the output shall begin, of each stream.
    offsets: Option<[u64; 2]>,
}

impl Question {
    fn of(query: &Query) -> Result<Self> {
        let stdout = offset(query, "stdout_offset")?;
        let stderr = offset(query, "stderr_offset")?;
        let is_asked = stdout.is_some() || stderr.is_some();
        Ok(Self {
            wait: wait(query)?,
            offsets: is_asked.then(|| [stdout, stderr].map(Option::unwrap_or_default)),
        })
    }

    /// Waits for what the poll waits for.
    async fn news(&self, exec: &Exec) {
        match self.offsets {
            Some(offsets) => exec.advanced(offsets).await,
            None => drop(exec.finished().await),
        }
    }
}

pub(super) async fn poll(app: Rc<App>, call: Call) -> Result<Answer> {
    let question = Question::of(&call.query)?;
    let exec = app.execs.look(&call.id)?;
    if let Some(wait) = question.wait {
        let news = async {
            monoio::select! {
                () = question.news(&exec) => {}
                // Nobody is kept waiting by a daemon that wants to leave, nor keeps it waiting.
                () = app.connections.drain.after(0) => {}
            }
        };
        within(wait, news).await;
    }
    if let Some(report) = exec.report() {
        let document = Document::ended(&call.id, Phase::Exited, report, question.offsets)?;
        return Ok(document.answer().await);
    }
    match (exec.phase(), question.offsets) {
        (Phase::Running, Some(offsets)) => {
            let document = Document::running(&call.id, exec.excerpt(offsets))?;
            Ok(document.answer().await)
        }
        (phase, _) => json(&Brief {
            exec_id: &call.id,
            phase,
        }),
    }
}

pub(super) async fn ack(app: Rc<App>, call: Call) -> Result<Answer> {
    let report = app.execs.ack(&call.id)?;
    let document = Document::ended(&call.id, Phase::Acked, report, None)?;
    Ok(document.answer().await)
}

/// The span of `wait`: a decimal number of seconds.
fn wait(query: &Query) -> Result<Option<Duration>> {
    let bad = || {
        Kind::Malformed.told(format!(
            "wait must be a number of seconds up to {MOST_WAIT}"
        ))
    };
    let Some(text) = query.one("wait")? else {
        return Ok(None);
    };
    let is_decimal = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: Option<f64> = is_decimal.then(|| text.parse().ok()).flatten();
    let in_range = seconds.filter(|seconds| *seconds <= MOST_WAIT);
    let span = in_range.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.map(Some).ok_or_else(bad)
}

/// Seconds that one poll may wait.
const MOST_WAIT: f64 = 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: Option<Duration>) {
        let found = wait(&Query::parse(query.as_bytes()));
        assert_eq!(found.ok().flatten(), expected, "{query}");
    }

    #[test]
    fn a_wait_is_a_decimal_number_of_seconds() {
        check("wait=0", Some(Duration::ZERO));
        check("wait=0.25", Some(Duration::from_millis(250)));
        check("wait=.5", Some(Duration::from_millis(500)));
        check("wait=3600", Some(Duration::from_secs(3600)));
        check("x=1", None);
        assert!(wait(&Query::default()).is_ok_and(|wait| wait.is_none()));
        for bad in [
            "", ".", "-1", "+1", "1e3", "inf", "NaN", "3600.1", "1s", "1&wait=1",
        ] {
            check(&format!("wait={bad}"), None);
            let error = wait(&Query::parse(format!("wait={bad}").as_bytes())).expect_err(bad);
            assert!(error.sentence().contains("wait"), "{bad}");
        }
    }
}
