//! Operations on execs: their requests and answers as JSON, and their output as server-sent events.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::body;
use super::row::{Access, Answer, Call, Form, Method, Produce, Row, Run, Source};
use crate::app::App;
use crate::error::{Error, Kind, Result};
use crate::exec::{Account, Follower, Launch, Outcome, Phase, Report, Shell, Surroundings, Told};
use crate::ring::{Outflow, Step, clock};
use crate::wire::{base64, sse};

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "exec.start",
        method: Method::Post,
        path: "/v1/exec/start",
        access: Access::Bearer,
        form: Form::Json,
        about: "starts a command under the caller's id; a repeated id starts nothing",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUser,
            Kind::UnknownGroup,
            Kind::UnknownShell,
            Kind::SpawnFailed,
        ],
        run: |app, call| -> Run { Box::pin(start(app, call)) },
    },
    Row {
        name: "exec.poll",
        method: Method::Get,
        path: "/v1/exec/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells how far an exec is, and its result once it has ended",
        errors: &[Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(std::future::ready(poll(&app, &call))) },
    },
    Row {
        name: "exec.stream",
        method: Method::Get,
        path: "/v1/exec/{id}/stream",
        access: Access::Bearer,
        form: Form::Json,
        about: "follows the output of an exec from an offset, then tells its end",
        errors: &[Kind::Malformed, Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(std::future::ready(stream(&app, &call))) },
    },
    Row {
        name: "exec.stdin",
        method: Method::Post,
        path: "/v1/exec/{id}/stdin",
        access: Access::Bearer,
        form: Form::Json,
        about: "writes to the standard input of an exec, or closes it",
        errors: &[
            Kind::Malformed,
            Kind::UnknownExec,
            Kind::StdinNotRequested,
            Kind::StdinWriteTooLarge,
            Kind::StdinClosed,
            Kind::StdinWriteTimeout,
            Kind::StdinWriteFailed,
        ],
        run: |app, call| -> Run { Box::pin(stdin(app, call)) },
    },
    Row {
        name: "exec.ack",
        method: Method::Post,
        path: "/v1/exec/{id}/ack",
        access: Access::Bearer,
        form: Form::Json,
        about: "hands the result of an exec out for the last time and frees it",
        errors: &[Kind::UnknownExec, Kind::StillRunning, Kind::AlreadyAcked],
        run: |app, call| -> Run { Box::pin(std::future::ready(ack(&app, &call))) },
    },
    Row {
        name: "exec.kill",
        method: Method::Post,
        path: "/v1/exec/{id}/kill",
        access: Access::Bearer,
        form: Form::Json,
        about: "ends every process of an exec and answers when none is left",
        errors: &[Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(kill(app, call)) },
    },
    Row {
        name: "procs.list",
        method: Method::Get,
        path: "/v1/procs",
        access: Access::Bearer,
        form: Form::Json,
        about: "lists every exec with the live processes of its group",
        errors: &[],
        run: |app, _| -> Run { Box::pin(procs(app)) },
    },
];

async fn start(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let request: StartRequest = parse(&app, &mut call, "start").await?;
    let launch = request.into_launch()?;
    let exec_id = launch.id.clone();
    let around = Surroundings {
        launch: app.boot.environment(),
        image: Rc::clone(&app.image_environment),
    };
    app.execs.start(launch, &around).await?;
    json(&Brief {
        exec_id: &exec_id,
        phase: "running",
    })
}

fn poll(app: &App, call: &Call) -> Result<Answer> {
    let exec = app.execs.look(&call.id)?;
    match exec.report() {
        Some(report) => json(&Full::new(&call.id, "exited", &report)),
        None => json(&Brief {
            exec_id: &call.id,
            phase: phase_name(exec.phase()),
        }),
    }
}

fn ack(app: &App, call: &Call) -> Result<Answer> {
    let report = app.execs.ack(&call.id)?;
    json(&Full::new(&call.id, "acked", &report))
}

async fn kill(app: Rc<App>, call: Call) -> Result<Answer> {
    let killed = app.execs.kill(&call.id).await?;
    json(&KillAnswer {
        exec_id: &call.id,
        killed,
    })
}

async fn stdin(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let request: StdinRequest = parse(&app, &mut call, "stdin").await?;
    let exec = app.execs.stdin(&call.id)?;
    let eof = match request.signal.as_deref() {
        None => false,
        Some("eof") => true,
        Some(other) => {
            let told = format!("unknown stdin signal {other:?}; only \"eof\" is defined");
            return Err(Kind::Malformed.told(told));
        }
    };
    let text = request.data_b64.unwrap_or_default();
    let bytes = base64::decode(&text).map_err(|error| {
        Kind::Malformed.told(format!("data_b64 is not valid base64: {error}"))
    })?;
    drop(text);
    app.execs.write(&exec, &bytes, eof).await?;
    json(&StdinAnswer {
        exec_id: &call.id,
        written: bytes.len(),
        eof,
    })
}

fn stream(app: &App, call: &Call) -> Result<Answer> {
    let bad_offset = |_| Kind::Malformed.told("offset must be a non-negative integer");
    let offset = match call.query.one("offset").map_err(bad_offset)? {
        Some(text) => text.parse().map_err(|_| ()).map_err(|()| {
            Kind::Malformed.told("offset must be a non-negative integer")
        })?,
        None => 0,
    };
    let is_padded = call.query.all("pad").any(|value| value == "1");
    let events = Events {
        follower: app.execs.follow(&call.id, offset)?,
        keepalive: app.config.limits.sse_keepalive,
        comment: if is_padded {
            sse::padded_comment()
        } else {
            sse::COMMENT.to_vec()
        },
    };
    Ok(Answer::Bytes(Source {
        media: "text/event-stream",
        length: None,
        part: None,
        fields: vec![
            ("cache-control", "no-cache".into()),
            ("x-accel-buffering", "no".into()),
        ],
        produce: Box::new(events),
    }))
}

async fn procs(app: Rc<App>) -> Result<Answer> {
    let groups = app.execs.procs().await?;
    let procs = groups
        .iter()
        .map(|group| ProcGroup {
            exec_id: &group.exec_id,
            pgid: group.pgid,
            started_at: group.started_at,
            child_exited: group.child_exited,
            reap: group.reap,
            pids: &group.pids,
        })
        .collect();
    json(&ProcsAnswer { procs })
}

/// The output of one exec as events, until its end.
struct Events {
    follower: Follower,
    keepalive: Duration,
    comment: Vec<u8>,
}

impl Produce for Events {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(self.run(sink))
    }
}

impl Events {
    async fn run(mut self: Box<Self>, sink: &mut dyn Outflow) -> Result<()> {
        let mut text = Vec::new();
        loop {
            while text.len() < BATCH && self.follower.next(|told| write_event(&mut text, &told)) {}
            if !text.is_empty() {
                sink.write(&text).await?;
                text.clear();
                continue;
            }
            sink.flush().await?;
            if self.follower.has_ended() {
                return Ok(());
            }
            // An idle follower holds no buffer.
            text = Vec::new();
            let silent = clock::within(self.keepalive, self.follower.changed()).await;
            if silent.is_none() {
                text.extend_from_slice(&self.comment);
            }
        }
    }
}

fn write_event(into: &mut Vec<u8>, told: &Told<'_>) {
    match told {
        Told::Gap { from, to } => sse::gap(into, *from, *to),
        Told::Output {
            offset,
            stream,
            bytes,
        } => sse::output(into, *offset, stream.name(), bytes),
        Told::Exit(outcome) => {
            let exit = ExitEvent::from(outcome);
            let data = serde_json::to_vec(&exit).expect("numbers and flags are always JSON");
            sse::event(into, "exit", &data);
        }
    }
}

/// Reads a JSON request; whatever is wrong with it is told in one sentence.
async fn parse<T: DeserializeOwned>(app: &App, call: &mut Call, what: &str) -> Result<T> {
    let bytes = body::read(&mut *call.body, app.config.limits.max_body_bytes).await?;
    let malformed = || Kind::Malformed.told(format!("body is not a valid {what} request"));
    if !body::is_json(call.fields.first("content-type")) {
        return Err(malformed());
    }
    object(&bytes).map_err(|cause| match cause {
        Some(cause) => malformed().because(cause),
        None => malformed(),
    })
}

/// Parses a document that is one object: the parser by itself would also take an array of the values.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, Option<serde_json::Error>> {
    match bytes.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(bytes).map_err(Some),
        _ => Err(None),
    }
}

fn json(answer: &impl Serialize) -> Result<Answer> {
    serde_json::to_vec(answer)
        .map(Answer::Json)
        .map_err(|error| Kind::Internal.told("internal error").because(error))
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "running",
        Phase::Exited => "exited",
        Phase::Acked => "acked",
    }
}

#[derive(Deserialize)]
struct StartRequest {
    exec_id: String,
    command: Vec<String>,
    #[serde(default)]
    shell: ShellField,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    user: Option<AccountField>,
    group: Option<AccountField>,
    timeout_sec: Option<f64>,
    #[serde(default)]
    stdin: bool,
    #[serde(default)]
    reap_group_on_exit: bool,
    #[serde(default)]
    inherit_image_env: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ShellField {
    Flag(bool),
    Name(String),
}

impl Default for ShellField {
    fn default() -> Self {
        Self::Flag(false)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
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
    fn into_launch(self) -> Result<Launch> {
        if self.exec_id.is_empty() {
            return Err(Kind::Malformed.told("exec_id must not be empty"));
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
            reap_group_on_exit: self.reap_group_on_exit,
            inherit_image_env: self.inherit_image_env,
        })
    }
}

/// A time limit; `None` when it is too long to be measured and so never comes.
fn span(seconds: f64) -> std::result::Result<Option<Duration>, Error> {
    if !seconds.is_finite() || seconds <= 0.0 {
        let told = format!("timeout_sec must be a positive finite number, got {seconds}");
        return Err(Kind::Malformed.told(told));
    }
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

#[derive(Deserialize)]
struct StdinRequest {
    data_b64: Option<String>,
    signal: Option<String>,
}

#[derive(Serialize)]
struct Brief<'a> {
    exec_id: &'a str,
    phase: &'a str,
}

#[derive(Serialize)]
struct Full<'a> {
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

impl<'a> Full<'a> {
    fn new(exec_id: &'a str, phase: &'a str, report: &'a Report) -> Self {
        let outcome = &report.outcome;
        Self {
            exec_id,
            phase,
            exit_code: outcome.exit.code,
            signal: outcome.exit.signal,
            timed_out: outcome.timed_out,
            stdout: &report.stdout,
            stderr: &report.stderr,
            truncated: outcome.truncated,
            writers_may_be_alive: outcome.writers_may_be_alive,
        }
    }
}

#[derive(Serialize)]
struct ExitEvent {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    truncated: bool,
    writers_may_be_alive: bool,
    offset: u64,
}

impl From<&Outcome> for ExitEvent {
    fn from(outcome: &Outcome) -> Self {
        Self {
            exit_code: outcome.exit.code,
            signal: outcome.exit.signal,
            timed_out: outcome.timed_out,
            truncated: outcome.truncated,
            writers_may_be_alive: outcome.writers_may_be_alive,
            offset: outcome.total,
        }
    }
}

#[derive(Serialize)]
struct StdinAnswer<'a> {
    exec_id: &'a str,
    written: usize,
    eof: bool,
}

#[derive(Serialize)]
struct KillAnswer<'a> {
    exec_id: &'a str,
    killed: bool,
}

#[derive(Serialize)]
struct ProcsAnswer<'a> {
    procs: Vec<ProcGroup<'a>>,
}

#[derive(Serialize)]
struct ProcGroup<'a> {
    exec_id: &'a str,
    pgid: i32,
    started_at: u64,
    child_exited: bool,
    reap: bool,
    pids: &'a [i32],
}

/// Bytes of events that are sent in one write.
const BATCH: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: std::result::Result<(), &str>) {
        let launch = object::<StartRequest>(body.as_bytes())
            .map_err(|_| "malformed".to_owned())
            .and_then(|request| {
                let launch = request.into_launch();
                launch.map_err(|error| error.sentence().to_owned())
            });
        assert_eq!(launch.map(|_| ()), expected.map_err(str::to_owned), "{body}");
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
        assert_eq!((launch.timeout, launch.cwd, launch.user), (None, None, None));
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
        check(r#"{"exec_id":"x","command":["true"],"frob":1,"frob":2}"#, Ok(()));
        check(
            r#"{"exec_id":"x","command":["true"],"cwd":null,"user":null,"group":null,"timeout_sec":null}"#,
            Ok(()),
        );
    }

    #[test]
    fn names_and_numbers_are_told_apart() {
        let launch = launch(
            r#"{"exec_id":"x","command":["true"],"user":"7","group":8,"shell":"bash"}"#,
        );
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
        assert_eq!(limit("1e19"), Some(Duration::from_secs(10_000_000_000_000_000_000)));
    }

    #[test]
    fn a_stdin_request_may_be_empty_or_null() {
        for body in ["{}", r#"{"data_b64":null,"signal":null}"#] {
            let request = object::<StdinRequest>(body.as_bytes()).expect("parses");
            assert!(request.data_b64.is_none() && request.signal.is_none());
        }
        assert!(object::<StdinRequest>(b"[]").is_err());
        assert!(object::<StdinRequest>(br#"{"data_b64":1}"#).is_err());
    }
}
