//! A daemon under measurement: how it is named, started, reached and ended.

mod process;
mod spec;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;

use crate::load::{Connection, Endpoint, IDENTITY, Manner, Request};
use crate::results::{TargetInfo, without_tokens};

pub(crate) use process::{Placement, Process, Spent, run_program};
pub(crate) use spec::{Dialect, Source, Spec};

/// A daemon that can be reached.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) endpoint: Endpoint,
    /// Ours to end, when we started it.
    process: Option<Process>,
    /// Whose CPU time and memory are read: the process that we started, or one that the user named.
    pid: Option<Pid>,
}

impl Target {
    /// Starts or finds the daemon, gives it its token if it still waits for one.
    ///
    /// `flags` are further words on the command line of one that is started.
    pub(crate) async fn open(
        spec: &Spec,
        placement: Placement,
        flags: &[&str],
        dir: &Path,
    ) -> Result<Self> {
        let target = Self::start(spec, placement, flags, dir)?;
        if target.dialect == Dialect::Guest {
            target
                .bootstrap()
                .await
                .with_context(|| target.name.clone())?;
        }
        Ok(target)
    }

    /// Starts or finds the daemon: it can be connected to, and was told nothing.
    pub(crate) fn start(
        spec: &Spec,
        placement: Placement,
        flags: &[&str],
        dir: &Path,
    ) -> Result<Self> {
        Ok(match &spec.source {
            Source::Running {
                address,
                token,
                pid,
            } => Self {
                name: spec.name.clone(),
                dialect: spec.dialect,
                endpoint: Endpoint {
                    address: *address,
                    token: token.clone(),
                },
                process: None,
                pid: *pid,
            },
            Source::Command(words) => {
                let words = words
                    .iter()
                    .map(String::as_str)
                    .chain(flags.iter().copied());
                let words: Vec<&str> = words.collect();
                let (process, address) = Process::start(&spec.name, &words, placement, dir)
                    .with_context(|| format!("cannot start {}", spec.name))?;
                Self {
                    name: spec.name.clone(),
                    dialect: spec.dialect,
                    endpoint: Endpoint {
                        address,
                        token: TOKEN.to_owned(),
                    },
                    pid: Some(process.pid()),
                    process: Some(process),
                }
            }
        })
    }

    /// Installs our token where none is installed yet (guest HTTP contract, section 3).
    async fn bootstrap(&self) -> Result<()> {
        let mut connection = self.connect(Manner::Ready)?;
        let health = connection.demand(Request::get("/v1/health"), 200).await?;
        let health: serde_json::Value =
            serde_json::from_slice(&health.body).context("/v1/health is not JSON")?;
        if health["bootstrapped"] != false {
            return Ok(());
        }
        ensure!(
            !self.endpoint.token.is_empty(),
            "it waits for a token: give one"
        );
        let mut payload = serde_json::json!({ "agent_token": self.endpoint.token });
        for (name, value) in IDENTITY {
            payload[name] = value.into();
        }
        let body = serde_json::json!({ "runHookPayload": payload.to_string() }).to_string();
        let hook = "/aws/lambda-microvms/runtime/v1/run";
        let request = Request::of("POST", hook, body.as_bytes());
        connection.demand(request, 200).await.map(drop)
    }

    pub(crate) fn connect(&self, manner: Manner) -> Result<Connection> {
        Connection::open(&self.endpoint, manner).with_context(|| self.name.clone())
    }

    /// The process whose CPU time and memory can be read here.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// True for one that we started.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_some()
    }

    /// The request target of the file at `path`, which is below `dir` for one that serves plain paths.
    pub(crate) fn file(&self, path: &Path, dir: &Path) -> String {
        match (self.dialect, path.strip_prefix(dir)) {
            (Dialect::Plain, Ok(below)) => format!("/{}", below.display()),
            _ => format!("/v1/fs/file?path={}", path.display()),
        }
    }

    /// What the results say about it.
    pub(crate) async fn info(&self, spec: &Spec) -> TargetInfo {
        let (command, binary_bytes) = match &spec.source {
            Source::Running { .. } => (None, None),
            Source::Command(words) => {
                let program = words.first().and_then(|word| which(word));
                let size = program.and_then(|path| Some(std::fs::metadata(path).ok()?.len()));
                (Some(without_tokens(words).join(" ")), size)
            }
        };
        TargetInfo {
            name: self.name.clone(),
            command,
            version: self.version().await.ok(),
            binary_bytes,
        }
    }

    async fn version(&self) -> Result<String> {
        let mut connection = self.connect(Manner::Ready)?;
        let health = connection.demand(Request::get("/v1/health"), 200).await?;
        let health: serde_json::Value = serde_json::from_slice(&health.body)?;
        match health["version"].as_str() {
            Some(version) => Ok(version.to_owned()),
            None => bail!("it does not say"),
        }
    }
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: Pid) -> Result<usize> {
    let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let open = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(open.count())
}

/// Where a program is, as execvp(3) would find it.
pub(crate) fn which(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(word))
        .find(|path| path.is_file())
}

/// The token of daemons that we start.
pub(crate) const TOKEN: &str = "ringbench-token";
