//! One run's work directory: fixtures made once on demand, servers started, fresh names handed out.

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::fixture::{LargeFile, MIB, Tree};
use crate::options::Options;
use crate::target::{self, Kind, Server, Setup};

pub(crate) struct Lab {
    pub(crate) options: Options,
    dir: TempDir,
    large: OnceCell<LargeFile>,
    tree: OnceCell<Tree>,
    serial: Cell<u64>,
}

impl Lab {
    /// Makes the work directory. It is removed when the lab is dropped.
    pub(crate) fn open(options: Options) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("ringbench-")
            .tempdir_in(&options.dir)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
        // Paths go into request targets as they are.
        if !dir.path().to_string_lossy().bytes().all(plain) {
            bail!(
                "the work directory's name needs percent-encoding: {}",
                dir.path().display()
            );
        }
        Ok(Self {
            options,
            dir,
            large: OnceCell::new(),
            tree: OnceCell::new(),
            serial: Cell::new(0),
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn large(&self) -> Result<&LargeFile> {
        if let Some(file) = self.large.get() {
            return Ok(file);
        }
        let file = LargeFile::create(self.dir().join("large.bin"), self.options.size_mib * MIB)?;
        Ok(self.large.get_or_init(|| file))
    }

    pub(crate) fn tree(&self) -> Result<&Tree> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = Tree::create(self.dir(), self.options.files)?;
        Ok(self.tree.get_or_init(|| tree))
    }

    /// A number that was not handed out before.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// A path that was never used. Names are not used twice: ext4 is slow at that just after a removal.
    pub(crate) fn fresh_path(&self, stem: &str) -> PathBuf {
        self.dir().join(format!("{stem}-{}", self.serial()))
    }

    pub(crate) fn start(&self, kind: Kind) -> Result<Server> {
        self.start_with(kind, &Setup::default())
    }

    pub(crate) fn start_with(&self, kind: Kind, setup: &Setup) -> Result<Server> {
        Server::start(kind, setup, &self.options.ringd, self.dir())
    }

    /// Starts those servers that are installed, in order, and says which are not.
    pub(crate) fn start_all(&self, kinds: &[Kind]) -> Result<(Vec<Server>, Vec<String>)> {
        let (present, absent): (Vec<Kind>, Vec<Kind>) = kinds
            .iter()
            .partition(|kind| target::available(**kind, &self.options.ringd));
        let servers = present
            .into_iter()
            .map(|kind| self.start(kind))
            .collect::<Result<_>>()?;
        let notes = absent
            .into_iter()
            .map(|kind| format!("{} is not installed here: left out", kind.name()))
            .collect();
        Ok((servers, notes))
    }

    /// Writes out what is dirty, so that one measurement does not pay for another's pages.
    pub(crate) fn settle(&self) -> Result<()> {
        rustix::fs::syncfs(std::fs::File::open(self.dir())?)?;
        Ok(())
    }
}
