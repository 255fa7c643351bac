//! Counts with valgrind's callgrind, bench by bench, each in processes of its own, so that none changes another's count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Counts, Setting};

impl Counts {
    /// Counts every bench of `program`.
    pub(crate) fn of(program: &Path) -> Result<Self> {
        let program = program.canonicalize().with_context(|| {
            format!(
                "{} is not there: cargo build --release -p ringmicro",
                program.display()
            )
        })?;
        let names = said(Command::new(&program).arg("list"))?;
        let names: Vec<&str> = names.lines().collect();
        let setting = Setting::of(&program)?;
        let dir = tempfile::tempdir().context("cannot make a directory for the counts")?;
        let workers = std::thread::available_parallelism().map_or(1, Into::into);
        let share = |first: usize| {
            let counter = Counter {
                program: &program,
                out: dir.path().join(first.to_string()),
            };
            let mine = names.iter().skip(first).step_by(workers);
            let count = |name: &&str| Ok(((*name).to_owned(), counter.round(name)?));
            mine.map(count).collect::<Result<BTreeMap<_, _>>>()
        };
        let instructions = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|first| scope.spawn(move || share(first)))
                .collect();
            let shares = threads.into_iter().map(|thread| {
                let share = thread.join();
                share.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            shares.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self {
            setting,
            instructions: instructions.into_iter().flatten().collect(),
        })
    }
}

impl Setting {
    fn of(program: &Path) -> Result<Self> {
        let told = said(
            valgrind(program)
                .arg("--tool=none")
                .arg(beside(program))
                .arg("setting"),
        )?;
        let told: Told = serde_json::from_str(&told)
            .with_context(|| format!("{} does not tell its setting", program.display()))?;
        // Only glibc answers; another one is told by the target.
        let libc = said(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
        let version = said(Command::new("valgrind").arg("--version"))?;
        Ok(Self {
            rustc: told.rustc,
            target: told.target,
            libc: libc.trim().to_owned(),
            valgrind: version.trim().to_owned(),
            processor: told.processor,
        })
    }
}

/// What the program says of itself.
#[derive(Deserialize)]
struct Told {
    rustc: String,
    target: String,
    processor: String,
}

struct Counter<'a> {
    program: &'a Path,
    /// Where callgrind writes what it counted.
    out: PathBuf,
}

impl Counter<'_> {
    /// Instructions of one round.
    ///
    /// What stands around the rounds is the same in both runs, and the first round, which meets everything cold, is in
    /// both. So their difference is that of the rounds that only one of them has.
    fn round(&self, name: &str) -> Result<u64> {
        let (few, many) = (self.run(name, FEW)?, self.run(name, MANY)?);
        let rounds = u64::from(MANY - FEW);
        let difference = many.checked_sub(few).with_context(|| {
            format!("{name} took {few} instructions in {FEW} rounds and {many} in {MANY}")
        })?;
        Ok((difference + rounds / 2) / rounds)
    }

    fn run(&self, name: &str, rounds: u32) -> Result<u64> {
        let mut out = std::ffi::OsString::from("--callgrind-out-file=");
        out.push(&self.out);
        let rounds = rounds.to_string();
        said(
            valgrind(self.program)
                .arg("--tool=callgrind")
                .arg(out)
                .arg(beside(self.program))
                .args([name, &rounds]),
        )?;
        let profile = std::fs::read(&self.out).context("callgrind has written no counts")?;
        let profile = String::from_utf8_lossy(&profile);
        let summary = profile
            .lines()
            .find_map(|line| line.strip_prefix("summary: "));
        let count = summary.and_then(|text| text.trim().parse().ok());
        count.with_context(|| format!("callgrind's profile of {name} has no summary"))
    }
}

/// Valgrind in the directory of `program`, without what this environment might tell the allocator or the loader.
fn valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
        .current_dir(program.parent().unwrap_or(Path::new("/")))
        .arg("-q");
    command
}

/// The program as seen from its directory. A path is on its heap when the rounds begin, and one of another length moves
/// what the rounds allocate.
fn beside(program: &Path) -> PathBuf {
    Path::new(".").join(program.file_name().unwrap_or_default())
}

/// What the command prints.
fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| match name.as_str() {
        "valgrind" => "valgrind cannot be started; Debian's package is valgrind".to_owned(),
        _ => format!("{name} cannot be started"),
    })?;
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    if !status.success() {
        let error = String::from_utf8_lossy(&stderr);
        bail!("{name} failed ({status}): {}", error.trim());
    }
    String::from_utf8(stdout).with_context(|| format!("{name} prints what is no text"))
}

/// Rounds of the two runs of a bench, written with as many digits, so that nothing else differs.
const FEW: u32 = 1;
const MANY: u32 = 9;
