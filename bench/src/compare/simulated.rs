//! Runs that never were: noise of a known size, with and without a planted change, to see what is said of them.

use super::bootstrap::SplitMix;
use super::estimate::{Estimate, Form};
use super::{Comparison, Row, Rules, Source, Verdict};
use crate::results::{FORMAT, Metric, Results, ScenarioResults, Series, Setting, TargetInfo};

/// Enough to place the ends of intervals, and quick without optimisation.
const RESAMPLES: usize = 200;

/// How the rounds of a simulated machine scatter.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// A bell of the logarithms with this spread.
    Bell(f64),
    /// The same, but one round in ten is slower by five spreads.
    Hit(f64),
    /// Fast or slow by turns of a coin, with a spread of a tenth of the step.
    TwoModes(f64),
}

struct Machine(SplitMix);

impl Machine {
    fn of(seed: u64) -> Self {
        Self(SplitMix::from_seed(seed))
    }

    fn uniform(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The sum of twelve is a bell but for its farthest ends.
    fn bell(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// How much longer a round takes than it should.
    fn factor(&mut self, noise: Noise) -> f64 {
        let log = match noise {
            Noise::Bell(spread) => spread * self.bell(),
            Noise::Hit(spread) => {
                let hit = if self.uniform() < 0.1 { 5.0 } else { 0.0 };
                spread * (self.bell() + hit)
            }
            Noise::TwoModes(step) => {
                let mode = if self.uniform() < 0.5 { step } else { 0.0 };
                mode + step / 10.0 * self.bell()
            }
        };
        log.exp()
    }

    fn rounds(&mut self, count: usize, level: f64, noise: Noise) -> Vec<f64> {
        (0..count).map(|_| level * self.factor(noise)).collect()
    }

    /// One figure of both sides, which is `change` times as high on the second.
    fn figure(&mut self, metric: Metric, rounds: usize, change: f64, noise: Noise) -> [Series; 2] {
        let mut base = Series::new("old", metric);
        let mut new = Series::new("new", metric);
        base.values = self.rounds(rounds, 4.2, noise);
        new.values = self.rounds(rounds, 4.2 * change, noise);
        [base, new]
    }
}

const CPU: Metric = Metric::low("cpu", "s/GiB").main();
const RATE: Metric = Metric::high("rate", "MiB/s").main();

/// A run with one scenario for each pair of series.
fn run(figures: Vec<[Series; 2]>) -> Results {
    let setting = Setting {
        date: "2026-01-01".to_owned(),
        ringbench: "0.1.0".to_owned(),
        kernel: "6.1".to_owned(),
        processor: "simulated".to_owned(),
        cpus: 2,
        filesystem: "ext4".to_owned(),
        arguments: Vec::new(),
        rounds: figures[0][0].values.len(),
        busy_before_percent: 0.0,
        stolen_ms: 0.0,
    };
    let target = |name: &str| TargetInfo {
        name: name.to_owned(),
        command: None,
        version: None,
        binary_bytes: None,
    };
    let scenarios = figures.into_iter().enumerate();
    Results {
        format: FORMAT.to_owned(),
        complete: true,
        setting,
        targets: vec![target("old"), target("new")],
        scenarios: scenarios
            .map(|(number, series)| ScenarioResults {
                name: format!("scenario-{number}"),
                title: String::new(),
                notes: Vec::new(),
                skipped: Vec::new(),
                failure: None,
                series: series.to_vec(),
                latencies: Vec::new(),
                timelines: Vec::new(),
            })
            .collect(),
    }
}

fn compare(form: Form, results: &Results) -> Comparison {
    let rules = Rules {
        margin: 0.05,
        confidence: 0.95,
        gate_all: false,
        resamples: RESAMPLES,
    };
    let source = Source {
        name: "run.json",
        results,
    };
    let named = ("old", "new");
    match form {
        Form::Paired => Comparison::of_targets(source, named, rules),
        Form::Independent => Comparison::of_files(source, source, Some(named), rules),
    }
    .expect("there is something to compare")
}

const FORMS: [Form; 2] = [Form::Paired, Form::Independent];

/// How many of `runs` simulated runs fail.
fn failing(form: Form, runs: u64, figures: impl Fn(&mut Machine) -> Vec<[Series; 2]>) -> usize {
    (0..runs)
        .filter(|seed| compare(form, &run(figures(&mut Machine::of(*seed)))).fails())
        .count()
}

/// Runs of the same program twice: four figures, of which none has changed.
fn alike(rounds: usize, noise: Noise) -> impl Fn(&mut Machine) -> Vec<[Series; 2]> {
    move |machine| {
        [CPU, RATE, CPU, RATE]
            .map(|metric| machine.figure(metric, rounds, 1.0, noise))
            .to_vec()
    }
}

/// Of 600 intervals of 95 %, 570 should hold the true ratio; 554 are three standard errors fewer.
#[test]
fn intervals_hold_the_true_ratio_as_often_as_they_say() {
    let noises = [
        Noise::Bell(0.05),
        Noise::Bell(0.15),
        Noise::Hit(0.05),
        Noise::TwoModes(0.15),
    ];
    for form in FORMS {
        for rounds in [5, 9, 15] {
            for noise in noises {
                let holding = (0..600)
                    .filter(|seed| holds_the_truth(form, rounds, noise, *seed))
                    .count();
                assert!(holding >= 554, "{form:?} {rounds} {noise:?}: {holding}");
            }
        }
    }
}

fn holds_the_truth(form: Form, rounds: usize, noise: Noise, seed: u64) -> bool {
    let [base, new] = Machine::of(seed).figure(CPU, rounds, 1.25, noise);
    let estimate = Estimate::of(form, &base.values, &new.values, 0.95, RESAMPLES);
    let interval = estimate.interval.expect("there are enough rounds");
    interval.low <= 1.25 && interval.high >= 1.25
}

/// Half of the 5 % of doubt is on the worse side: 25 of 1,000, and three standard errors more are 39.
#[test]
fn a_thousand_runs_of_the_same_program_are_hardly_ever_worse() {
    for form in FORMS {
        let alarms = failing(form, 1000, alike(10, Noise::Bell(0.1)));
        assert!(alarms <= 39, "{form:?}: {alarms}");
    }
}

#[test]
fn the_same_program_is_not_worse_whatever_the_noise() {
    let noises = [
        Noise::Bell(0.01),
        Noise::Bell(0.3),
        Noise::Hit(0.1),
        Noise::TwoModes(0.1),
        Noise::TwoModes(0.3),
    ];
    for form in FORMS {
        for rounds in [5, 7, 12] {
            for noise in noises {
                let alarms = failing(form, 100, alike(rounds, noise));
                assert!(alarms <= 8, "{form:?} {rounds} {noise:?}: {alarms}");
            }
        }
    }
}

/// Resampling alone calls one run in eight worse here: with thirty figures, one is above all of BASE by chance.
#[test]
fn many_figures_of_few_rounds_are_not_worse_by_chance() {
    for form in FORMS {
        let alarms = failing(form, 150, |machine| {
            (0..30)
                .map(|_| machine.figure(CPU, 5, 1.0, Noise::Bell(0.1)))
                .collect()
        });
        assert!(alarms <= 9, "{form:?}: {alarms}");
    }
}

#[test]
fn a_quiet_machine_says_same() {
    for form in FORMS {
        let same = (0..100)
            .map(|seed| run(alike(10, Noise::Bell(0.01))(&mut Machine::of(seed))))
            .flat_map(|results| compare(form, &results).rows)
            .filter(|row| row.verdict() == Verdict::Same)
            .count();
        assert!(same >= 396, "{form:?}: {same} of 400");
    }
}

/// One figure of ten percent more cost among eleven that did not change.
#[test]
fn a_planted_slowdown_is_found() {
    for form in FORMS {
        let found = failing(form, 100, |machine| {
            let slow = machine.figure(CPU, 10, 1.1, Noise::Bell(0.03));
            let rest = (1..12).map(|_| machine.figure(CPU, 10, 1.0, Noise::Bell(0.03)));
            [slow].into_iter().chain(rest).collect()
        });
        assert!(found >= 95, "{form:?}: {found}");
    }
}

#[test]
fn a_rate_that_falls_is_found() {
    for form in FORMS {
        let found = failing(form, 100, |machine| {
            vec![machine.figure(RATE, 10, 1.0 / 1.1, Noise::Bell(0.03))]
        });
        assert!(found >= 95, "{form:?}: {found}");
        let risen = failing(form, 100, |machine| {
            vec![machine.figure(RATE, 10, 1.1, Noise::Bell(0.03))]
        });
        assert_eq!(risen, 0, "{form:?}");
    }
}

/// Each round the machine is up to several times slower, but for both alike.
#[test]
fn what_hits_both_in_a_round_hides_nothing_when_they_took_turns() {
    let share = |change: f64, wanted: Verdict, form: Form| {
        (0..100)
            .filter(|seed| {
                let mut machine = Machine::of(*seed);
                let [mut base, mut new] = machine.figure(CPU, 10, change, Noise::Bell(0.01));
                for (base, new) in base.values.iter_mut().zip(&mut new.values) {
                    let factor = machine.factor(Noise::Bell(0.4));
                    (*base, *new) = (*base * factor, *new * factor);
                }
                let rows = compare(form, &run(vec![[base, new]])).rows;
                rows.iter().map(Row::verdict).eq([wanted])
            })
            .count()
    };
    assert!(share(1.1, Verdict::Worse, Form::Paired) >= 99);
    assert!(share(1.0, Verdict::Same, Form::Paired) >= 99);
    assert!(share(1.1, Verdict::TooNoisy, Form::Independent) >= 95);
}
