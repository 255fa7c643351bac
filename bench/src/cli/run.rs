//! `ringbench run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, Args};

use crate::bench::{Bench, Sizes};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::results::Results;
use crate::run::{measured, unhappy_end};
use crate::stop::Stop;
use crate::target::{Dialect, Spec, which};
use crate::{cpu, scenario};

/// What is measured, against whom, and where the figures go.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A daemon that runs already: NAME=URL,TOKEN and perhaps ,pid=N, whose CPU time and memory are read then.
    #[arg(long, value_name = "NAME=URL,TOKEN", value_parser = told(Spec::running), action = ArgAction::Append)]
    target: Vec<Spec>,
    /// A daemon that is started here: NAME='COMMAND'. It says `listening tcp://ADDRESS` on its first line, or takes
    /// the port that stands for {port}; {token} and {dir} are filled in, too.
    #[arg(long, value_name = "NAME='COMMAND'", value_parser = told(Spec::spawned), action = ArgAction::Append)]
    spawn: Vec<Spec>,
    /// This target serves files by their path below {dir} and nothing else, as a web server does.
    #[arg(long, value_name = "NAME")]
    plain: Vec<String>,
    /// This target is `baseline bare`: loops, no service.
    #[arg(long, value_name = "NAME")]
    bare: Vec<String>,
    /// Leave the peers out that are added when no target is named: axum, nginx and the bare loops.
    #[arg(long)]
    no_baselines: bool,
    /// The ringd that is measured when no target is named.
    #[arg(long, value_name = "PATH")]
    ringd: Option<PathBuf>,
    /// Names of scenarios, with commas; `fanout-*` stands for all that begin so.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "all",
        value_delimiter = ','
    )]
    scenario: Vec<String>,
    /// Measured rounds of each scenario; every target once in each.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    sizes: Sizes,
    /// Where the work directory is made.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Where files are put on targets that do not share this machine's files.
    #[arg(long, value_name = "PATH", default_value = "/tmp")]
    remote_dir: PathBuf,
    /// Write the results as JSON.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let chosen = scenario::chosen(&arguments.scenario)?;
    let specs = specs(&arguments)?;
    if let Some(path) = &arguments.out {
        Results::make_room(path)?;
    }
    cpu::pin(cpu::LOAD_CPU).context(TWO_CPUS)?;
    let bench = Bench::open(
        specs,
        Pace::Rounds(arguments.rounds.into()),
        arguments.sizes,
        &arguments.dir.unwrap_or_else(std::env::temp_dir),
        arguments.remote_dir,
        Stop::on_signals()?,
        Progress::new(chosen.len()),
    )?;
    let results = measured(&bench, &chosen)?;
    if let Some(path) = &arguments.out {
        results.write(path)?;
    }
    Ok(unhappy_end(&bench, &results).unwrap_or(ExitCode::SUCCESS))
}

/// A parser whose errors are told with their causes: clap shows the outermost sentence only.
fn told<T>(
    parse: fn(&str) -> Result<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: 'static,
{
    move |text| parse(text).map_err(|error| format!("{error:#}"))
}

/// The targets that were named; without any, ringd and its peers.
fn specs(arguments: &Arguments) -> Result<Vec<Spec>> {
    let mut specs = [arguments.target.clone(), arguments.spawn.clone()].concat();
    if specs.is_empty() {
        specs = usual(arguments)?;
    }
    for (names, dialect) in [
        (&arguments.plain, Dialect::Plain),
        (&arguments.bare, Dialect::Bare),
    ] {
        for name in names {
            let spec = specs.iter_mut().find(|spec| spec.name == *name);
            let spec = spec.with_context(|| format!("no target is called {name:?}"))?;
            spec.dialect = dialect;
        }
    }
    for (index, spec) in specs.iter().enumerate() {
        if specs[..index].iter().any(|other| other.name == spec.name) {
            bail!("two targets are called {:?}", spec.name);
        }
    }
    Ok(specs)
}

/// ringd beside this program, and the baselines: axum, nginx where it is installed, the bare loops.
fn usual(arguments: &Arguments) -> Result<Vec<Spec>> {
    let beside = |name: &str| -> Result<String> {
        let here = std::env::current_exe()?.with_file_name(name);
        ensure!(
            here.is_file(),
            "{} is missing: `cargo build --release --workspace` makes it",
            here.display()
        );
        Ok(here.display().to_string())
    };
    let ringd = match &arguments.ringd {
        Some(path) => path.display().to_string(),
        None => beside("ringd")?,
    };
    let mut specs = vec![Spec::ringd("ringd", &ringd)];
    if arguments.no_baselines {
        return Ok(specs);
    }
    let baseline = beside("baseline")?;
    specs.push(Spec::of_words(
        "axum",
        Dialect::Guest,
        &[&baseline, "axum", "--token", "{token}", "--nodelay"],
    ));
    match which("nginx") {
        Some(_) => specs.push(Spec::of_words(
            "nginx",
            Dialect::Plain,
            &[&baseline, "nginx", "--port", "{port}", "--root", "{dir}"],
        )),
        None => eprintln!("nginx is not installed: left out"),
    }
    specs.push(Spec::of_words("bare", Dialect::Bare, &[&baseline, "bare"]));
    Ok(specs)
}

/// Why a CPU cannot be had.
pub(super) const TWO_CPUS: &str = "two CPUs are needed: one for the servers, one for the load";
