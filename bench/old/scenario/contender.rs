//! A server that runs execs under a name of its own, and the requests that the exec scenarios share.

use anyhow::{Result, ensure};

use super::{Entrant, Sample, alternate, warm_up};
use crate::client::{Client, Connection, Form, Manner};
use crate::fixture::exit_program;
use crate::lab::Lab;
use crate::report::Series;
use crate::target::{self, Kind, Placement, Server, Setup};

pub(super) const SCRATCH_BYTES: usize = 1 << 20;

/// One server of a scenario.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) setup: Setup,
}

impl Entrant for Contender {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl Contender {
    pub(super) fn start(&self, lab: &Lab, placement: Placement) -> Result<Server> {
        let setup = Setup {
            placement,
            flags: self.setup.flags.clone(),
        };
        lab.start_with(self.kind, &setup)
    }
}

/// ringd, when it is there, and axum with TCP_NODELAY, so that the comparison is about the work.
pub(super) fn contenders(lab: &Lab, notes: &mut Vec<String>) -> Vec<Contender> {
    let mut all = Vec::new();
    if target::available(Kind::Ringd, &lab.options.ringd) {
        all.push(contender("ringd", Kind::Ringd, &[]));
    } else {
        notes.push("ringd is not installed here: left out".to_owned());
    }
    all.push(contender("axum", Kind::Axum, &["--nodelay"]));
    notes.push("axum runs with TCP_NODELAY.".to_owned());
    all
}

/// A server that runs for the whole scenario.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) server: Server,
}

impl Entrant for Running {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Measures the contenders and the bare loop in turn, the servers with all their children on one CPU.
pub(super) fn beside_bare(
    lab: &Lab,
    notes: &mut Vec<String>,
    sample: impl Fn(&Server) -> Result<Sample>,
) -> Result<Vec<Series>> {
    let mut all = contenders(lab, notes);
    all.push(contender("bare", Kind::Bare, &[]));
    let servers = all
        .iter()
        .map(|one| {
            Ok(Running {
                name: one.name,
                server: one.start(lab, Placement::ServerCpu)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    warm_up(&servers, |one| sample(&one.server).map(drop))?;
    alternate(&servers, lab.options.rounds, |one| sample(&one.server))
}

pub(super) fn contender(name: &'static str, kind: Kind, flags: &[&str]) -> Contender {
    Contender {
        name,
        kind,
        setup: Setup {
            placement: Placement::default(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        },
    }
}

/// Body of a start request.
pub(super) fn start_body(id: &str, command: &[impl AsRef<str>], stdin: bool) -> Vec<u8> {
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    serde_json::json!({ "exec_id": id, "command": command, "stdin": stdin })
        .to_string()
        .into_bytes()
}

/// Starts an exec over `connection` and waits for the answer.
pub(super) fn start_exec(
    connection: &mut Connection,
    scratch: &mut [u8],
    body: &[u8],
) -> Result<()> {
    connection.ask("POST", "/v1/exec/start", "", body)?;
    let (status, answer) = connection.answer(scratch)?;
    ensure!(
        status == 200,
        "start answered {status}: {}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}

pub(super) fn ack(client: &mut Client, id: &str) -> Result<()> {
    let (status, _) = client.ask("POST", &format!("/v1/exec/{id}/ack"), b"")?;
    ensure!(status == 200, "ack answered {status}");
    Ok(())
}

/// Whether a server answers the request for binary frames with them.
pub(super) fn speaks_frames(lab: &Lab, server: &Server) -> Result<bool> {
    let program = exit_program(lab.dir())?;
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut connection = server.connection(Manner::Sleep)?;
    let id = format!("bench-{}", lab.serial());
    let body = start_body(&id, &[&program.to_string_lossy()], false);
    start_exec(&mut connection, &mut scratch, &body)?;
    let target = format!("/v1/exec/{id}/stream?offset=0");
    connection.ask("GET", &target, Form::Frames.media(), b"")?;
    connection.answer(&mut scratch)?;
    let head = connection.head();
    Ok(head.is_some_and(|head| head.media.starts_with(Form::Frames.media())))
}
