//! `fanout-500`: one exec writes lines at full speed to many followers, some of which never read.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};

use super::contender::{Contender, SCRATCH_BYTES, ack, contenders, start_body, start_exec};
use super::transfer::measure;
use super::{Sample, alternate, warm_up};
use crate::client::{Crowd, Follower, Form, Manner, Script};
use crate::cpu;
use crate::fixture;
use crate::lab::Lab;
use crate::memory::resident;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{self, Kind, Placement, Server};

pub(crate) const NAME: &str = "fanout-500";

pub(crate) const CPU: Metric = Metric {
    name: "CPU per line and follower",
    unit: "us",
    better: Better::Low,
};
const WALL: Metric = seconds("from the first line to the last exit read");
const MISSED: Metric = Metric {
    name: "output that fell into gaps",
    unit: "%",
    better: Better::Low,
};
const LOAD_CPU: Metric = Metric {
    name: "CPU of the load, per line and follower",
    unit: "us",
    better: Better::Low,
};
const GROWTH: Metric = mib("peak RSS growth");
const PEAK: Metric = mib("peak RSS");
const WALL_ALONE: Metric = seconds("four fifths of the followers, none stalled");
const WALL_BESIDE: Metric =
    seconds("four fifths of the followers, beside one fifth that never reads");
pub(crate) const DELAY: Metric = Metric {
    name: "the second of these / the first",
    unit: "x",
    better: Better::Low,
};
const PEAK_BESIDE: Metric = mib("peak RSS, beside one fifth that never reads");

const LINE_BYTES: usize = 2048;
/// What ringd keeps of a stream for the polled result.
const KEPT_MIB: usize = 8;
/// One batch of events on its way.
const SEND_KIB: usize = 64;

const fn seconds(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "s",
        better: Better::Low,
    }
}

const fn mib(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "MiB",
        better: Better::Low,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let mut notes = Vec::new();
    let mut all = contenders(lab, &mut notes);
    if all[0].kind == Kind::Ringd {
        widen(lab, &mut all[0], &mut notes);
    }
    let lines = lab.options.fanout_mib * (1 << 20) / LINE_BYTES;
    let script = Rc::new(Script::of(fixture::lines(lines, LINE_BYTES)));
    warm_up(&all, |one| sample(lab, one, &script).map(drop))?;
    let series = alternate(&all, lab.options.rounds, |one| sample(lab, one, &script))?;
    notes.push(format!(
        "{} followers, all attached before the first line; {lines} lines of {LINE_BYTES} bytes, one write each. A fresh server for every run.",
        lab.options.followers
    ));
    notes.push("Every byte of every follower is compared. ringd must deliver all of them; what another leaves out is not counted as a line.".to_owned());
    let kept = lab.options.fanout_mib + lab.options.fanout_mib.min(KEPT_MIB);
    notes.push(format!(
        "To compare ringd's peak with: {kept} MiB for the window and the result, 64 KiB to send for each follower, {} MiB in all above idle.",
        kept + lab.options.followers * SEND_KIB / 1024
    ));
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

/// Nothing may fall into a gap: ringd must hold all that is written.
fn widen(lab: &Lab, contender: &mut Contender, notes: &mut Vec<String>) {
    if target::knows_setting(&lab.options.ringd, "stream-spill-bytes") {
        return;
    }
    let window = lab.options.fanout_mib * (1 << 20);
    contender.setup.flags = vec!["--stream-buffer-bytes".to_owned(), window.to_string()];
    notes.push(format!(
        "This ringd has no --stream-spill-bytes: it runs with --stream-buffer-bytes {window}."
    ));
}

fn sample(lab: &Lab, contender: &Contender, script: &Rc<Script>) -> Result<Sample> {
    let followers = lab.options.followers;
    let fan = fan_out(lab, contender, script, followers, 0)?;
    let lines = fan.delivered as f64 / LINE_BYTES as f64;
    let wanted = script.total() as f64 * followers as f64;
    let mut sample = Sample::from([
        (CPU, fan.cpu_s * 1e6 / lines),
        (LOAD_CPU, fan.load_cpu_s * 1e6 / lines),
        (WALL, fan.wall_s),
        (MISSED, 100.0 * (1.0 - fan.delivered as f64 / wanted)),
        (GROWTH, fan.grown_mib),
        (PEAK, fan.peak_mib),
    ]);
    if contender.kind == Kind::Ringd {
        let stalled = followers / 5;
        let alone = fan_out(lab, contender, script, followers - stalled, 0)?;
        let beside = fan_out(lab, contender, script, followers - stalled, stalled)?;
        sample.extend([
            (WALL_ALONE, alone.wall_s),
            (WALL_BESIDE, beside.wall_s),
            (DELAY, beside.wall_s / alone.wall_s),
            (PEAK_BESIDE, beside.peak_mib),
        ]);
    }
    Ok(sample)
}

struct Fan {
    cpu_s: f64,
    /// CPU time of the followers' process meanwhile.
    load_cpu_s: f64,
    wall_s: f64,
    grown_mib: f64,
    peak_mib: f64,
    /// Bytes that all followers together were told.
    delivered: u64,
}

fn fan_out(
    lab: &Lab,
    contender: &Contender,
    script: &Rc<Script>,
    reading: usize,
    stalled: usize,
) -> Result<Fan> {
    let server = contender.start(lab, Placement::ServerCpu)?;
    let id = format!("bench-{}", lab.serial());
    let exe = std::env::current_exe()?;
    let lines = script.total() / LINE_BYTES as u64;
    let command = [
        exe.to_str().context("a path is not text")?,
        "emit",
        "--lines",
        &lines.to_string(),
        "--bytes",
        &LINE_BYTES.to_string(),
    ];
    let mut starter = server.connection(Manner::Sleep)?;
    let mut scratch = vec![0; SCRATCH_BYTES];
    start_exec(&mut starter, &mut scratch, &start_body(&id, &command, true))?;
    let mut crowd = attach(&server, &id, script, reading)?;
    let silent = attach(&server, &id, script, stalled)?;
    let target = format!("/v1/exec/{id}/stdin");
    let signal = br#"{"data_b64":"Cg=="}"#;
    let load_before = cpu::used_s(rustix::process::getpid())?;
    let (spent, ()) = measure(&server, || {
        starter.ask("POST", &target, "", signal)?;
        crowd.run(Follower::is_done)
    })?;
    let load_cpu_s = cpu::used_s(rustix::process::getpid())? - load_before;
    let peak_mib = resident(server.pid())?.peak;
    let (status, _) = starter.answer(&mut scratch)?;
    ensure!(status == 200, "stdin answered {status}");
    drop(silent);
    let accounts = crowd.members.iter().map(|follower| &follower.account);
    if contender.kind == Kind::Ringd {
        ensure!(
            accounts.clone().all(|account| account.gaps == 0),
            "a follower was told of a gap"
        );
    }
    let delivered = accounts.map(|account| account.delivered).sum();
    ack(&mut server.client(Manner::Sleep)?, &id)?;
    Ok(Fan {
        cpu_s: spent.cpu_s,
        load_cpu_s,
        wall_s: spent.wall_s,
        grown_mib: spent.grown_mib,
        peak_mib,
        delivered,
    })
}

/// Followers whose responses have begun.
fn attach(server: &Server, id: &str, script: &Rc<Script>, count: usize) -> Result<Crowd<Follower>> {
    let mut followers = Vec::new();
    for _ in 0..count {
        let mut follower = Follower::new(server.connection(Manner::Spin)?, Rc::clone(script));
        follower.follow(id, Form::Events, Rc::clone(script))?;
        followers.push(follower);
    }
    let mut crowd = Crowd::gather(followers)?;
    crowd.run(Follower::is_attached)?;
    Ok(crowd)
}
