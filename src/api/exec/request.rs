//! Requests on execs as they are written, and what they mean.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::limits::{LimitsField, LimitsRequest, NumberField, allowance};
use super::terminal::{SizeRequest, TtyField};
use crate::error::{Kind, Result};
use crate::exec::{Account, Launch, Shell};

/// A command, and how it is to be run.
#[derive(Deserialize, JsonSchema)]
pub(super) struct StartRequest {
    /// The caller's id; a repeated one starts nothing.
    #[schemars(length(min = 1, max = 65536))]
    exec_id: String,
    /// The argument vector; with a shell the lines of a script.
    command: Vec<String>,
    /// `true` is /bin/sh; a string is the path of a shell, or a name to search for.
    #[serde(default)]
    shell: ShellField,
    /// Working directory; that of the daemon if absent.
    #[serde(default)]
    cwd: Option<String>,
    /// The highest layer of the environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// A user by id or name.
    #[serde(default)]
    user: Option<AccountField>,
    /// A group by id or name.
    #[serde(default)]
    group: Option<AccountField>,
    /// Running time after which it is ended; above 0.
    #[serde(default)]
    timeout_sec: Option<f64>,
    /// Gives it a standard input that can be written to.
    #[serde(default)]
    stdin: bool,
    /// Gives it a terminal of this size in place of pipes.
    #[serde(default)]
    #[schemars(with = "Option<SizeRequest>")]
    tty: Option<TtyField>,
    /// Ends what is left of the process group when the command has ended.
    #[serde(default)]
    reap_group_on_exit: bool,
    /// Begins the environment with that of the daemon.
    #[serde(default)]
    inherit_image_env: bool,
    /// What it may use.
    #[serde(default)]
    #[schemars(with = "Option<LimitsRequest>")]
    limits: Option<LimitsField>,
    /// Nice value.
    #[serde(default)]
    #[schemars(with = "Option<i32>", range(min = -20, max = 19))]
    nice: Option<NumberField>,
    /// OOM score adjustment.
    #[serde(default)]
    #[schemars(with = "Option<i32>", range(min = -1000, max = 1000))]
    oom_score_adj: Option<NumberField>,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
enum ShellField {
    Flag(bool),
    Name(String),
}

impl Default for ShellField {
    fn default() -> Self {
        Self::Flag(false)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum AccountField {
    Id(u32),
    Name(String),
}

impl From<AccountField> for Account {
    fn from(field: AccountField) -> Self {
        match field {
            AccountField::Id(id) => Self::Id(id),
            AccountField::Name(name) => Self::Name(name),
        }
    }
}

impl StartRequest {
    /// Checks what the shape cannot say, in the order of the contract.
    ///
    /// # Errors
    /// `Malformed`, with what is wrong.
    pub(super) fn into_launch(self) -> Result<Launch> {
        if self.exec_id.is_empty() {
            return Err(Kind::Malformed.told("exec_id must not be empty"));
        }
        if self.exec_id.len() > MOST_ID {
            let told = format!("exec_id must not be longer than {MOST_ID} bytes");
            return Err(Kind::Malformed.told(told));
        }
        let timeout = self.timeout_sec.map(span).transpose()?;
        let shell = match self.shell {
            ShellField::Flag(false) => Shell::None,
            ShellField::Flag(true) => Shell::Default,
            ShellField::Name(name) => Shell::Named(name),
        };
        if shell == Shell::None && self.command.is_empty() {
            return Err(Kind::Malformed.told("command must not be empty when shell is false"));
        }
        let allowance = allowance(self.limits, self.nice, self.oom_score_adj)?;
        let terminal = self.tty.map(TtyField::into_size).transpose()?;
        let arguments = self.command.iter().map(String::len);
        let variables = self.env.iter().map(|(key, value)| key.len() + value.len());
        // Each string also costs its NUL and its place in the vector.
        let bytes: usize = arguments.chain(variables).map(|length| length + 9).sum();
        if bytes > MOST_ARGUMENTS {
            return Err(Kind::SpawnFailed.told("Argument list too long (os error 7)"));
        }
        Ok(Launch {
            id: self.exec_id,
            command: self.command,
            shell,
            cwd: self.cwd,
            env: self.env,
            user: self.user.map(Account::from),
            group: self.group.map(Account::from),
            timeout: timeout.flatten(),
            stdin: self.stdin,
            terminal,
            reap_group_on_exit: self.reap_group_on_exit,
            inherit_image_env: self.inherit_image_env,
            allowance,
        })
    }
}

/// Bytes of an id; one that does not fit into a request target can be started and not be asked for.
const MOST_ID: usize = 65536;

/// Bytes of arguments and environment that no kernel takes (execve(2): three quarters of 8 MiB at most).
const MOST_ARGUMENTS: usize = 6 * 1024 * 1024;

/// A time limit; `None` when it is too long to be measured and so never comes.
fn span(seconds: f64) -> Result<Option<Duration>> {
    if !seconds.is_finite() || seconds <= 0.0 {
        let told = format!("timeout_sec must be a positive finite number, got {seconds}");
        return Err(Kind::Malformed.told(told));
    }
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// What goes to a standard input; both parts are optional.
#[derive(Deserialize, JsonSchema)]
pub(super) struct StdinRequest {
    /// What is written, as base64 with padding.
    #[serde(default)]
    pub(super) data_b64: Option<String>,
    /// `eof` closes the standard input behind the data.
    #[serde(default)]
    #[schemars(with = "Option<InputEnd>")]
    pub(super) signal: Option<String>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(
    dead_code,
    reason = "it describes the one text that is not refused by name"
)]
enum InputEnd {
    Eof,
}

/// Parses a document that is one object: the parser by itself would also take an array of the values.
///
/// What the parser says is left out: it quotes the document, which must not reach a log.
pub(super) fn object<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    is_object.then(|| serde_json::from_slice(bytes).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: std::result::Result<(), &str>) {
        let launch = object::<StartRequest>(body.as_bytes())
            .ok_or_else(|| "malformed".to_owned())
            .and_then(|request| {
                let launch = request.into_launch();
                launch.map_err(|error| error.sentence().to_owned())
            });
        assert_eq!(
            launch.map(|_| ()),
            expected.map_err(str::to_owned),
            "{body}"
        );
    }

    fn launch(body: &str) -> Launch {
        let request = object::<StartRequest>(body.as_bytes()).expect("parses");
        request.into_launch().expect("is valid")
    }

    #[test]
    fn the_smallest_request_is_enough() {
        let launch = launch(r#" {"exec_id":"e1","command":["true"]}"#);
        assert_eq!(launch.id, "e1");
        assert_eq!(launch.shell, Shell::None);
        assert_eq!(
            (launch.timeout, launch.cwd, launch.user),
            (None, None, None)
        );
    }

    #[test]
    fn what_is_no_start_request_is_malformed() {
        for body in [
            "",
            "not json",
            "{}",
            "\u{feff}{\"exec_id\":\"x\",\"command\":[\"true\"]}",
            r#"["x",["true"]]"#,
            r#"{"exec_id":"x"}"#,
            r#"{"exec_id":"x","command":"true"}"#,
            r#"{"exec_id":1,"command":["true"]}"#,
            r#"{"exec_id":"x","exec_id":"y","command":["true"]}"#,
            r#"{"exec_id":"x","command":["true"]} x"#,
            r#"{"exec_id":"x","command":["true"],"timeout_sec":"5"}"#,
            r#"{"exec_id":"x","command":["true"],"timeout_sec":NaN}"#,
            r#"{"exec_id":"x","command":["true"],"timeout_sec":1e999}"#,
            r#"{"exec_id":"x","command":["true"],"user":-1}"#,
            r#"{"exec_id":"x","command":["true"],"user":1.5}"#,
            r#"{"exec_id":"x","command":["true"],"user":4294967296}"#,
            r#"{"exec_id":"x","command":["true"],"env":{"A":1}}"#,
            r#"{"exec_id":"x","command":["true"],"env":null}"#,
            r#"{"exec_id":"x","command":["true"],"shell":null}"#,
            r#"{"exec_id":"x","command":["true"],"shell":1}"#,
            r#"{"exec_id":"x","command":["true"],"stdin":null}"#,
        ] {
            check(body, Err("malformed"));
        }
    }

    #[test]
    fn a_well_formed_request_is_checked_in_order() {
        check(
            r#"{"exec_id":"","command":[],"timeout_sec":-1}"#,
            Err("exec_id must not be empty"),
        );
        check(
            r#"{"exec_id":"x","command":[],"timeout_sec":-1}"#,
            Err("timeout_sec must be a positive finite number, got -1"),
        );
        check(
            r#"{"exec_id":"x","command":[],"timeout_sec":0}"#,
            Err("timeout_sec must be a positive finite number, got 0"),
        );
        check(
            r#"{"exec_id":"x","command":[]}"#,
            Err("command must not be empty when shell is false"),
        );
        check(r#"{"exec_id":"x","command":[],"shell":true}"#, Ok(()));
        check(
            r#"{"exec_id":"x","command":["true"],"frob":1,"frob":2}"#,
            Ok(()),
        );
        check(
            r#"{"exec_id":"x","command":["true"],"cwd":null,"user":null,"group":null,"timeout_sec":null}"#,
            Ok(()),
        );
    }

    #[test]
    fn names_and_numbers_are_told_apart() {
        let launch =
            launch(r#"{"exec_id":"x","command":["true"],"user":"7","group":8,"shell":"bash"}"#);
        assert_eq!(launch.user, Some(Account::Name("7".into())));
        assert_eq!(launch.group, Some(Account::Id(8)));
        assert_eq!(launch.shell, Shell::Named("bash".into()));
    }

    #[test]
    fn a_time_limit_may_be_tiny_or_never_come() {
        let limit = |text: &str| {
            launch(&format!(
                r#"{{"exec_id":"x","command":["true"],"timeout_sec":{text}}}"#
            ))
            .timeout
        };
        assert_eq!(limit("1e-12"), Some(Duration::ZERO));
        assert_eq!(limit("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(limit("1e30"), None);
        assert_eq!(
            limit("1e19"),
            Some(Duration::from_secs(10_000_000_000_000_000_000))
        );
    }

    #[test]
    fn a_stdin_request_may_be_empty_or_null() {
        for body in ["{}", r#"{"data_b64":null,"signal":null}"#] {
            let request = object::<StdinRequest>(body.as_bytes()).expect("parses");
            assert!(request.data_b64.is_none() && request.signal.is_none());
        }
        assert!(object::<StdinRequest>(b"[]").is_none());
        assert!(object::<StdinRequest>(br#"{"data_b64":1}"#).is_none());
    }
}
