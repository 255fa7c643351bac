//! One run: its targets, its work directory with the fixtures that are made on demand, its progress.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tempfile::TempDir;

use crate::fixture::{LargeFile, MIB, Shape, Tree};
use crate::load::{Manner, Request};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::target::{Dialect, Placement, Spec, Target};

/// How much work the scenarios do.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Size of the large file, in MiB.
    #[arg(long = "size", value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) large_mib: u64,
    /// Files of the tree of small files.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
    pub(crate) files: usize,
    /// Entries of the large tree, its root included.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
    pub(crate) entries: usize,
    /// Requests of the scenarios that count small ones.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one)]
    pub(crate) requests: usize,
    /// Programs started by exec-storm.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub(crate) execs: usize,
    /// What the program of a fan-out writes, in MiB.
    #[arg(long = "fanout", value_name = "MIB", default_value_t = 16, value_parser = at_least_one)]
    pub(crate) fanout_mib: usize,
    /// Most followers of a fan-out, whatever its name says.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(5..))]
    pub(crate) followers: u16,
    /// Connections of the flood.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// Requests per second of the scenarios that measure latency at a constant rate.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
}

/// No scenario makes sense of nothing.
fn at_least_one(word: &str) -> Result<usize> {
    let count = word.parse()?;
    ensure!(count > 0, "it must be at least 1");
    Ok(count)
}

/// One run of the harness.
pub(crate) struct Bench {
    pub(crate) specs: Vec<Spec>,
    pub(crate) pace: Pace,
    pub(crate) sizes: Sizes,
    pub(crate) stop: Stop,
    pub(crate) progress: RefCell<Progress>,
    dir: TempDir,
    remote_dir: PathBuf,
    large: OnceCell<LargeFile>,
    trees: [OnceCell<Tree>; 3],
    serial: Cell<u64>,
    /// Whether a target, by name, sees our files.
    sharing: RefCell<HashMap<String, bool>>,
    /// Directories made on targets that do not.
    remote: RefCell<HashMap<String, PathBuf>>,
}

/// What a scenario asks of its targets.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    pub(crate) dialects: &'static [Dialect],
    /// They see the files of this machine.
    pub(crate) shared_files: bool,
    /// They are started here, so that a fresh one can be had.
    pub(crate) spawned: bool,
}

impl Needs {
    pub(crate) const GUEST: Self = Self {
        dialects: &[Dialect::Guest],
        shared_files: false,
        spawned: false,
    };

    pub(crate) const fn dialects(dialects: &'static [Dialect]) -> Self {
        Self {
            dialects,
            ..Self::GUEST
        }
    }

    pub(crate) const fn shared_files(mut self) -> Self {
        self.shared_files = true;
        self
    }

    pub(crate) const fn spawned(mut self) -> Self {
        self.spawned = true;
        self
    }
}

impl Bench {
    /// Makes the work directory below `dir`. It is removed when the run is over.
    pub(crate) fn open(
        specs: Vec<Spec>,
        pace: Pace,
        sizes: Sizes,
        dir: &Path,
        remote_dir: PathBuf,
        stop: Stop,
        progress: Progress,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("ringbench-")
            .tempdir_in(dir)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
        // Paths go into request targets as they are.
        ensure!(
            dir.path().to_string_lossy().bytes().all(plain),
            "the work directory's name needs percent-encoding: {}",
            dir.path().display()
        );
        Ok(Self {
            specs,
            pace,
            sizes,
            stop,
            progress: RefCell::new(progress),
            dir,
            remote_dir,
            large: OnceCell::new(),
            trees: Default::default(),
            serial: Cell::new(0),
            sharing: RefCell::default(),
            remote: RefCell::default(),
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn large(&self) -> Result<&LargeFile> {
        if let Some(file) = self.large.get() {
            return Ok(file);
        }
        // In a directory of its own, which can be packed as a tree.
        let dir = self.dir().join("large");
        std::fs::create_dir_all(&dir)?;
        let file = LargeFile::create(dir.join("large.bin"), self.sizes.large_mib * MIB)?;
        Ok(self.large.get_or_init(|| file))
    }

    /// A tree of small files.
    pub(crate) fn small_tree(&self) -> Result<&Tree> {
        self.tree(0, Shape::Small(self.sizes.files))
    }

    /// A tree of many entries.
    pub(crate) fn large_tree(&self) -> Result<&Tree> {
        self.tree(1, Shape::Many(self.sizes.entries))
    }

    pub(crate) fn deep_tree(&self) -> Result<&Tree> {
        self.tree(2, Shape::Deep)
    }

    fn tree(&self, slot: usize, shape: Shape) -> Result<&Tree> {
        if let Some(tree) = self.trees[slot].get() {
            return Ok(tree);
        }
        let tree = Tree::create(self.dir(), shape)?;
        Ok(self.trees[slot].get_or_init(|| tree))
    }

    /// A number that was not handed out before.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// A path on the target that was never used. Names are not used twice: ext4 is slow at that just after a removal.
    pub(crate) async fn fresh_path(&self, target: &Target, stem: &str) -> Result<PathBuf> {
        let dir = match self.shares_files(target).await? {
            true => self.dir().to_owned(),
            false => self.remote_dir(target),
        };
        Ok(dir.join(format!("{stem}-{}", self.serial())))
    }

    /// A file of ours as the target sees it; it is uploaded where the target does not see our files.
    pub(crate) async fn provide(&self, target: &Target, local: &Path) -> Result<PathBuf> {
        if self.shares_files(target).await? {
            return Ok(local.to_owned());
        }
        let name = local.file_name().unwrap_or_default();
        let path = self.remote_dir(target).join(name);
        let mut connection = target.connect(Manner::Ready)?;
        let length = std::fs::metadata(local)?.len();
        let there = format!("/v1/fs/file?path={}", path.display());
        connection
            .send_head(Request::of("PUT", &there, b""), length)
            .await?;
        connection.send_file(local).await?;
        let answer = connection.answer().await?;
        ensure!(
            answer.head.status == 204,
            "PUT {} answered {}",
            path.display(),
            answer.head.status
        );
        Ok(path)
    }

    fn remote_dir(&self, target: &Target) -> PathBuf {
        let mut remote = self.remote.borrow_mut();
        let name = self.dir().file_name().unwrap_or_default();
        remote
            .entry(target.name.clone())
            .or_insert_with(|| self.remote_dir.join(name))
            .clone()
    }

    /// Whether the target sees the files of this machine: it is shown one.
    pub(crate) async fn shares_files(&self, target: &Target) -> Result<bool> {
        if target.dialect != Dialect::Guest {
            return Ok(true);
        }
        if let Some(known) = self.sharing.borrow().get(&target.name) {
            return Ok(*known);
        }
        let probe = self.dir().join("probe");
        let content = format!("{}", self.dir().display());
        std::fs::write(&probe, &content)?;
        let mut connection = target.connect(Manner::Ready)?;
        let request = target.file(&probe, self.dir());
        let answer = connection.ask(Request::get(&request)).await?;
        let shares = answer.head.status == 200 && answer.body == content.as_bytes();
        self.sharing
            .borrow_mut()
            .insert(target.name.clone(), shares);
        Ok(shares)
    }

    /// Opens the target of `spec` anew.
    pub(crate) async fn open_target(
        &self,
        spec: &Spec,
        placement: Placement,
        flags: &[&str],
    ) -> Result<Target> {
        Target::open(spec, placement, flags, self.dir()).await
    }

    /// How the target was named on the command line.
    pub(crate) fn spec_of(&self, target: &Target) -> Result<&Spec> {
        let spec = self.specs.iter().find(|spec| spec.name == target.name);
        spec.with_context(|| format!("no target is called {:?}", target.name))
    }

    /// The same target anew: a fresh process where we start it.
    pub(crate) async fn reopen(&self, target: &Target) -> Result<Target> {
        let spec = self.spec_of(target)?;
        self.open_target(spec, Placement::default(), &[]).await
    }

    /// Why a target cannot take part, if so.
    pub(crate) async fn unfit(
        &self,
        target: &Target,
        needs: Needs,
    ) -> Result<Option<&'static str>> {
        if !needs.dialects.contains(&target.dialect) {
            return Ok(Some("it has no such route"));
        }
        if needs.spawned && !target.is_ours() {
            return Ok(Some("a fresh one is needed, and it was not started here"));
        }
        if needs.shared_files && !self.shares_files(target).await? {
            return Ok(Some("it does not see the files of this machine"));
        }
        Ok(None)
    }

    /// Writes out what is dirty, so that one measurement does not pay for another's pages.
    pub(crate) fn settle(&self) -> Result<()> {
        rustix::fs::syncfs(std::fs::File::open(self.dir())?)?;
        Ok(())
    }

    /// Removes what was put on targets that do not see our files; a failure is said, no more.
    pub(crate) async fn clean_up(&self) {
        let remote = std::mem::take(&mut *self.remote.borrow_mut());
        for spec in &self.specs {
            let Some(dir) = remote.get(&spec.name) else {
                continue;
            };
            let target = self.open_target(spec, Placement::default(), &[]).await;
            let removed = match target {
                Ok(target) => self.remove_there(&target, dir).await,
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                eprintln!("{}: cannot remove {}: {error:#}", spec.name, dir.display());
            }
        }
    }

    /// Removes a file or tree at a fresh path, so that large ones do not add up. Where the target does not see our
    /// files, it has only begun when this returns.
    pub(crate) async fn remove(&self, target: &Target, path: &Path) -> Result<()> {
        match self.shares_files(target).await? {
            true if path.is_dir() => std::fs::remove_dir_all(path),
            true => std::fs::remove_file(path),
            false => return self.remove_there(target, path).await,
        }
        .with_context(|| format!("cannot remove {}", path.display()))
    }

    async fn remove_there(&self, target: &Target, dir: &Path) -> Result<()> {
        let id = format!("ringbench-clean-{}-{}", std::process::id(), self.serial());
        let command = ["rm", "-rf", "--", &dir.to_string_lossy()];
        let body = serde_json::json!({ "exec_id": id, "command": command }).to_string();
        let request = Request::of("POST", "/v1/exec/start", body.as_bytes());
        let mut connection = target.connect(Manner::Ready)?;
        connection.demand(request, 200).await.map(drop)
    }
}
