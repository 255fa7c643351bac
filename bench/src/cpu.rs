//! Which CPU a thread may run on, and how much CPU time a process has used.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Every target server runs here, helper threads and children included.
pub(crate) const SERVER_CPU: usize = 0;
/// The harness and its clients run here.
pub(crate) const LOAD_CPU: usize = 1;

/// Pins the calling thread. Threads and processes that it starts later inherit the pin.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on cpu {cpu}"))
}

/// Whether the calling thread may run on both CPUs that a run needs.
pub(crate) fn are_two() -> Result<bool> {
    let set = sched_getaffinity(None).context("cannot tell which cpus there are")?;
    Ok([SERVER_CPU, LOAD_CPU].iter().all(|cpu| set.is_set(*cpu)))
}

/// Lets the calling thread run on the first `count` CPUs. Inherited like a pin.
pub(crate) fn float(count: usize) -> Result<()> {
    let mut set = CpuSet::new();
    (0..count).for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on {count} cpus"))
}

/// CPU time of a whole process in seconds: user and system, ended threads included, children not.
///
/// It is what utime and stime of `/proc/PID/stat` add up to, in nanoseconds instead of ticks of 10 ms.
/// It still answers for a process that has exited and is not yet reaped.
#[expect(
    unsafe_code,
    reason = "the clock of another process has no safe wrapper"
)]
pub(crate) fn used_s(pid: Pid) -> Result<f64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live local that the call fills; the caller is this function alone.
    let error = unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &raw mut clock) };
    if error != 0 {
        bail!(
            "process {pid:?} has no cpu clock: {}",
            std::io::Error::from_raw_os_error(error)
        );
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `clock` came from clock_getcpuclockid just above and `time` is a live local.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot read a process's cpu clock");
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// CPU time of this process in seconds, all its threads.
pub(crate) fn own_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Time that the host took from all our CPUs since boot, in milliseconds (`steal` of `/proc/stat`).
pub(crate) fn stolen_ms() -> f64 {
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    ticks().get(STEAL).copied().unwrap_or(0.0) * 1000.0 / per_second
}

/// How busy the machine is right now, in percent of all its CPUs. Looks for one second.
pub(crate) fn busy_percent() -> f64 {
    let before = ticks();
    std::thread::sleep(LOOK);
    let after = ticks();
    let passed: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before)
        .collect();
    let all: f64 = passed.iter().take(STEAL + 1).sum();
    let idle: f64 = IDLE.iter().filter_map(|column| passed.get(*column)).sum();
    if all > 0.0 {
        100.0 * (all - idle) / all
    } else {
        0.0
    }
}

/// The columns of the first line of `/proc/stat`, in clock ticks since boot (proc_stat(5)).
fn ticks() -> Vec<f64> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    first
        .split_whitespace()
        .skip(1)
        .filter_map(|column| column.parse().ok())
        .collect()
}

const LOOK: Duration = Duration::from_secs(1);
/// The columns `idle` and `iowait`.
const IDLE: [usize; 2] = [3, 4];
const STEAL: usize = 7;
