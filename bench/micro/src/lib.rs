//! The pure parts of ringd as rounds of work that can be timed, or counted in instructions.
//!
//! A round does the same work each time and checks that it was done: neither figure is of use for a round that failed.

mod archive;
mod body;
mod fields;
mod head;
mod output;
pub mod setting;
mod tunnel;

/// One part of ringd at work.
pub struct Bench {
    /// Part and case, as `head/typical`.
    pub name: &'static str,
    /// Bytes that go in or come out in a round, whichever are more; 0 where they are not the point.
    pub bytes: usize,
    /// Makes what the rounds need, and the round; it answers a number that depends on its work.
    pub prepare: fn() -> Round,
}

/// A round of work, to be called over and over.
pub type Round = Box<dyn FnMut() -> usize>;

/// Everything that is measured, by part.
pub static ALL: &[&[Bench]] = &[
    archive::BENCHES,
    body::BENCHES,
    fields::BENCHES,
    head::BENCHES,
    output::BENCHES,
    tunnel::BENCHES,
];

/// Every bench.
pub fn benches() -> impl Iterator<Item = &'static Bench> {
    ALL.iter().copied().flatten()
}

impl std::fmt::Display for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// `length` bytes that look like no pattern, the same ones each time (a linear congruence, as in the C standard).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let byte = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        state.to_be_bytes()[1]
    });
    byte.take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_does_the_same_work_again() {
        for bench in benches() {
            let mut round = (bench.prepare)();
            let first = round();
            assert!(first > 0, "{bench} did nothing");
            assert_eq!(round(), first, "{bench}");
        }
    }

    #[test]
    fn no_two_have_one_name() {
        let mut names: Vec<_> = benches().map(|bench| bench.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
