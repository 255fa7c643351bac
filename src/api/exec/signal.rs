//! Signals to an exec, by name or number (signal(7)).

use std::rc::Rc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::answer::SignalAnswer;
use super::{json, parse};
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Error, Kind, Result};
use crate::exec::Recipient;

/// A signal, and who gets it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SignalRequest {
    /// A number from 1 to 64, or a name of signal(7).
    #[schemars(with = "NameOrNumber")]
    signal: Value,
    /// `group`, which is the usual one, or `leader`.
    #[schemars(default, with = "Option<To>")]
    to: Option<String>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(
    dead_code,
    reason = "it describes what a value that is refused by its name must be"
)]
enum NameOrNumber {
    Name(String),
    Number(#[schemars(range(min = 1, max = 64))] i32),
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(
    dead_code,
    reason = "it describes what a text that is refused by its name must be"
)]
enum To {
    Group,
    Leader,
}

pub(super) async fn signal(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let (signal, to) = parse(&app, &mut call, "signal", SignalRequest::read).await?;
    let delivered = app.execs.signal(&call.id, signal, to).await?;
    json(&SignalAnswer {
        exec_id: &call.id,
        signal,
        delivered,
    })
}

impl SignalRequest {
    /// # Errors
    /// `Malformed`, with what is wrong.
    fn read(self) -> Result<(i32, Recipient)> {
        let unknown =
            || -> Error { Kind::Malformed.told(format!("there is no signal {}", self.signal)) };
        let number = match &self.signal {
            Value::Number(number) => number
                .as_i64()
                .and_then(|number| in_range(i32::try_from(number).ok()?)),
            Value::String(name) => numbered(name),
            _ => return Err(Kind::Malformed.told("signal must be a name or a number")),
        };
        let number = number.ok_or_else(unknown)?;
        match self.to.as_deref() {
            None | Some("group") => Ok((number, Recipient::Group)),
            Some("leader") => Ok((number, Recipient::Leader)),
            Some(_) => Err(Kind::Malformed.told("to must be \"group\" or \"leader\"")),
        }
    }
}

/// The number of a signal that is named with or without `SIG`, in any case, or by digits.
fn numbered(name: &str) -> Option<i32> {
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return in_range(count(name)?);
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some(index) = NAMES.iter().position(|known| *known == name) {
        return i32::try_from(index + 1).ok();
    }
    if let Some((_, number)) = OTHER_NAMES.iter().find(|(known, _)| *known == name) {
        return Some(*number);
    }
    let real_time = |number: &i32| (REAL_TIME_MIN..=LAST).contains(number);
    if let Some(rest) = name.strip_prefix("RTMIN") {
        let above = distance(rest, '+')?;
        return REAL_TIME_MIN.checked_add(above).filter(real_time);
    }
    let below = distance(name.strip_prefix("RTMAX")?, '-')?;
    LAST.checked_sub(below).filter(real_time)
}

/// What stands behind the name of an end of the real-time signals; nothing is 0.
fn distance(text: &str, sign: char) -> Option<i32> {
    match text {
        "" => Some(0),
        _ => count(text.strip_prefix(sign)?),
    }
}

fn count(digits: &str) -> Option<i32> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

fn in_range(number: i32) -> Option<i32> {
    (1..=LAST).contains(&number).then_some(number)
}

/// The names of the signals from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Second names.
const OTHER_NAMES: [(&str, i32); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];
/// The first real-time signal that the GNU library leaves to programs.
const REAL_TIME_MIN: i32 = 34;
const LAST: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Option<(i32, Recipient)>) {
        let request: Option<SignalRequest> = serde_json::from_str(body).ok();
        let read = request.and_then(|request| request.read().ok());
        assert_eq!(read, expected, "{body}");
    }

    fn check_signal(signal: &str, expected: Option<i32>) {
        let body = format!("{{\"signal\":{signal}}}");
        check(&body, expected.map(|number| (number, Recipient::Group)));
    }

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        for (index, name) in NAMES.iter().enumerate() {
            let number = i32::try_from(index + 1).expect("31 names");
            check_signal(&number.to_string(), Some(number));
            for form in [name.to_string(), format!("SIG{name}"), name.to_lowercase()] {
                check_signal(&format!("\"{form}\""), Some(number));
            }
        }
        for (name, number) in [
            ("sigterm", libc::SIGTERM),
            ("Kill", libc::SIGKILL),
            ("SIGSTKFLT", libc::SIGSTKFLT),
            ("winch", libc::SIGWINCH),
            ("SYS", libc::SIGSYS),
            ("IOT", libc::SIGIOT),
            ("POLL", libc::SIGPOLL),
            ("CLD", libc::SIGCHLD),
            ("9", libc::SIGKILL),
        ] {
            check_signal(&format!("\"{name}\""), Some(number));
        }
    }

    #[test]
    fn real_time_signals_count_from_either_end() {
        for (name, number) in [
            ("RTMIN", 34),
            ("SIGRTMIN+1", 35),
            ("rtmin+30", 64),
            ("RTMAX", 64),
            ("SIGRTMAX-30", 34),
        ] {
            check_signal(&format!("\"{name}\""), Some(number));
        }
        check_signal("32", Some(32));
        check_signal("64", Some(64));
    }

    #[test]
    fn what_is_no_signal_is_refused_by_name() {
        for signal in [
            "0",
            "-1",
            "65",
            "1.5",
            "1e99",
            "\"\"",
            "\"SIG\"",
            "\"SIGSIGTERM\"",
            "\"TERM \"",
            "\"0\"",
            "\"65\"",
            "\"9x\"",
            "\"RTMIN+31\"",
            "\"RTMIN-1\"",
            "\"RTMIN++1\"",
            "\"RTMIN+\u{664}\"",
            "\"RTMAX-31\"",
            "\"RTMAX+1\"",
            "\"RTMIN+9999999999\"",
            "\"EXIT\"",
        ] {
            check_signal(signal, None);
            let request = serde_json::from_str(&format!("{{\"signal\":{signal}}}"));
            let request: SignalRequest = request.expect("JSON");
            let named = request.signal.to_string();
            let error = request.read().expect_err(signal);
            assert!(error.sentence().contains(&named), "{signal}: {error}");
        }
        for signal in ["null", "true", "[15]", "{}"] {
            check_signal(signal, None);
        }
    }

    #[test]
    fn a_signal_goes_to_the_group_or_the_leader() {
        check(
            r#"{"signal":15,"to":"group"}"#,
            Some((15, Recipient::Group)),
        );
        check(r#"{"signal":15,"to":null}"#, Some((15, Recipient::Group)));
        check(
            r#"{"signal":15,"to":"leader"}"#,
            Some((15, Recipient::Leader)),
        );
        check(r#"{"signal":15,"to":"all"}"#, None);
        check(r#"{"signal":15,"to":""}"#, None);
        check(r#"{"to":"group"}"#, None);
    }
}
