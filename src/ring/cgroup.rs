//! Control groups of version 2: the directory that we were given, and one leaf below it for each exec (cgroups(7)).
//!
//! ```text
//! parent             our own cgroup if it is delegated, or the path of --cgroup
//!   ringd-<pid>      Subtree: holds no process itself
//!     1, 2, 3, …     Leaf: one exec and all of its descendants
//! ```
//!
//! Everything here makes plain system calls on kernel files. They are quick, but wait while somebody else moves
//! processes between cgroups: after the start they belong on a helper thread.

mod find;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

/// Where the cgroups of execs are to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In our own cgroup if it was delegated to us, else nowhere.
    Auto,
    /// Nowhere.
    Off,
    /// In this directory.
    At(PathBuf),
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            path if path.starts_with('/') => Ok(Self::At(path.into())),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(path) => path.display().fmt(f),
        }
    }
}

/// A controller that limits can be given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory.
    Memory,
    /// The number of processes.
    Pids,
}

/// The directory that holds the leaves of this process.
#[derive(Debug)]
pub struct Subtree {
    directory: PathBuf,
    controllers: Vec<Controller>,
    last: Cell<u64>,
}

impl Subtree {
    /// Makes the directory in `place`; `None` where there is nothing to make it in and nobody has insisted.
    ///
    /// # Errors
    /// The given place is no cgroup that we may use.
    pub fn open(place: &Place) -> io::Result<Option<Self>> {
        match place {
            Place::Off => Ok(None),
            Place::At(path) => {
                find::check(path)?;
                Self::below(path).map(Some)
            }
            Place::Auto => {
                let Some(parent) = find::delegated() else {
                    return Ok(None);
                };
                let subtree = find::check(&parent).and_then(|()| Self::below(&parent));
                Ok(subtree
                    .inspect_err(|error| {
                        let parent = parent.display();
                        tracing::warn!(%error, %parent, "the cgroup that was delegated is not usable");
                    })
                    .ok())
            }
        }
    }

    fn below(parent: &Path) -> io::Result<Self> {
        let directory = claim(parent)?;
        if let Err(error) = is_domain(&directory) {
            let _ = fs::remove_dir(&directory);
            return Err(error);
        }
        let mut controllers = Vec::new();
        for controller in [Controller::Memory, Controller::Pids] {
            let enabled = enable(parent, controller).and_then(|()| enable(&directory, controller));
            match enabled {
                Ok(()) => controllers.push(controller),
                Err(error) => {
                    let controller = controller.name();
                    tracing::info!(%error, controller, "no limits by this controller");
                }
            }
        }
        let shown = directory.display();
        tracing::info!(directory = %shown, ?controllers, "execs get cgroups");
        Ok(Self {
            directory,
            controllers,
            last: Cell::new(0),
        })
    }

    /// True when leaves can be limited by `controller`.
    pub fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// A leaf that is yet to be made; its name was never used before.
    pub fn leaf(&self) -> Leaf {
        let number = self.last.get() + 1;
        self.last.set(number);
        Leaf(self.directory.join(number.to_string()).into())
    }

    /// Removes what is empty, at the end of the process.
    pub fn close(&self) {
        remove(&self.directory);
    }
}

/// The cgroup of one exec; a copy is the same cgroup.
#[derive(Clone, Debug)]
pub struct Leaf(Arc<Path>);

impl Leaf {
    /// Makes it, with these limits; answers its directory, for a child to start in.
    ///
    /// # Errors
    /// What the system said; nothing is left then.
    pub fn make(&self, limits: &[(Controller, u64)]) -> io::Result<OwnedFd> {
        fs::create_dir(&self.0)?;
        self.open(limits).inspect_err(|_| {
            self.remove();
        })
    }

    fn open(&self, limits: &[(Controller, u64)]) -> io::Result<OwnedFd> {
        for (controller, limit) in limits {
            match controller {
                Controller::Memory => {
                    write(&self.0.join("memory.max"), &limit.to_string())?;
                    let swap = self.0.join("memory.swap.max");
                    // Absent where the kernel does not count swap.
                    if swap.exists() {
                        write(&swap, "0")?;
                    }
                }
                Controller::Pids if *limit > MOST_PIDS => {}
                Controller::Pids => write(&self.0.join("pids.max"), &limit.to_string())?,
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&*self.0, flags, Mode::empty())?)
    }

    /// The processes in it, also in cgroups that they have made below it.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        for directory in directories(&self.0) {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            // Zero is a process that our namespace of pids does not show.
            let numbers = text.lines().filter_map(|line| line.parse::<i32>().ok());
            pids.extend(numbers.filter(|pid| *pid > 0));
        }
        pids
    }

    /// True while a process in it or below it has not ended: unlike the list, this is never half old.
    pub fn is_populated(&self) -> bool {
        let text = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        text.lines().any(|line| line == "populated 1")
    }

    /// Kills all in it and below it, those that are forked meanwhile too; false where the kernel cannot (before 5.14).
    pub fn kill(&self) -> bool {
        write(&self.0.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes it if it is empty; true when it is gone.
    pub fn remove(&self) -> bool {
        remove(&self.0)
    }
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// Makes the directory of this process below `parent`.
fn claim(parent: &Path) -> io::Result<PathBuf> {
    let name = format!("ringd-{}", std::process::id());
    let mut path = parent.join(&name);
    let mut number = 1;
    loop {
        // An earlier process of this number may have left it, with processes in it or without.
        remove(&path);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_CLAIMS => {
                number += 1;
                path = parent.join(format!("{name}-{number}"));
            }
            made => return made.map(|()| path),
        }
    }
}

/// Whether processes can be put below `directory`.
fn is_domain(directory: &Path) -> io::Result<()> {
    let kind = fs::read_to_string(directory.join("cgroup.type"))?;
    match kind.trim() {
        "domain" => Ok(()),
        other => Err(io::Error::other(format!("a cgroup below it is {other}"))),
    }
}

/// Makes a controller available to the cgroups below `directory`.
fn enable(directory: &Path, controller: Controller) -> io::Result<()> {
    let name = controller.name();
    let control = directory.join("cgroup.subtree_control");
    let lists = |path: &Path| -> io::Result<bool> {
        let text = fs::read_to_string(path)?;
        Ok(text.split_ascii_whitespace().any(|word| word == name))
    };
    if lists(&control)? {
        return Ok(());
    }
    if !lists(&directory.join("cgroup.controllers"))? {
        return Err(io::Error::other("the controller is not available here"));
    }
    write(&control, &format!("+{name}")).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => io::Error::other("processes sit in the cgroup above"),
        _ => error,
    })
}

/// Removes a cgroup and those below it, as far as they are empty; true when it is gone.
fn remove(path: &Path) -> bool {
    let is_gone = |path: &Path| match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_gone(path) {
        return true;
    }
    let all = directories(path);
    // The children first; what counts is the last one, the cgroup itself.
    all.iter().rev().fold(false, |_, path| is_gone(path))
}

/// A cgroup and those below it, parents first.
fn directories(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MOST_DIRECTORIES {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()));
        next += 1;
    }
    found
}

/// Writes a kernel file, which must exist.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut file = fs::File::options().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// The largest number that pids.max takes; there are never more processes than that.
const MOST_PIDS: u64 = 4_194_304;
/// Cgroups of one exec that are looked at.
const MOST_DIRECTORIES: usize = 4096;
/// Directories of earlier processes of our number that are left alone.
const MOST_CLAIMS: u32 = 64;
