//! A cgroup of a test's own, in which daemons may make theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{comes_true, is_root};

/// A fresh cgroup of version 2; everything in it is killed and removed when dropped.
pub(crate) struct Grove(PathBuf);

impl Grove {
    /// `None`, with a word about it, where this machine lets nobody make one.
    pub(crate) fn new(needed_for: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_root(needed_for) {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringd-test-{}-{number}", std::process::id());
        let made = mount().map(|root| root.join(name));
        let made = made.filter(|path| fs::create_dir(path).is_ok());
        if made.is_none() {
            eprintln!("no cgroup2 to write to: {needed_for} is not checked");
        }
        made.map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("ASCII")
    }

    /// Makes a cgroup in it.
    pub(crate) fn add(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).expect("the cgroup is ours");
        path
    }

    /// Puts the mark on it that systemd puts on what it delegates.
    pub(crate) fn delegate(&self) {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&self.0, "trusted.delegate", b"1", flags).expect("root may");
    }

    /// The directories that daemons have made in it.
    pub(crate) fn subtrees(&self) -> Vec<PathBuf> {
        let mut found = below(&self.0);
        found.retain(|path| is_subtree(path));
        found
    }

    /// The leaves in those.
    pub(crate) fn leaves(&self) -> Vec<PathBuf> {
        self.subtrees()
            .iter()
            .flat_map(|path| below(path))
            .collect()
    }
}

impl Drop for Grove {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        comes_true(|| {
            remove(&self.0);
            !self.0.exists()
        });
    }
}

/// Words to put in front of a command line so that it runs in `cgroup`.
pub(crate) fn inside(cgroup: &Path) -> [String; 4] {
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", cgroup.display());
    ["/bin/sh".into(), "-c".into(), script, "sh".into()]
}

fn is_subtree(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ringd-")
}

fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

fn below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    entries.map(|entry| entry.path()).collect()
}

fn remove(path: &Path) {
    for inner in below(path) {
        remove(&inner);
    }
    let _ = fs::remove_dir(path);
}
