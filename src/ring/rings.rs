//! How many operations have passed the rings of this thread.
//!
//! The runtime does not lend its ring, but the kernel tells of it in `/proc/self/fdinfo` (io_uring(7), kernel 5.17 on): its
//! counters have 32 bits, so looks at them are added up. The second ring counts for itself.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use super::{batch, driver};

/// What has passed one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// `main` is the runtime's, `files` the second one.
    pub ring: &'static str,
    /// Operations that the kernel has taken.
    pub submissions: u64,
    /// Operations that it has completed.
    pub completions: u64,
}

/// What has passed each ring of this thread, as far as it is known; nothing under epoll.
pub fn operations() -> Vec<Operations> {
    if !driver::has_uring() {
        return Vec::new();
    }
    let mut all = Vec::from_iter(of_main());
    let (submissions, completions) = batch::passed();
    all.push(Operations {
        ring: "files",
        submissions,
        completions,
    });
    all
}

/// Finds the ring of the runtime; to be called while it is the only one.
pub(super) fn find_main() {
    if driver::has_uring() {
        MAIN.set(only_ring());
    }
}

thread_local! {
    static MAIN: Cell<Option<u32>> = const { Cell::new(None) };
    static SEEN: Cell<Seen> = const { Cell::new(Seen { last: (0, 0), total: (0, 0) }) };
}

fn of_main() -> Option<Operations> {
    let number = MAIN.get()?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let mut seen = SEEN.get();
    seen.look(counters(&text)?);
    SEEN.set(seen);
    let (submissions, completions) = seen.total;
    Some(Operations {
        ring: "main",
        submissions,
        completions,
    })
}

/// The number of the one descriptor that is a ring.
fn only_ring() -> Option<u32> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    let rings = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_ring = fs::read_link(&path).is_ok_and(|link| link == Path::new(LINK));
        is_ring.then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    let rings: Vec<u32> = rings.collect();
    match rings.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// How many entries the kernel has taken from the submission queue, and has put into the completion queue.
fn counters(text: &str) -> Option<(u32, u32)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some((value("SqHead:")?, value("CqTail:")?))
}

/// Counters that wrap, added up from look to look.
#[derive(Clone, Copy)]
struct Seen {
    last: (u32, u32),
    total: (u64, u64),
}

impl Seen {
    fn look(&mut self, now: (u32, u32)) {
        let more = |now: u32, last: u32| u64::from(now.wrapping_sub(last));
        self.total.0 += more(now.0, self.last.0);
        self.total.1 += more(now.1, self.last.1);
        self.last = now;
    }
}

const LINK: &str = "anon_inode:[io_uring]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_among_the_rest() {
        let text = "pos:\t0\nflags:\t02000002\nSqMask:\t0x7ff\nSqHead:\t12\nSqTail:\t13\nCachedSqHead:\t14\n\
                    CqMask:\t0xfff\nCqHead:\t7\nCqTail:\t8\nCachedCqTail:\t9\nSQEs:\t0\n";
        assert_eq!(counters(text), Some((12, 8)));
        assert_eq!(counters("pos:\t0\nUserFiles:\t0\n"), None);
    }

    #[test]
    fn what_has_wrapped_goes_on() {
        let mut seen = Seen {
            last: (0, 0),
            total: (0, 0),
        };
        seen.look((u32::MAX, 5));
        seen.look((9, 5));
        assert_eq!(seen.total, (u64::from(u32::MAX) + 10, 5));
    }

    #[test]
    fn the_ring_of_the_runtime_is_counted() {
        let asked = crate::ring::start(crate::ring::Choice::Auto, async {
            if driver::has_uring() && MAIN.get().is_some() {
                let before = of_main();
                crate::ring::turn().await;
                let after = of_main();
                let moved = before.zip(after).map(|(before, after)| {
                    after.submissions > before.submissions && after.completions > before.completions
                });
                assert_ne!(moved, Some(false), "{before:?} {after:?}");
            }
            0
        });
        assert_eq!(asked.expect("a driver is everywhere"), 0);
    }
}
