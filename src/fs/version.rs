//! What tells one version of a file from another, as far as the kernel can tell.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, Statx, StatxTimestamp};

/// A version of a file: it changes with every write, every change of mode or owner, and every replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    /// The version that has this status.
    pub fn of(stat: &Stat) -> Self {
        let time = |seconds, nanoseconds| (seconds, i64::try_from(nanoseconds).unwrap_or(0));
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The version that has this status, asked for with another call (statx(2)).
    pub fn of_statx(found: &Statx) -> Self {
        let time = |at: StatxTimestamp| (at.tv_sec, i64::from(at.tv_nsec));
        Self {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: found.stx_size,
            modified: time(found.stx_mtime),
            changed: time(found.stx_ctime),
        }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A strong validator, quotes included.
    pub fn etag(&self) -> String {
        let Self {
            inode,
            size,
            modified: (modified, modified_ns),
            changed: (changed, changed_ns),
            ..
        } = self;
        format!("\"{inode:x}-{size:x}-{modified:x}.{modified_ns:x}-{changed:x}.{changed_ns:x}\"")
    }

    /// The time of last modification, seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.modified.0
    }

    /// True when the modification time alone names this version at the time `now`, in seconds since 1970: whoever saw
    /// another content saw it with another second, and nobody has set the time by hand.
    pub fn is_dated(&self, now: i64) -> bool {
        self.modified.0 == self.changed.0 && self.has_rested(now)
    }

    /// True when another change at the time `now` could leave the times as they are: they move on with the kernel's
    /// clock, which stands still for so long. After [`TICK`] every change shows.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
        let (seconds, nanoseconds) = self.changed;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        (now - changed).unsigned_abs() < TICK.as_nanos()
    }

    /// True when the file had rested at the time `now`, so that a later change shows in its times, however coarse.
    pub fn has_rested(&self, now: i64) -> bool {
        self.modified.0.max(self.changed.0).saturating_add(GRAIN) < now
    }
}

/// Longer than the kernel's clock for file times stands still.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Times may be kept in steps of so many seconds.
const GRAIN: i64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(modified: i64, changed: i64) -> Version {
        Version {
            device: 1,
            inode: 0xab,
            size: 0x10,
            modified: (modified, 7),
            changed: (changed, 8),
        }
    }

    #[test]
    fn a_validator_has_all_that_changes() {
        assert_eq!(version(0x20, 0x30).etag(), "\"ab-10-20.7-30.8\"");
    }

    #[test]
    fn a_version_is_fresh_until_the_clock_has_surely_moved_on() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let some = version(1, 100);
        for (millis, expected) in [
            (99_979, false),
            (99_990, true),
            (100_000, true),
            (100_019, true),
            (100_021, false),
            (1_000_000, false),
        ] {
            assert_eq!(some.is_fresh(at(millis)), expected, "{millis}");
        }
        assert!(!version(1, i64::MAX).is_fresh(at(0)));
        assert!(!version(1, i64::MIN).is_fresh(at(1)));
    }

    #[test]
    fn a_date_names_a_version_that_rested_and_was_not_dated_by_hand() {
        assert!(version(100, 100).is_dated(103));
        assert!(!version(100, 100).is_dated(102));
        assert!(!version(100, 100).is_dated(50));
        assert!(!version(99, 100).is_dated(1000));
        assert!(!version(i64::MAX, i64::MAX).is_dated(1000));
    }
}
