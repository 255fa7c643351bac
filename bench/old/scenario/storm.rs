//! `exec-storm`: a thousand programs that only exit, fifty at a time, each followed to its exit event.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use super::Sample;
use super::contender::{ack, beside_bare, start_body};
use super::transfer::measure;
use crate::client::{Crowd, Follower, Form, Manner, Member, Script};
use crate::fixture::exit_program;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "exec-storm";

pub(crate) const RATE: Metric = Metric {
    name: "rate",
    unit: "execs/s",
    better: Better::High,
};
const CPU: Metric = Metric {
    name: "CPU of the server",
    unit: "us/exec",
    better: Better::Low,
};
const GROWTH: Metric = Metric {
    name: "peak RSS growth",
    unit: "MiB",
    better: Better::Low,
};
pub(crate) const ZOMBIES: Metric = count("zombies left");
pub(crate) const DESCRIPTORS: Metric = count("descriptors left open");

const WIDTH: usize = 50;
const SETTLE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

const fn count(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "count",
        better: Better::Low,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let program = exit_program(lab.dir())?;
    let mut notes = Vec::new();
    let series = beside_bare(lab, &mut notes, |server| sample(lab, server, &program))?;
    notes.push(format!("{} programs over {WIDTH} keep-alive connections, each of which starts one and follows it to its exit event. bare spawns and waits with {WIDTH} alive.", lab.options.execs));
    notes.push("Zombies and descriptors are counted when the connections are closed, after 2 s at most. CPU leaves out the children.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, server: &Server, program: &Path) -> Result<Sample> {
    if server.kind == Kind::Bare {
        return bare(lab, server, program);
    }
    let descriptors_before = descriptors(server.pid())?;
    let program = program.to_str().context("a path is not text")?;
    let todo = Todo {
        left: lab.options.execs,
        program: program.to_owned(),
        serial: lab.serial(),
        ids: Vec::new(),
    };
    let todo = Rc::new(RefCell::new(todo));
    let mut runners = Vec::new();
    for _ in 0..WIDTH {
        runners.push(Runner::new(server, &todo)?);
    }
    let mut crowd = Crowd::gather(runners)?;
    let (reading, ()) = measure(server, || {
        crowd.members.iter_mut().try_for_each(Runner::begin)?;
        crowd.run(|runner| runner.stage == Stage::Resting)
    })?;
    drop(crowd);
    let ids = std::mem::take(&mut todo.borrow_mut().ids);
    ensure!(ids.len() == lab.options.execs, "an exec is missing");
    let mut client = server.client(Manner::Sleep)?;
    for id in &ids {
        ack(&mut client, id)?;
    }
    drop(client);
    let start = Instant::now();
    let (zombies, descriptors) = loop {
        let zombies = zombies(server.pid())?;
        let left = descriptors(server.pid())?.saturating_sub(descriptors_before);
        if zombies + left == 0 || start.elapsed() > SETTLE {
            break (zombies, left);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    Ok(Sample::from([
        (RATE, ids.len() as f64 / reading.wall_s),
        (CPU, reading.cpu_s * 1e6 / ids.len() as f64),
        (GROWTH, reading.grown_mib),
        (ZOMBIES, zombies as f64),
        (DESCRIPTORS, descriptors as f64),
    ]))
}

fn bare(lab: &Lab, server: &Server, program: &Path) -> Result<Sample> {
    let target = format!(
        "/v1/spawn-many?path={}&count={}&width={WIDTH}",
        program.display(),
        lab.options.execs
    );
    let (status, answer) = server.client(Manner::Sleep)?.ask("POST", &target, b"")?;
    ensure!(status == 200, "spawn-many answered {status}");
    let nanoseconds: u64 = serde_json::from_slice(&answer)?;
    let rate = lab.options.execs as f64 * 1e9 / nanoseconds as f64;
    Ok(Sample::from([(RATE, rate)]))
}

/// The execs that are still to be started, shared by all runners.
struct Todo {
    left: usize,
    program: String,
    serial: u64,
    ids: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Following,
    Resting,
}

/// One connection: starts an exec, follows it, starts the next.
struct Runner {
    follower: Follower,
    script: Rc<Script>,
    todo: Rc<RefCell<Todo>>,
    stage: Stage,
    id: String,
}

impl Runner {
    fn new(server: &Server, todo: &Rc<RefCell<Todo>>) -> Result<Self> {
        let script = Rc::new(Script::zeros(0));
        Ok(Self {
            follower: Follower::new(server.connection(Manner::Spin)?, Rc::clone(&script)),
            script,
            todo: Rc::clone(todo),
            stage: Stage::Resting,
            id: String::new(),
        })
    }

    fn begin(&mut self) -> Result<()> {
        let mut todo = self.todo.borrow_mut();
        if todo.left == 0 {
            self.stage = Stage::Resting;
            return Ok(());
        }
        todo.left -= 1;
        self.id = format!("storm-{}-{}", todo.serial, todo.left);
        let body = start_body(&self.id, &[&todo.program], false);
        self.stage = Stage::Starting;
        self.follower
            .connection
            .ask("POST", "/v1/exec/start", "", &body)
    }

    fn start_answered(&mut self) -> Result<()> {
        let head = self.follower.connection.head();
        let status = head.map_or(0, |head| head.status);
        ensure!(status == 200, "start answered {status}");
        self.stage = Stage::Following;
        self.follower
            .follow(&self.id, Form::Events, Rc::clone(&self.script))
    }
}

impl Member for Runner {
    fn step(&mut self, scratch: &mut [u8]) -> Result<()> {
        match self.stage {
            Stage::Resting => self.follower.step(scratch),
            Stage::Starting => {
                let connection = &mut self.follower.connection;
                connection.receive(scratch, |_, _| Ok(()))?;
                if connection.is_whole() {
                    self.start_answered()?;
                }
                Ok(())
            }
            Stage::Following => {
                self.follower.step(scratch)?;
                if self.follower.is_done() {
                    let id = std::mem::take(&mut self.id);
                    self.todo.borrow_mut().ids.push(id);
                    self.begin()?;
                }
                Ok(())
            }
        }
    }
}

impl AsFd for Runner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.as_fd()
    }
}

fn descriptors(pid: Pid) -> Result<usize> {
    let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
    Ok(std::fs::read_dir(path)?.count())
}

/// Children of `parent` that ended and were not waited for (proc_pid_stat(5)).
fn zombies(parent: Pid) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        // A process may be gone before its file is read.
        let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else {
            continue;
        };
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let is_zombie = fields.next() == Some("Z");
        let is_child = fields.next() == Some(&parent.as_raw_nonzero().to_string());
        count += usize::from(is_zombie && is_child);
    }
    Ok(count)
}
