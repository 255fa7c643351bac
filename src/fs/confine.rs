//! Directories below a root, reached without ever following a symbolic link.
//!
//! A name is walked one component at a time, each opened with openat2 (beneath, no links) or, where the kernel or a
//! seccomp filter refuses that call, with O_NOFOLLOW. Components never hold `/` or `..`, so both are as strict.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How far a descent got, and why no farther.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// Bytes of the name up to and including the component that failed.
    pub(super) end: usize,
    /// What the kernel said; `LOOP` when the component is a symbolic link.
    pub(super) errno: Errno,
}

/// What to do on the way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Directories that are missing are made (0777 less the umask).
    Making,
    /// Nothing is made.
    Looking,
    /// Nothing is made, and nothing that is not cached is looked up: the error is then `AGAIN`.
    Cached,
}

/// A root, and the directory below it that was used last.
pub(super) struct Descent {
    root: Arc<OwnedFd>,
    strict: bool,
    path: Vec<u8>,
    steps: Vec<Step>,
}

struct Step {
    /// Bytes of `path` up to the end of this component.
    end: usize,
    /// Closed, and opened again when needed, where the tree is deeper than [`KEPT`].
    fd: Option<Arc<OwnedFd>>,
}

impl Descent {
    /// Opens the root; links in its own path are followed.
    pub(super) fn open(root: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::at(rustix::fs::openat(
            CWD,
            root,
            flags,
            Mode::empty(),
        )?))
    }

    /// A descent from an open directory.
    pub(super) fn at(root: OwnedFd) -> Self {
        let probe = openat2(
            &root,
            b".",
            OFlags::PATH | OFlags::DIRECTORY,
            ResolveFlags::empty(),
        );
        Self {
            root: Arc::new(root),
            strict: !matches!(probe, Err(Errno::NOSYS | Errno::PERM)),
            path: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// The filesystem of the root.
    pub(super) fn device(&self) -> Option<u64> {
        rustix::fs::fstat(&self.root).ok().map(|stat| stat.st_dev)
    }

    /// The directory `name`, components joined by single slashes, empty for the root itself.
    pub(super) fn enter(&mut self, name: &[u8], way: Way) -> Result<Arc<OwnedFd>, Stop> {
        self.ascend(name);
        let mut fd = match self.steps.last() {
            None => Arc::clone(&self.root),
            Some(Step { fd: Some(fd), .. }) => Arc::clone(fd),
            Some(Step { fd: None, .. }) => self.reopen(way)?,
        };
        while self.path.len() < name.len() {
            let start = if self.path.is_empty() {
                0
            } else {
                self.path.len() + 1
            };
            let rest = &name[start..];
            let length = rest
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len());
            let end = start + length;
            let component = &rest[..length];
            let stop = |errno| Stop { end, errno };
            fd = Arc::new(self.step(&fd, component, way).map_err(stop)?);
            self.path.extend_from_slice(&name[self.path.len()..end]);
            if self.steps.len() > KEPT
                && let Some(last) = self.steps.last_mut()
            {
                last.fd = None;
            }
            self.steps.push(Step {
                end,
                fd: Some(Arc::clone(&fd)),
            });
        }
        Ok(fd)
    }

    /// Goes up to the nearest common ancestor of where we are and `name`.
    fn ascend(&mut self, name: &[u8]) {
        while let Some(step) = self.steps.last() {
            let inside =
                name.starts_with(&self.path) && name.get(step.end).is_none_or(|byte| *byte == b'/');
            if inside {
                return;
            }
            self.steps.pop();
            self.path
                .truncate(self.steps.last().map_or(0, |step| step.end));
        }
    }

    /// Opens the current directory again, from the deepest ancestor that is still open.
    fn reopen(&mut self, way: Way) -> Result<Arc<OwnedFd>, Stop> {
        let way = if way == Way::Making {
            Way::Looking
        } else {
            way
        };
        let open = self.steps.iter().rposition(|step| step.fd.is_some());
        let known = open.and_then(|index| self.steps[index].fd.clone());
        let mut fd = known.unwrap_or_else(|| Arc::clone(&self.root));
        let mut start = open.map_or(0, |index| self.steps[index].end + 1);
        for index in open.map_or(0, |index| index + 1)..self.steps.len() {
            let end = self.steps[index].end;
            let opened = self.step(&fd, &self.path[start..end], way);
            fd = Arc::new(opened.map_err(|errno| Stop { end, errno })?);
            start = end + 1;
        }
        if let Some(last) = self.steps.last_mut() {
            last.fd = Some(Arc::clone(&fd));
        }
        Ok(fd)
    }

    fn step(&self, dir: &OwnedFd, name: &[u8], way: Way) -> Result<OwnedFd, Errno> {
        match self.open_dir(dir, name, way) {
            Err(Errno::NOENT) if way == Way::Making => {}
            other => return other,
        }
        match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(dir, name, way),
            Err(errno) => Err(errno),
        }
    }

    fn open_dir(&self, dir: &OwnedFd, name: &[u8], way: Way) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = match (self.strict, way) {
            (true, Way::Cached) => openat2(dir, name, flags, ResolveFlags::CACHED),
            (true, _) => openat2(dir, name, flags, ResolveFlags::empty()),
            (false, Way::Cached) => return Err(Errno::AGAIN),
            (false, _) => rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty()),
        };
        match opened {
            // A kernel before 5.12 knows no CACHED.
            Err(Errno::INVAL) if way == Way::Cached => Err(Errno::AGAIN),
            // O_NOFOLLOW with O_DIRECTORY calls a link "not a directory".
            Err(Errno::NOTDIR) if way != Way::Cached && is_link(dir, name) => Err(Errno::LOOP),
            other => other,
        }
    }
}

/// Opens one component below `dir`, never through a link.
pub(super) fn openat2(
    dir: impl AsFd,
    name: &[u8],
    flags: OFlags,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | more;
    rustix::fs::openat2(dir, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// True when `name` in `dir` is a symbolic link.
pub(super) fn is_link(dir: impl AsFd, name: &[u8]) -> bool {
    rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink
    })
}

/// Directories of one path that are held open.
const KEPT: usize = 48;

#[cfg(test)]
mod tests {
    use super::super::testing::Dir;
    use super::*;

    fn enter(descent: &mut Descent, name: &str) {
        descent.enter(name.as_bytes(), Way::Making).expect(name);
    }

    fn check(strict: bool) {
        let dir = Dir::new();
        let mut descent = Descent::open(dir.path()).expect("the directory is there");
        descent.strict &= strict;
        for name in ["a/b/c", "a/b", "a/bc", "", "a", "d", "a/b/c/d/e"] {
            enter(&mut descent, name);
            assert!(dir.path().join(name).is_dir(), "{name}");
        }
        let deep = vec!["x"; 200].join("/");
        enter(&mut descent, &deep);
        let up = &deep[..deep.len() - 20];
        enter(&mut descent, up);
        enter(&mut descent, &format!("{up}/y"));
        assert!(dir.path().join(up).join("y").is_dir());

        std::os::unix::fs::symlink("/tmp", dir.path().join("a/link")).expect("a link can be made");
        let stop = descent.enter(b"a/link/z", Way::Making).err();
        assert_eq!(
            stop,
            Some(Stop {
                end: 6,
                errno: Errno::LOOP
            })
        );
        std::fs::write(dir.path().join("a/file"), "").expect("a file can be made");
        let stop = descent.enter(b"a/file/z", Way::Making).err();
        assert_eq!(
            stop,
            Some(Stop {
                end: 6,
                errno: Errno::NOTDIR
            })
        );
        let stop = descent.enter(b"a/none", Way::Looking).err();
        assert_eq!(
            stop,
            Some(Stop {
                end: 6,
                errno: Errno::NOENT
            })
        );
        assert!(descent.enter(b"a/b", Way::Looking).is_ok());
    }

    #[test]
    fn a_descent_makes_directories_and_follows_no_link() {
        check(true);
    }

    #[test]
    fn a_descent_is_as_strict_without_openat2() {
        check(false);
    }
}
