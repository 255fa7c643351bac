//! `ringbench run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, Args};

use crate::bench::{Bench, Sizes};
use crate::progress::Progress;
use crate::results::{FORMAT, Results, Setting};
use crate::scenario::{self, Scenario};
use crate::stop::{INTERRUPTED, Stop};
use crate::target::{Dialect, Spec, Target, which};
use crate::{cpu, load};

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
    let chosen = choose(&arguments.scenario)?;
    let specs = specs(&arguments)?;
    if let Some(path) = &arguments.out {
        Results::make_room(path)?;
    }
    cpu::pin(cpu::LOAD_CPU)
        .context("two CPUs are needed: one for the servers, one for the load")?;
    let rounds = usize::from(arguments.rounds);
    let dir = arguments.dir.unwrap_or_else(std::env::temp_dir);
    let bench = Bench::open(
        specs,
        rounds,
        arguments.sizes,
        &dir,
        arguments.remote_dir,
        Stop::on_signals()?,
        Progress::new(chosen.len()),
    )?;
    let mut results = Results {
        format: FORMAT.to_owned(),
        complete: false,
        setting: Setting::of_this_machine(rounds, bench.dir()),
        targets: Vec::new(),
        scenarios: Vec::new(),
    };
    let stolen_before = cpu::stolen_ms();
    load::start(async {
        for spec in &bench.specs {
            let target = Target::open(spec, Default::default(), &[], bench.dir()).await?;
            results.targets.push(target.info(spec).await);
        }
        for scenario in chosen {
            if bench.stop.is_set() {
                break;
            }
            results.scenarios.push(scenario.measure(&bench).await);
        }
        bench.clean_up().await;
        Ok(())
    })?;
    bench.progress.borrow().close();
    results.setting.stolen_ms = cpu::stolen_ms() - stolen_before;
    results.complete = !bench.stop.is_set();
    if let Some(path) = &arguments.out {
        results.write(path)?;
    }
    if bench.stop.is_set() {
        eprintln!("interrupted: the results are not complete");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let failed: Vec<&str> = results
        .scenarios
        .iter()
        .filter(|scenario| scenario.failure.is_some())
        .map(|scenario| scenario.name.as_str())
        .collect();
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
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

fn choose(names: &[String]) -> Result<Vec<&'static Scenario>> {
    let mut chosen = Vec::new();
    for name in names {
        let fits = |scenario: &Scenario| match name.strip_suffix('*') {
            Some(start) => scenario.name.starts_with(start),
            None => name == "all" || name == scenario.name,
        };
        let before = chosen.len();
        chosen.extend(scenario::all().filter(|scenario| fits(scenario)));
        ensure!(
            chosen.len() > before,
            "no scenario is called {name:?}; `ringbench list` shows them"
        );
    }
    Ok(chosen)
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
    let mut specs = vec![spawned(
        "ringd",
        Dialect::Guest,
        &[
            &ringd,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--max-body-bytes",
            MAX_BODY,
        ],
    )];
    if arguments.no_baselines {
        return Ok(specs);
    }
    let baseline = beside("baseline")?;
    specs.push(spawned(
        "axum",
        Dialect::Guest,
        &[&baseline, "axum", "--token", "{token}", "--nodelay"],
    ));
    match which("nginx") {
        Some(_) => specs.push(spawned(
            "nginx",
            Dialect::Plain,
            &[&baseline, "nginx", "--port", "{port}", "--root", "{dir}"],
        )),
        None => eprintln!("nginx is not installed: left out"),
    }
    specs.push(spawned("bare", Dialect::Bare, &[&baseline, "bare"]));
    Ok(specs)
}

fn spawned(name: &str, dialect: Dialect, words: &[&str]) -> Spec {
    Spec {
        name: name.to_owned(),
        dialect,
        source: crate::target::Source::Command(
            words.iter().map(|word| (*word).to_owned()).collect(),
        ),
    }
}

const MAX_BODY: &str = "17179869184";
