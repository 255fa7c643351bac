//! `ringbench compare`: holds results against each other and says so in its exit status.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::compare::{Comparison, RESAMPLES, Rules, Source};
use crate::results::Results;

/// Hold two runs, or two targets of one run, against each other
///
/// The exit status is 0 when no main figure is worse, 1 when one is, or a scenario failed or is missing, and 2 when
/// there is nothing to compare.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Results to compare with; with --targets this can be the only file
    #[arg(value_name = "BASE.json")]
    base: PathBuf,
    /// Results that are judged
    #[arg(value_name = "NEW.json")]
    new: Option<PathBuf>,
    /// The target of BASE and the one of NEW that is judged, as in old,new
    #[arg(long, value_name = "BASE,NEW")]
    targets: Option<TargetNames>,
    /// How much worse a figure may be
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    fail_above: Percent,
    /// How sure all verdicts together are to be
    #[arg(long, value_name = "PERCENT", default_value = "95%")]
    confidence: Percent,
    /// Judge every figure, not the main ones only
    #[arg(long)]
    all: bool,
    /// Write Markdown for a pull request
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write JUnit XML, for whatever shows test results
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl Compare {
    pub(crate) fn run(&self) -> ExitCode {
        match self.compare() {
            Ok(true) => ExitCode::from(WORSE),
            Ok(false) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("Error: {error:#}");
                ExitCode::from(BAD_INPUT)
            }
        }
    }

    /// Whether something is worse.
    fn compare(&self) -> Result<bool> {
        let rules = self.rules()?;
        let comparison = self.judge(rules)?;
        if let Some(path) = &self.markdown {
            write(path, &comparison.markdown())?;
        }
        if let Some(path) = &self.junit {
            write(path, &comparison.junit())?;
        }
        std::io::stdout()
            .write_all(comparison.table().as_bytes())
            .context("cannot write to standard output")?;
        Ok(comparison.fails())
    }

    fn rules(&self) -> Result<Rules> {
        let confidence = self.confidence.0;
        ensure!(
            (0.5..1.0).contains(&confidence),
            "--confidence must be at least 50% and below 100%"
        );
        Ok(Rules {
            margin: self.fail_above.0,
            confidence,
            gate_all: self.all,
            resamples: RESAMPLES,
        })
    }

    fn judge(&self, rules: Rules) -> Result<Comparison> {
        let base = Results::read(&self.base)?;
        let base_name = self.base.display().to_string();
        let source = Source {
            name: &base_name,
            results: &base,
        };
        let named = self.targets.as_ref();
        let named = named.map(|named| (named.base.as_str(), named.new.as_str()));
        let Some(new_path) = &self.new else {
            let Some(named) = named else {
                bail!("NEW.json is missing; one file alone needs --targets BASE,NEW");
            };
            return Comparison::of_targets(source, named, rules);
        };
        let new = Results::read(new_path)?;
        let new_name = new_path.display().to_string();
        let new = Source {
            name: &new_name,
            results: &new,
        };
        Comparison::of_files(source, new, named, rules)
    }
}

const WORSE: u8 = 1;
const BAD_INPUT: u8 = 2;

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A share, written with its sign: 5% is 0.05.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percent(pub(super) f64);

impl FromStr for Percent {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        let digits = word
            .strip_suffix('%')
            .ok_or_else(|| anyhow!("a percent sign is missing, as in 5%"))?;
        let number: f64 = digits
            .trim()
            .parse()
            .map_err(|_| anyhow!("{digits:?} is not a number"))?;
        ensure!(
            (0.0..=1000.0).contains(&number),
            "it must be within 0% and 1000%"
        );
        Ok(Self(number / 100.0))
    }
}

/// Two names with a comma between.
#[derive(Clone, Debug, PartialEq)]
struct TargetNames {
    base: String,
    new: String,
}

impl FromStr for TargetNames {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        match word.split(',').collect::<Vec<_>>()[..] {
            [base, new] if !base.is_empty() && !new.is_empty() => Ok(Self {
                base: base.to_owned(),
                new: new.to_owned(),
            }),
            _ => bail!("it takes two names with a comma between, as in old,new"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_has_its_sign() {
        let parsed: Percent = "12.5%".parse().expect("it is one");
        assert_eq!(parsed, Percent(0.125));
        for wrong in ["5", "0.05", "%", "-1%", "NaN%", "inf%", "5%%", ""] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_targets_are_two_names() {
        let parsed: TargetNames = "old,new".parse().expect("it is two");
        assert_eq!((parsed.base.as_str(), parsed.new.as_str()), ("old", "new"));
        for wrong in ["old", "old,", ",new", "a,b,c", ""] {
            assert!(wrong.parse::<TargetNames>().is_err(), "{wrong}");
        }
    }
}
