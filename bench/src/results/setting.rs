//! Where and how a run was made.

use serde::{Deserialize, Serialize};

use super::without_tokens;
use crate::cpu;

/// The machine and the choices of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// `YYYY-MM-DD`, in UTC.
    pub(crate) date: String,
    pub(crate) ringbench: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cpus: usize,
    /// The filesystem of the work directory, as `/proc/mounts` calls its type.
    pub(crate) filesystem: String,
    /// The words after `ringbench`, without tokens.
    pub(crate) arguments: Vec<String>,
    /// The fewest of any scenario.
    pub(crate) rounds: usize,
    /// How busy the machine was before the first scenario, in percent of all its CPUs.
    pub(crate) busy_before_percent: f64,
    /// Time that the host took from this machine during the run, in milliseconds.
    pub(crate) stolen_ms: f64,
}

impl Setting {
    /// This machine, now; looks at how busy it is for one second.
    pub(crate) fn of_this_machine(rounds: usize, work_dir: &std::path::Path) -> Self {
        let kernel = rustix::system::uname();
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self {
            date: civil_date(seconds / 86_400),
            ringbench: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.release().to_string_lossy().into_owned(),
            processor: model
                .map_or(std::env::consts::ARCH, |(_, name)| name.trim())
                .to_owned(),
            cpus: info
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            filesystem: filesystem(work_dir),
            arguments: without_tokens(&std::env::args().skip(1).collect::<Vec<_>>()),
            rounds,
            busy_before_percent: cpu::busy_percent(),
            stolen_ms: 0.0,
        }
    }
}

/// The type of the mount with the longest path that is above `dir`.
fn filesystem(dir: &std::path::Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut columns = line.split(' ').skip(1);
            Some((columns.next()?, columns.next()?))
        })
        .filter(|(mount, _)| dir.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map_or_else(String::new, |(_, kind)| kind.to_owned())
}

/// The Gregorian date, `YYYY-MM-DD`, of a count of days since 1970-01-01.
fn civil_date(mut days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(11_016), "2000-02-29");
        assert_eq!(civil_date(20_453), "2025-12-31");
        assert_eq!(civil_date(20_454), "2026-01-01");
    }
}
