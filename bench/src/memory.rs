//! What a process holds in memory: its resident set, the peak of it, and a watch over a stretch of work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Pid;

const KIB: f64 = 1024.0;
const SAMPLE_EVERY: Duration = Duration::from_millis(2);

/// One reading of `/proc/PID/status`, in MiB.
#[derive(Clone, Copy)]
pub(crate) struct Resident {
    /// VmRSS: anonymous, file and shared pages.
    pub(crate) total: f64,
    /// VmHWM: the highest VmRSS since the last `forget_peak`.
    pub(crate) peak: f64,
    /// RssAnon: pages that no file backs.
    pub(crate) anonymous: f64,
}

pub(crate) fn resident(pid: Pid) -> Result<Resident> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mib = |key: &str| -> Result<f64> {
        let line = status.lines().find(|line| line.starts_with(key));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{path} has no {key}"))? / KIB)
    };
    Ok(Resident {
        total: mib("VmRSS:")?,
        peak: mib("VmHWM:")?,
        anonymous: mib("RssAnon:")?,
    })
}

/// Sets VmHWM back to the present VmRSS (proc(5), `clear_refs`).
pub(crate) fn forget_peak(pid: Pid) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", pid.as_raw_nonzero());
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Bytes that a process caused to be read from the disk, when the kernel keeps that account.
pub(crate) fn disk_read_bytes(pid: Pid) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())).ok()?;
    io.lines()
        .find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}

/// Watches one process from `start` to `stop`.
///
/// The kernel keeps the peak of the resident set. It keeps neither that of the anonymous part nor the course of
/// either, so a thread looks at them.
pub(crate) struct Watch {
    start: Instant,
    ended: Arc<AtomicBool>,
    sampler: JoinHandle<Vec<(f64, Resident)>>,
}

impl Watch {
    pub(crate) fn start(pid: Pid) -> Result<Self> {
        let start = Instant::now();
        let first = (0.0, resident(pid)?);
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let sampler = std::thread::spawn(move || {
            let mut looks = vec![first];
            loop {
                let is_last = stop.load(Ordering::Relaxed);
                let Ok(now) = resident(pid) else { break };
                looks.push((start.elapsed().as_secs_f64(), now));
                if is_last {
                    break;
                }
                std::thread::sleep(SAMPLE_EVERY);
            }
            looks
        });
        Ok(Self {
            start,
            ended,
            sampler,
        })
    }

    /// Seconds since the start.
    pub(crate) fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Ends with a last look.
    pub(crate) fn stop(self) -> Result<Course> {
        self.ended.store(true, Ordering::Relaxed);
        let looks = self.sampler.join();
        let looks = looks.ok().context("the memory sampler failed")?;
        Ok(Course { looks })
    }
}

/// What was seen of a process: seconds since the start, and what it held.
pub(crate) struct Course {
    looks: Vec<(f64, Resident)>,
}

impl Course {
    /// How far the anonymous part rose between two moments, in MiB, above what it was at the first.
    pub(crate) fn anonymous_growth(&self, from_s: f64, to_s: f64) -> f64 {
        let before = self.looks.iter().rev().find(|(at_s, _)| *at_s <= from_s);
        let Some((_, before)) = before else {
            return 0.0;
        };
        let within = self.looks.iter();
        let within = within.filter(|(at_s, _)| (from_s..=to_s).contains(at_s));
        within
            .map(|(_, look)| look.anonymous - before.anonymous)
            .fold(0.0, f64::max)
    }

    /// The resident set over time as at most `most` points; of looks that fall together the highest stays.
    pub(crate) fn points(&self, most: usize) -> Vec<(f64, f64)> {
        let together = self.looks.len().div_ceil(most.max(1)).max(1);
        self.looks
            .chunks(together)
            .filter_map(|looks| {
                let points = looks.iter().map(|(at_s, look)| (*at_s, look.total));
                points.max_by(|one, other| one.1.total_cmp(&other.1))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn course(looks: &[(f64, f64)]) -> Course {
        let look = |&(at_s, mib): &(f64, f64)| {
            let held = Resident {
                total: mib,
                peak: mib,
                anonymous: mib / 2.0,
            };
            (at_s, held)
        };
        Course {
            looks: looks.iter().map(look).collect(),
        }
    }

    #[test]
    fn growth_is_that_between_two_moments_only() {
        let course = course(&[(0.0, 4.0), (1.0, 8.0), (2.0, 6.0), (3.0, 20.0)]);
        assert_eq!(course.anonymous_growth(0.0, 2.5), 2.0);
        assert_eq!(course.anonymous_growth(2.0, 3.0), 7.0);
        // It fell, and nothing was seen afterwards.
        assert_eq!(course.anonymous_growth(1.0, 2.0), 0.0);
        assert_eq!(course.anonymous_growth(3.5, 4.0), 0.0);
    }

    #[test]
    fn points_are_few_and_keep_the_peak() {
        let looks: Vec<(f64, f64)> = (0..1000)
            .map(|index| (f64::from(index), f64::from(u8::from(index == 777))))
            .collect();
        let points = course(&looks).points(10);
        assert_eq!(points.len(), 10);
        assert!(points.contains(&(777.0, 1.0)));
        assert_eq!(course(&looks[..3]).points(10).len(), 3);
    }

    /// tail(1) keeps what it is given until it knows that it was the end.
    #[test]
    fn memory_that_a_process_takes_is_seen() {
        let mut tail = Command::new("tail")
            .args(["-c", "64M"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("tail is installed");
        let watch = Watch::start(Pid::from_child(&tail)).expect("it is there");
        let from_s = watch.now_s();
        let mut input = tail.stdin.take().expect("it was asked for");
        input.write_all(&vec![1; 32 << 20]).expect("it reads");
        let course = watch.stop().expect("the sampler ends");
        drop(input);
        assert!(tail.wait().expect("it ends").success());
        let grown_mib = course.anonymous_growth(from_s, f64::INFINITY);
        assert!((28.0..64.0).contains(&grown_mib), "{grown_mib} MiB");
    }
}
