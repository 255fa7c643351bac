//! Who takes part, in the order and with the colours that all charts share.

use anyhow::{Result, ensure};

use crate::results::{Better, Results, ScenarioResults};

/// All targets of a run; the one that the others are compared with comes first.
pub(crate) struct Cast<'a> {
    names: Vec<&'a str>,
}

impl<'a> Cast<'a> {
    /// Ours is the target of that name, else ringd, else the first.
    pub(crate) fn of(results: &'a Results, ours: Option<&str>) -> Result<Self> {
        let mut names: Vec<&str> = Vec::new();
        let listed = results.targets.iter().map(|target| target.name.as_str());
        let measured = results.scenarios.iter().flat_map(|scenario| {
            let series = scenario.series.iter().map(|series| series.target.as_str());
            let latencies = scenario.latencies.iter();
            let timelines = scenario.timelines.iter();
            series
                .chain(latencies.map(|latency| latency.target.as_str()))
                .chain(timelines.map(|timeline| timeline.target.as_str()))
        });
        for name in listed.chain(measured) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        ensure!(!names.is_empty(), "the results name no target");
        let wanted = ours.unwrap_or(USUAL);
        let first = names.iter().position(|name| *name == wanted);
        ensure!(
            ours.is_none() || first.is_some(),
            "no target is called {wanted:?}; the results have {}",
            names.join(", ")
        );
        names[..=first.unwrap_or(0)].rotate_right(1);
        Ok(Self { names })
    }

    pub(crate) fn ours(&self) -> &'a str {
        self.names[0]
    }

    pub(crate) fn peers(&self) -> &[&'a str] {
        &self.names[1..]
    }

    pub(crate) fn names(&self) -> &[&'a str] {
        &self.names
    }

    /// The place among all targets, which decides colour and shape.
    pub(crate) fn rank(&self, name: &str) -> usize {
        let found = self.names.iter().position(|other| *other == name);
        found.unwrap_or(self.names.len())
    }

    /// Median of the pairwise ratios ours / peer; nothing where one of them is nothing.
    pub(crate) fn ratio(
        &self,
        scenario: &ScenarioResults,
        peer: &str,
        metric: &str,
    ) -> Option<f64> {
        let is_positive = |target: &str| {
            let series = scenario.find(target, metric);
            series.is_some_and(|series| series.values.iter().all(|value| *value > 0.0))
        };
        if peer == self.ours() || !is_positive(self.ours()) || !is_positive(peer) {
            return None;
        }
        let ratio = scenario.ratio(self.ours(), peer, metric)?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }
}

/// Who did better, and by which factor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Standing {
    Ours(f64),
    Peer(f64),
    Equal,
}

impl Standing {
    pub(crate) fn of(ratio: f64, better: Better) -> Self {
        let gain = match better {
            Better::Low => 1.0 / ratio,
            Better::High => ratio,
        };
        if gain >= EQUAL_UP_TO {
            Self::Ours(gain)
        } else if gain <= 1.0 / EQUAL_UP_TO {
            Self::Peer(1.0 / gain)
        } else {
            Self::Equal
        }
    }
}

/// Ratios nearer to one than this are called equal.
pub(crate) const EQUAL_UP_TO: f64 = 1.05;

/// The target that is ours when nobody says otherwise.
const USUAL: &str = "ringd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_decides_who_is_better() {
        assert_eq!(Standing::of(0.5, Better::Low), Standing::Ours(2.0));
        assert_eq!(Standing::of(0.5, Better::High), Standing::Peer(2.0));
        assert_eq!(Standing::of(1.04, Better::High), Standing::Equal);
        assert_eq!(Standing::of(1.04, Better::Low), Standing::Equal);
    }
}
