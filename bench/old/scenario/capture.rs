//! `capture-1g`: a program writes a GiB of zeros, without a follower, with one of events, with one of binary frames.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::contender::{
    Contender, SCRATCH_BYTES, ack, contender, contenders, speaks_frames, start_body, start_exec,
};
use super::transfer::{GIB, measure};
use super::{Entrant, Sample, alternate, warm_up};
use crate::client::{Client, Follower, Form, Manner, Script};
use crate::cpu;
use crate::fixture::{MIB, Writer};
use crate::lab::Lab;
use crate::report::{Better, Metric, OURS, ScenarioReport};
use crate::target::{self, Kind, Placement, Server};

pub(crate) const NAME: &str = "capture-1g";

/// Of one kind of writer without a follower.
struct Unwatched {
    writer: Writer,
    rate: Metric,
    rate_result: Metric,
    cpu: Metric,
    growth: Metric,
    rate_pinned: Metric,
    cpu_pinned: Metric,
}

/// Of one kind of writer and follower.
struct Watched {
    writer: Writer,
    form: Form,
    rate: Metric,
    missed: Metric,
    cpu: Metric,
    growth: Metric,
}

macro_rules! unwatched {
    ($writer:expr, $name:literal) => {
        Unwatched {
            writer: $writer,
            rate: rate(concat!(
                $name,
                ", no follower, rate until health shows the end"
            )),
            rate_result: rate(concat!(
                $name,
                ", no follower, rate until the result was read"
            )),
            cpu: cpu_per_gib(concat!($name, ", no follower, CPU")),
            growth: mib(concat!($name, ", no follower, peak RSS growth")),
            rate_pinned: rate(concat!(
                $name,
                ", no follower, one CPU, rate until health shows the end"
            )),
            cpu_pinned: cpu_per_gib(concat!($name, ", no follower, one CPU, CPU")),
        }
    };
}

macro_rules! watched {
    ($writer:expr, $form:expr, $name:literal) => {
        Watched {
            writer: $writer,
            form: $form,
            rate: rate(concat!($name, ", rate of what it was told")),
            missed: percent(concat!($name, ", output that fell into gaps")),
            cpu: cpu_per_gib(concat!($name, ", CPU per GiB told")),
            growth: mib(concat!($name, ", peak RSS growth")),
        }
    };
}

const SMALL: Unwatched = unwatched!(Writer::Small, "writes of 8 KiB");
const LARGE: Unwatched = unwatched!(Writer::Large, "writes of 64 KiB");
const SMALL_EVENTS: Watched =
    watched!(Writer::Small, Form::Events, "writes of 8 KiB, SSE follower");
const LARGE_EVENTS: Watched = watched!(
    Writer::Large,
    Form::Events,
    "writes of 64 KiB, SSE follower"
);
const SMALL_FRAMES: Watched = watched!(
    Writer::Small,
    Form::Frames,
    "writes of 8 KiB, binary follower"
);
const LARGE_FRAMES: Watched = watched!(
    Writer::Large,
    Form::Frames,
    "writes of 64 KiB, binary follower"
);

pub(crate) const RATE_SMALL: Metric = SMALL.rate;
pub(crate) const RATE_LARGE: Metric = LARGE.rate;
pub(crate) const RATE_SMALL_EVENTS: Metric = SMALL_EVENTS.rate;
pub(crate) const RATE_SMALL_FRAMES: Metric = SMALL_FRAMES.rate;

const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(120);
/// What both servers keep of a stream for the polled result.
const KEPT_BYTES: u64 = 8 << 20;

const fn rate(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "GiB/s",
        better: Better::High,
    }
}

const fn cpu_per_gib(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "CPU-s/GiB",
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

const fn percent(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "%",
        better: Better::Low,
    }
}

/// One contender in both placements.
struct Pair {
    name: &'static str,
    free: Server,
    pinned: Server,
    forms: Vec<Form>,
}

impl Entrant for Pair {
    fn name(&self) -> &'static str {
        self.name
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let mut notes = Vec::new();
    let pairs = choose(lab, &mut notes)
        .iter()
        .map(|one| start(lab, one, &mut notes))
        .collect::<Result<Vec<_>>>()?;
    warm_up(&pairs, |pair| sample(lab, pair).map(drop))?;
    let series = alternate(&pairs, lab.options.rounds, |pair| sample(lab, pair))?;
    notes.push("The programs are `head -c 1G /dev/zero`, which writes 8 KiB at a time, and `dd bs=64K`. Server, program and client share both CPUs, except where one CPU is named: there server and program have CPU 0 and the client CPU 1.".to_owned());
    notes.push("CPU is the server's, without the program. A follower is told the output up to the exit event; what it was told is checked, what it was not is in gaps.".to_owned());
    notes.push("bare reads 256 KiB at a time from a pipe of 1 MiB and drops them; its rate is what the program can give.".to_owned());
    notes.push("The result holds 8 MiB of NUL, which is 48 MiB of JSON: making and reading it is in the second rate and not in the first.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn choose(lab: &Lab, notes: &mut Vec<String>) -> Vec<Contender> {
    let mut all = contenders(lab, notes);
    all.push(contender("bare", Kind::Bare, &[]));
    if all[0].kind != Kind::Ringd {
        return all;
    }
    if target::knows_setting(&lab.options.ringd, "stream-spill-bytes") {
        let flags = ["--stream-spill-bytes", "0"];
        all.insert(1, contender("ringd-no-spill", Kind::Ringd, &flags));
    } else {
        notes.push("This ringd has no --stream-spill-bytes: only its defaults are run.".to_owned());
    }
    all
}

fn start(lab: &Lab, contender: &Contender, notes: &mut Vec<String>) -> Result<Pair> {
    let free = contender.start(lab, Placement::BothCpus)?;
    let has_frames = contender.kind == Kind::Ringd && speaks_frames(lab, &free)?;
    if contender.name == OURS && !has_frames {
        let reason = "This ringd answers the request for binary frames with events: the binary follower is left out.";
        eprintln!("  {reason}");
        notes.push(reason.to_owned());
    }
    let forms = match contender.kind {
        Kind::Bare => Vec::new(),
        _ if has_frames => vec![Form::Events, Form::Frames],
        _ => vec![Form::Events],
    };
    Ok(Pair {
        name: contender.name,
        free,
        pinned: contender.start(lab, Placement::ServerCpu)?,
        forms,
    })
}

fn sample(lab: &Lab, pair: &Pair) -> Result<Sample> {
    cpu::float(2)?;
    let free = sample_free(lab, pair);
    cpu::pin(cpu::LOAD_CPU)?;
    let mut sample = free?;
    let gib = bytes(lab) as f64 / GIB;
    for with in [&SMALL, &LARGE] {
        let alone = alone(lab, &pair.pinned, with.writer)?;
        sample.push((with.rate_pinned, gib / alone.end_s));
        sample.push((with.cpu_pinned, alone.cpu_s / gib));
    }
    Ok(sample)
}

fn sample_free(lab: &Lab, pair: &Pair) -> Result<Sample> {
    let gib = bytes(lab) as f64 / GIB;
    let mut sample = Sample::new();
    for with in [&SMALL, &LARGE] {
        let alone = alone(lab, &pair.free, with.writer)?;
        sample.push((with.rate, gib / alone.end_s));
        sample.push((with.cpu, alone.cpu_s / gib));
        if let Some(result_s) = alone.result_s {
            sample.push((with.rate_result, gib / result_s));
            sample.push((with.growth, alone.grown_mib));
        }
    }
    for with in [&SMALL_EVENTS, &LARGE_EVENTS, &SMALL_FRAMES, &LARGE_FRAMES] {
        if pair.forms.contains(&with.form) {
            follow(lab, &pair.free, with, &mut sample)?;
        }
    }
    Ok(sample)
}

fn bytes(lab: &Lab) -> u64 {
    lab.options.size_mib * MIB
}

struct Alone {
    end_s: f64,
    /// Nothing from one that keeps no result.
    result_s: Option<f64>,
    cpu_s: f64,
    grown_mib: f64,
}

/// One run without a follower. The CPU ends where the end shows; the result is checked.
fn alone(lab: &Lab, server: &Server, writer: Writer) -> Result<Alone> {
    let mut client = server.client(Manner::Sleep)?;
    if server.kind == Kind::Bare {
        return bare(lab, server, writer, &mut client);
    }
    let id = format!("bench-{}", lab.serial());
    let body = start_body(&id, &writer.command(bytes(lab)), false);
    let mut end_s = 0.0;
    let start = Instant::now();
    let (reading, ()) = measure(server, || {
        // The reading of /proc before this is not the server's work.
        let start = Instant::now();
        let (status, answer) = client.ask("POST", "/v1/exec/start", &body)?;
        ensure!(
            status == 200,
            "start answered {status}: {}",
            String::from_utf8_lossy(&answer)
        );
        wait_until_idle(&mut client)?;
        end_s = start.elapsed().as_secs_f64();
        Ok(())
    })?;
    let overhead_s = start.elapsed().as_secs_f64() - end_s;
    let (status, answer) = client.ask("GET", &format!("/v1/exec/{id}"), b"")?;
    let result_s = start.elapsed().as_secs_f64() - overhead_s;
    ensure!(status == 200, "poll answered {status}");
    check_result(&answer, bytes(lab))?;
    ack(&mut client, &id)?;
    Ok(Alone {
        end_s,
        result_s: Some(result_s),
        cpu_s: reading.cpu_s,
        grown_mib: reading.grown_mib,
    })
}

fn bare(lab: &Lab, server: &Server, writer: Writer, client: &mut Client) -> Result<Alone> {
    let target = format!("/v1/capture?path={}&count={}", writer.name(), bytes(lab));
    let (reading, nanoseconds) = measure(server, || {
        let (status, answer) = client.ask("POST", &target, b"")?;
        ensure!(status == 200, "capture answered {status}");
        Ok(serde_json::from_slice::<u64>(&answer)?)
    })?;
    Ok(Alone {
        end_s: nanoseconds as f64 / 1e9,
        result_s: None,
        cpu_s: reading.cpu_s,
        grown_mib: reading.grown_mib,
    })
}

fn wait_until_idle(client: &mut Client) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
        let (_, answer) = client.ask("GET", "/v1/health", b"")?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        if answer["busy"] == false {
            return Ok(());
        }
    }
    bail!("the exec was still running after {PATIENCE:?}")
}

fn check_result(answer: &[u8], bytes: u64) -> Result<()> {
    let answer: serde_json::Value = serde_json::from_slice(answer)?;
    let stdout = answer["stdout"].as_str().context("no stdout in a result")?;
    ensure!(
        answer["phase"] == "exited" && answer["exit_code"] == 0,
        "the program did not exit with 0"
    );
    ensure!(
        stdout.len() as u64 == bytes.min(KEPT_BYTES) && stdout.bytes().all(|byte| byte == 0),
        "the result is not the head of what was written"
    );
    ensure!(
        answer["truncated"] == (bytes > KEPT_BYTES),
        "truncated is wrong"
    );
    Ok(())
}

/// One run with a follower that is attached as soon as the start is answered.
fn follow(lab: &Lab, server: &Server, with: &Watched, sample: &mut Sample) -> Result<()> {
    let script = Rc::new(Script::zeros(bytes(lab)));
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut starter = server.connection(Manner::Sleep)?;
    let mut follower = Follower::new(server.connection(Manner::Sleep)?, Rc::clone(&script));
    let id = format!("bench-{}", lab.serial());
    let body = start_body(&id, &with.writer.command(bytes(lab)), false);
    let (reading, ()) = measure(server, || {
        start_exec(&mut starter, &mut scratch, &body)?;
        follower.follow(&id, with.form, Rc::clone(&script))?;
        while !follower.account.has_ended {
            follower.step(&mut scratch)?;
        }
        Ok(())
    })?;
    let told = follower.account.delivered as f64;
    sample.push((with.rate, told / GIB / reading.wall_s));
    let missed = 100.0 * (1.0 - told / script.total() as f64);
    sample.push((with.missed, missed));
    sample.push((with.cpu, reading.cpu_s * GIB / told));
    sample.push((with.growth, reading.grown_mib));
    ack(&mut server.client(Manner::Sleep)?, &id)
}
