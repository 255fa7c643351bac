//! One measured download or upload, and the metrics that they share.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::client::Manner;
use crate::cpu;
use crate::lab::Lab;
use crate::memory::{forget_peak, resident};
use crate::report::{Better, Metric};
use crate::target::{Placement, Server, launch_to};

pub(crate) const CPU_SPIN: Metric = Metric {
    name: "CPU, spin client",
    unit: "CPU-s/GiB",
    better: Better::Low,
};
pub(crate) const RATE_SPIN: Metric = Metric {
    name: "rate, spin client",
    unit: "GiB/s",
    better: Better::High,
};
pub(super) const CPU_COPY: Metric = Metric {
    name: "CPU, ordinary client",
    unit: "CPU-s/GiB",
    better: Better::Low,
};
pub(super) const RATE_COPY: Metric = Metric {
    name: "rate, ordinary client",
    unit: "GiB/s",
    better: Better::High,
};
pub(crate) const CPU_PER_FILE_SPIN: Metric = Metric {
    name: "CPU, spin client",
    unit: "us/file",
    better: Better::Low,
};
pub(crate) const CPU_PER_FILE: Metric = Metric {
    name: "CPU",
    unit: "us/file",
    better: Better::Low,
};
pub(super) const GROWTH: Metric = Metric {
    name: "peak RSS growth",
    unit: "MiB",
    better: Better::Low,
};

pub(super) const GIB: f64 = (1u64 << 30) as f64;
/// What the server still does after its last byte is counted too.
const AFTERMATH: Duration = Duration::from_millis(5);

/// What one stretch of work cost.
pub(super) struct Reading {
    /// CPU time of the server process, in seconds.
    pub(super) cpu_s: f64,
    /// From the first byte of the request to the last of the answer, in seconds.
    pub(super) wall_s: f64,
    /// How far the resident set rose above its size before, in MiB.
    pub(super) grown_mib: f64,
}

impl Reading {
    pub(super) fn cpu_per_gib(&self, bytes: u64) -> f64 {
        self.cpu_s * GIB / bytes as f64
    }

    pub(super) fn gib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / GIB / self.wall_s
    }
}

pub(super) fn measure<T>(
    server: &Server,
    work: impl FnOnce() -> Result<T>,
) -> Result<(Reading, T)> {
    forget_peak(server.pid())?;
    let rss_before = resident(server.pid())?.total;
    let cpu_before = cpu::used_s(server.pid())?;
    let start = Instant::now();
    let outcome = work()?;
    let wall_s = start.elapsed().as_secs_f64();
    std::thread::sleep(AFTERMATH);
    let cpu_s = cpu::used_s(server.pid())? - cpu_before;
    let grown_mib = (resident(server.pid())?.peak - rss_before).max(0.0);
    Ok((
        Reading {
            cpu_s,
            wall_s,
            grown_mib,
        },
        outcome,
    ))
}

/// Runs a program on the server's CPU to its end; what it writes to a pipe is read and dropped.
pub(super) fn run_program(lab: &Lab, command: Command, out: Stdio) -> Result<Reading> {
    let name = command.get_program().to_owned();
    let start = Instant::now();
    let log = lab.dir().join("program.log");
    let mut child = launch_to(command, Placement::ServerCpu, out, &log)?;
    if let Some(mut pipe) = child.stdout.take() {
        std::io::copy(&mut pipe, &mut std::io::sink())?;
    }
    let pid = Pid::from_child(&child);
    // Left unreaped for a moment: its CPU clock can still be read.
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let wall_s = start.elapsed().as_secs_f64();
    let cpu_s = cpu::used_s(pid)?;
    let status = child.wait()?;
    ensure!(status.success(), "{} failed: {status}", name.display());
    Ok(Reading {
        cpu_s,
        wall_s,
        grown_mib: 0.0,
    })
}

/// Downloads and drops a body over a connection of its own. Also returns the body's length.
pub(super) fn download(server: &Server, target: &str, manner: Manner) -> Result<(Reading, u64)> {
    let mut client = server.client(manner)?;
    measure(server, || {
        client.send_head("GET", target, 0)?;
        let reply = client.reply()?;
        if reply.status != 200 {
            bail!("GET answered {}", reply.status);
        }
        client.drop_body(reply)?;
        Ok(reply.length)
    })
}

/// Downloads a body and shows it to `sink`. Not measured.
pub(super) fn fetch(server: &Server, target: &str, sink: impl FnMut(&[u8])) -> Result<u64> {
    let mut client = server.client(Manner::Sleep)?;
    client.send_head("GET", target, 0)?;
    let reply = client.reply()?;
    if reply.status != 200 {
        bail!("GET answered {}", reply.status);
    }
    client.body(reply, sink)?;
    Ok(reply.length)
}

/// Uploads `length` bytes made of `buffer`, repeated, over a connection of its own.
pub(super) fn upload(
    server: &Server,
    target: &str,
    buffer: &[u8],
    length: u64,
    manner: Manner,
) -> Result<Reading> {
    let mut client = server.client(manner)?;
    let (reading, ()) = measure(server, || {
        client.send_head("PUT", target, length)?;
        client.send_repeated(buffer, length)?;
        let reply = client.reply()?;
        if reply.status != 204 {
            bail!("PUT answered {}", reply.status);
        }
        Ok(())
    })?;
    Ok(reading)
}
