//! The command line: what to run, and the hidden command that turns this program into a writer of lines.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::target;

pub(crate) const USAGE: &str = "\
usage: ringbench [options]
  --ringd PATH      the ringd binary; default: beside this program
  --scenario LIST   comma-separated names, or all (default)
  --rounds N        measured rounds of each scenario; default 7
  --size MIB        size of the large file in MiB; default 1024
  --files N         files of the small-file tree; default 20000
  --followers N     followers of one exec in fanout-500; default 500
  --fanout MIB      what that exec writes, in MiB; default 16
  --execs N         programs started by exec-storm; default 1000
  --dir PATH        where the work directory is made; default: the system's temporary directory
  --out PATH        write the results as JSON
  --md PATH         write the results as Markdown
  --list            print the scenario names
started by the harness itself:
  emit --lines N --bytes N   writes numbered lines once a byte comes in";

/// One run of the harness.
pub(crate) struct Options {
    pub(crate) ringd: PathBuf,
    /// Empty means all.
    pub(crate) scenarios: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) size_mib: u64,
    pub(crate) files: usize,
    pub(crate) followers: usize,
    pub(crate) fanout_mib: usize,
    pub(crate) execs: usize,
    pub(crate) dir: PathBuf,
    pub(crate) out: Option<PathBuf>,
    pub(crate) md: Option<PathBuf>,
}

pub(crate) enum Command {
    Run(Options),
    Emit { lines: usize, bytes: usize },
    List,
    Help,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command> {
    let mut words = arguments.peekable();
    match words.peek().map(String::as_str) {
        Some("emit") => parse_emit(words.skip(1)),
        _ => parse_run(words),
    }
}

fn parse_run(mut words: impl Iterator<Item = String>) -> Result<Command> {
    let mut options = Options {
        ringd: target::default_ringd(),
        scenarios: Vec::new(),
        rounds: 7,
        size_mib: 1024,
        files: 20_000,
        followers: 500,
        fanout_mib: 16,
        execs: 1000,
        dir: std::env::temp_dir(),
        out: None,
        md: None,
    };
    while let Some(flag) = words.next() {
        match flag.as_str() {
            "--ringd" => options.ringd = value(&flag, &mut words)?,
            "--scenario" => {
                let list: String = value(&flag, &mut words)?;
                options.scenarios = list
                    .split(',')
                    .filter(|name| *name != "all")
                    .map(str::to_owned)
                    .collect();
            }
            "--rounds" => options.rounds = value(&flag, &mut words)?,
            "--size" => options.size_mib = value(&flag, &mut words)?,
            "--files" => options.files = value(&flag, &mut words)?,
            "--followers" => options.followers = value(&flag, &mut words)?,
            "--fanout" => options.fanout_mib = value(&flag, &mut words)?,
            "--execs" => options.execs = value(&flag, &mut words)?,
            "--dir" => options.dir = value(&flag, &mut words)?,
            "--out" => options.out = Some(value(&flag, &mut words)?),
            "--md" => options.md = Some(value(&flag, &mut words)?),
            "--list" => return Ok(Command::List),
            "--help" | "-h" => return Ok(Command::Help),
            _ => bail!("unknown option {flag}\n{USAGE}"),
        }
    }
    if options.rounds == 0 || options.size_mib == 0 || options.files == 0 {
        bail!("--rounds, --size and --files must be at least 1");
    }
    if options.followers < 5 || options.fanout_mib == 0 || options.execs == 0 {
        bail!("--followers must be at least 5, --fanout and --execs at least 1");
    }
    Ok(Command::Run(options))
}

fn parse_emit(mut words: impl Iterator<Item = String>) -> Result<Command> {
    let (mut lines, mut bytes) = (0, 0);
    while let Some(flag) = words.next() {
        match flag.as_str() {
            "--lines" => lines = value(&flag, &mut words)?,
            "--bytes" => bytes = value(&flag, &mut words)?,
            _ => bail!("unknown option {flag}\n{USAGE}"),
        }
    }
    if bytes == 0 {
        bail!("--bytes must be at least 1");
    }
    Ok(Command::Emit { lines, bytes })
}

fn value<T: FromStr>(flag: &str, words: &mut impl Iterator<Item = String>) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let word = words
        .next()
        .with_context(|| format!("{flag} needs a value"))?;
    word.parse()
        .with_context(|| format!("{flag} cannot be {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Iterator<Item = String> + '_ {
        line.split_whitespace().map(str::to_owned)
    }

    #[test]
    fn a_list_of_scenarios_is_split() {
        let Ok(Command::Run(options)) = parse(words("--scenario get-1g,health --rounds 3")) else {
            panic!("it is a run")
        };
        assert_eq!(options.scenarios, ["get-1g", "health"]);
        assert_eq!(options.rounds, 3);
    }

    #[test]
    fn nothing_to_measure_is_refused() {
        assert!(parse(words("--rounds 0")).is_err());
        assert!(parse(words("--rounds x")).is_err());
        assert!(parse(words("--speed 1")).is_err());
    }
}
