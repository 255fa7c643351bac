//! Holds two runs, or two targets of one run, against each other, and says what became worse.

mod bootstrap;
mod estimate;
mod junit;
mod markdown;
mod pairing;
mod ranks;
#[cfg(test)]
mod simulated;
mod student;
mod table;
mod verdict;
mod wording;

use anyhow::{Result, ensure};

use crate::results::{Results, Series};
use pairing::{Lack, Pairing, Targets, Unpaired};
use verdict::{Judge, Judgement, Verdict};

pub(crate) use bootstrap::RESAMPLES;
pub(crate) use estimate::Form;

/// What a comparison is to find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A change up to this share is borne.
    pub(crate) margin: f64,
    /// Of all verdicts of the gate together.
    pub(crate) confidence: f64,
    /// Whether every figure can fail, not just main ones.
    pub(crate) gate_all: bool,
    pub(crate) resamples: usize,
}

/// Results and what the reader calls them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) results: &'a Results,
}

/// One figure on both sides.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    scenario: String,
    target: String,
    metric: String,
    unit: String,
    is_main: bool,
    /// Whether it fails when it is worse.
    is_gated: bool,
    /// The median of the rounds.
    base: f64,
    new: f64,
    judgement: Judgement,
}

impl Row {
    fn verdict(&self) -> Verdict {
        self.judgement.verdict
    }

    fn fails(&self) -> bool {
        self.is_gated && self.verdict() == Verdict::Worse
    }
}

/// All figures of both sides, judged.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    form: Form,
    rules: Rules,
    /// What each side is, in words.
    base: String,
    new: String,
    /// Figures that can fail, among which the doubt is shared.
    gated: usize,
    rows: Vec<Row>,
    unpaired: Vec<Unpaired>,
    warnings: Vec<String>,
}

impl Comparison {
    /// Two files: each target with its namesake, or the two that are named.
    pub(crate) fn of_files(
        base: Source,
        new: Source,
        named: Option<(&str, &str)>,
        rules: Rules,
    ) -> Result<Self> {
        let mut warnings = incomplete(&base).into_iter().collect::<Vec<_>>();
        warnings.extend(incomplete(&new));
        warnings.extend(differences(&base, &new));
        let targets = if let Some((one, other)) = named {
            vec![find_targets(&base, one, &new, other)?]
        } else {
            let (targets, alone) = namesakes(&base, &new)?;
            warnings.extend(alone);
            targets
        };
        ensure!(
            base.results
                .scenarios
                .iter()
                .any(|scenario| new.results.scenario(&scenario.name).is_some()),
            "{} and {} have no scenario in common: {}; {}",
            base.name,
            new.name,
            scenarios(base.results),
            scenarios(new.results)
        );
        let mut comparison = Self::judge(Form::Independent, &base, &new, &targets, rules)?;
        comparison.base = described(&base);
        comparison.new = described(&new);
        comparison.warnings = warnings;
        Ok(comparison)
    }

    /// Two targets that took turns in one run.
    pub(crate) fn of_targets(source: Source, named: (&str, &str), rules: Rules) -> Result<Self> {
        let (base, new) = named;
        ensure!(
            base != new,
            "--targets names {base:?} twice, and there is one file only"
        );
        let targets = find_targets(&source, base, &source, new)?;
        let mut comparison = Self::judge(Form::Paired, &source, &source, &[targets], rules)?;
        comparison.base = format!("{base} in {}", described(&source));
        comparison.new = format!("{new} in the same run");
        comparison.warnings = incomplete(&source).into_iter().collect();
        Ok(comparison)
    }

    /// Whether something that the gate looks at became worse, failed or is gone.
    pub(crate) fn fails(&self) -> bool {
        self.rows.iter().any(Row::fails) || self.unpaired.iter().any(|unpaired| unpaired.fails)
    }

    /// For a terminal or a log.
    pub(crate) fn table(&self) -> String {
        table::render(self)
    }

    /// For a pull request.
    pub(crate) fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// For whatever shows test results.
    pub(crate) fn junit(&self) -> String {
        junit::render(self)
    }

    fn judge(
        form: Form,
        base: &Source,
        new: &Source,
        targets: &[Targets],
        rules: Rules,
    ) -> Result<Self> {
        let pairing = Pairing::of(base.results, new.results, targets, rules.gate_all);
        let is_gated = |series: &Series| rules.gate_all || series.is_main;
        let gated = pairing
            .pairs
            .iter()
            .filter(|pair| is_gated(pair.new))
            .count();
        ensure!(
            !pairing.pairs.is_empty() || pairing.unpaired.iter().any(|one| one.fails),
            "{} and {} have no figure in common",
            base.name,
            new.name
        );
        ensure!(
            gated > 0 || pairing.unpaired.iter().any(|one| one.fails),
            "{} and {} have no main figure in common, so nothing would be judged; --all judges every figure",
            base.name,
            new.name
        );
        let rows = pairing.pairs.iter().map(|pair| {
            let is_gated = is_gated(pair.new);
            let judge = Judge {
                form,
                margin: rules.margin,
                confidence: if is_gated {
                    shared_confidence(rules.confidence, gated)
                } else {
                    rules.confidence
                },
                resamples: rules.resamples,
            };
            Row {
                scenario: pair.scenario.to_owned(),
                target: pair.target.clone(),
                metric: pair.new.metric.clone(),
                unit: pair.new.unit.clone(),
                is_main: pair.new.is_main,
                is_gated,
                base: pair.base.median(),
                new: pair.new.median(),
                judgement: judge.judge(pair.base, pair.new),
            }
        });
        Ok(Self {
            form,
            rules,
            base: String::new(),
            new: String::new(),
            gated,
            rows: rows.collect(),
            unpaired: pairing.unpaired,
            warnings: Vec::new(),
        })
    }

    /// Of each figure that the gate looks at.
    fn gate_confidence(&self) -> f64 {
        shared_confidence(self.rules.confidence, self.gated)
    }
}

/// Bonferroni: the doubt that is left is divided among all.
fn shared_confidence(confidence: f64, gated: usize) -> f64 {
    1.0 - (1.0 - confidence) / gated.max(1) as f64
}

fn find_targets(base: &Source, base_name: &str, new: &Source, new_name: &str) -> Result<Targets> {
    for (source, name) in [(base, base_name), (new, new_name)] {
        let there = targets(source.results);
        ensure!(
            there.contains(&name),
            "{} has no target {name:?}; it has {}",
            source.name,
            listed(&there)
        );
    }
    Ok(Targets {
        base: base_name.to_owned(),
        new: new_name.to_owned(),
    })
}

/// Targets of the same name, and a word about each that has no namesake.
fn namesakes(base: &Source, new: &Source) -> Result<(Vec<Targets>, Vec<String>)> {
    let (before, after) = (targets(base.results), targets(new.results));
    let (both, gone): (Vec<&str>, Vec<&str>) =
        before.iter().partition(|name| after.contains(*name));
    ensure!(
        !both.is_empty(),
        "{} and {} have no target in common: {}; {}. --targets BASE,NEW compares two of different names",
        base.name,
        new.name,
        listed(&before),
        listed(&after)
    );
    let added = after.iter().filter(|name| !before.contains(*name));
    let alone = gone
        .iter()
        .map(|name| (name, base.name))
        .chain(added.map(|name| (name, new.name)))
        .map(|(name, file)| format!("the target {name} is in {file} only and is not compared"))
        .collect();
    let paired = both.iter().map(|name| Targets {
        base: (*name).to_owned(),
        new: (*name).to_owned(),
    });
    Ok((paired.collect(), alone))
}

fn targets(results: &Results) -> Vec<&str> {
    results
        .targets
        .iter()
        .map(|target| target.name.as_str())
        .collect()
}

fn scenarios(results: &Results) -> String {
    let names: Vec<&str> = results
        .scenarios
        .iter()
        .map(|scenario| scenario.name.as_str())
        .collect();
    listed(&names)
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn described(source: &Source) -> String {
    let setting = &source.results.setting;
    format!(
        "{} of {}, {} rounds",
        source.name, setting.date, setting.rounds
    )
}

fn incomplete(source: &Source) -> Option<String> {
    let is_partial = !source.results.complete;
    is_partial.then(|| {
        format!(
            "{} is of a run that was broken off; what is there is compared",
            source.name
        )
    })
}

/// What differs between the machines of two runs, so that the targets need not be what changed.
fn differences(base: &Source, new: &Source) -> Vec<String> {
    let (before, after) = (&base.results.setting, &new.results.setting);
    let cpus = (before.cpus.to_string(), after.cpus.to_string());
    [
        ("processor", &before.processor, &after.processor),
        ("number of CPUs", &cpus.0, &cpus.1),
        ("kernel", &before.kernel, &after.kernel),
        ("filesystem", &before.filesystem, &after.filesystem),
        ("ringbench", &before.ringbench, &after.ringbench),
    ]
    .into_iter()
    .filter(|(_, before, after)| before != after)
    .map(|(what, before, after)| format!("the {what} differs: {before} in BASE, {after} in NEW"))
    .collect()
}
