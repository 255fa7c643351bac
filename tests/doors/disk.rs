//! A small disk for a daemon: a file with a filesystem in it, mounted where only that daemon sees it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::daemon::{Daemon, Setup};
use crate::process::is_root;

/// Gives the daemon a disk of 16 MiB at `disk`, its image at `image`; `None` where none can be made.
pub(crate) fn with_disk(setup: Setup) -> Option<Setup> {
    if !is_root("a full disk") {
        return None;
    }
    let image = setup.path("image");
    fs::create_dir(setup.path("disk")).expect("the scratch directory is ours");
    let file = File::create(&image).expect("the scratch directory is ours");
    file.set_len(SIZE).expect("a file may have holes");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0"])
        .arg(&image)
        .stdout(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("no mkfs.ext4: a full disk is not checked");
        return None;
    }
    Some(setup.with_mount("-o loop image disk"))
}

impl Daemon {
    /// A file on the disk as a path of ours: it is mounted where only the daemon and its children are.
    pub(crate) fn disk(&self, name: &str) -> PathBuf {
        self.path("disk").join(name)
    }

    /// What is on the disk: names, sorted, without what mkfs makes.
    #[track_caller]
    pub(crate) fn on_disk(&self) -> Vec<String> {
        let listed = self.script("find disk -mindepth 1 -not -name lost+found | sort");
        let listed = listed["stdout"].as_str().expect("text").to_owned();
        let below = |line: &str| line.trim_start_matches("disk/").to_owned();
        listed.lines().map(below).collect()
    }

    /// True when the image of the disk, and not only the cache, has a block that begins with these bytes.
    pub(crate) fn image_holds(&self, bytes: &[u8]) -> bool {
        let image = fs::read(self.path("image")).expect("the scratch directory is ours");
        let blocks = (0..image.len()).step_by(BLOCK);
        blocks
            .map(|at| &image[at..])
            .any(|rest| rest.starts_with(bytes))
    }

    /// True when the name is somewhere in the image of the disk.
    pub(crate) fn image_names(&self, name: &str) -> bool {
        let mut grep = Command::new("grep");
        let grep = grep.args(["-q", "-a", "-F", name]).arg(self.path("image"));
        grep.status().expect("grep is there").success()
    }
}

/// Bytes of the smallest block that mkfs chooses.
const BLOCK: usize = 1024;
/// Bytes of the disk.
pub(crate) const SIZE: u64 = 16 << 20;
