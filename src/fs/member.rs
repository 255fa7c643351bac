//! Members of an archive made safe: names that cannot leave the root, types that may be made.

use rustix::io::Errno;

use super::space;
use crate::error::{Error, Kind, Result};
use crate::wire::tar::{Member, Moment, Segment, Type};

/// A name below the root: components joined by single slashes, none of them empty, `.` or `..`; empty for the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(Box<[u8]>);

/// A name below the root, and the name that the archive has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: Name,
    /// The name as the archive has it, where it differs.
    told: Option<Box<[u8]>>,
}

/// What a caller asks for beyond the members themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Leading components that are taken from each name, and from the targets of hard links.
    pub strip: usize,
    /// True when members get the numeric owner and group that the archive has.
    pub owner: bool,
    /// True when members get the extended attributes that the archive has.
    pub xattrs: bool,
}

/// A member that passed every check that needs no disk.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) action: Action,
    pub(super) attributes: Attributes,
}

/// What a member is to be like, beyond its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Permission bits to set: without set-id bits, without write for group and others.
    pub(super) mode: u32,
    pub(super) mtime: Moment,
    /// User and group, when they are to be set.
    pub(super) owner: Option<(u32, u32)>,
    /// Extended attributes to set: names and values.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a member asks for.
#[derive(Debug)]
pub(super) enum Action {
    /// Nothing: it names the root, or nothing is left of its name.
    Nothing,
    Directory,
    File(Content),
    /// A link to this text.
    Symlink(Box<[u8]>),
    /// Another name for this one.
    HardLink(Name),
}

/// The data of a file.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Bytes in the archive.
    pub(super) stored: u64,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Where the stored bytes go, when it is sparse.
    pub(super) runs: Option<Box<[Segment]>>,
}

impl Name {
    /// Resolves `text` lexically; `None` when it is absolute or climbs past the root.
    fn parse(text: &[u8]) -> Option<Self> {
        if text.starts_with(b"/") {
            return None;
        }
        let mut name = Vec::with_capacity(text.len());
        for component in text.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." if name.is_empty() => return None,
                b".." => name.truncate(name.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                _ => {
                    if !name.is_empty() {
                        name.push(b'/');
                    }
                    name.extend_from_slice(component);
                }
            }
        }
        Some(Self(name.into()))
    }

    /// A name that was judged before.
    pub(super) fn again(text: &[u8], strip: usize) -> Option<Self> {
        Self::parse(stripped(text, strip)?)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The directory that holds it, and its last component.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&[], &self.0),
        }
    }
}

/// Bytes of a path at most (PATH_MAX of limits.h): the kernel takes no longer one, and work on one is bounded by it.
pub(super) const PATH_BYTES: usize = 4096;

impl Entry {
    /// Judges a member.
    ///
    /// # Errors
    /// `Malformed` for what may not be extracted; `Internal` for what no filesystem takes.
    pub(super) fn judge(member: Member, terms: Terms) -> Result<Self> {
        let (path, link) = (&member.path, &member.link);
        let refuse = |why: &str| Err(refused(path, why));
        if path.contains(&0) || link.contains(&0) {
            return refuse("a name holds a NUL byte");
        }
        if path.len() > PATH_BYTES || link.len() > PATH_BYTES {
            return refuse("a name is longer than any path can be");
        }
        let Some(left) = stripped(path, terms.strip) else {
            return Ok(Self::nothing());
        };
        let Some(name) = Name::parse(left) else {
            return refuse("path escapes the extraction root");
        };
        if name.0.is_empty() && member.kind != Type::Directory {
            return refuse("only a directory member may name the extraction root");
        }
        let action = match member.kind {
            Type::Directory if name.0.is_empty() => Action::Nothing,
            Type::Directory => Action::Directory,
            Type::File => Action::File(Content {
                stored: member.stored,
                size: member.size,
                runs: member.runs,
            }),
            Type::Symlink => Action::Symlink(symlink(path, &name, link)?),
            Type::HardLink => Action::HardLink(hard_link(path, link, terms.strip)?),
            Type::Fifo | Type::CharDevice | Type::BlockDevice => {
                return refuse("device and fifo members are not extractable");
            }
            Type::Unknown(flag) => {
                return refuse(&format!("member type {:?} is not known", char::from(flag)));
            }
        };
        let owner = match (terms.owner, member.uid, member.gid) {
            (false, _, _) => None,
            (true, Some(uid), Some(gid)) => Some((uid, gid)),
            (true, _, _) => return refuse("its owner is no number that a system has"),
        };
        let mut xattrs = member.xattrs;
        xattrs.retain(|(name, _)| terms.takes(name));
        Ok(Self {
            place: Place {
                told: (*path != *name.0).then(|| path.as_slice().into()),
                name,
            },
            action,
            attributes: Attributes {
                mode: member.mode & 0o755,
                mtime: member.mtime,
                owner,
                xattrs,
            },
        })
    }

    fn nothing() -> Self {
        Self {
            place: Place {
                name: Name(Box::default()),
                told: None,
            },
            action: Action::Nothing,
            attributes: Attributes::default(),
        }
    }
}

impl Terms {
    /// True for an extended attribute that is to be set: `user.` ones, and capabilities where owners are kept too.
    fn takes(self, xattr: &[u8]) -> bool {
        let privileged = self.owner && xattr == b"security.capability";
        self.xattrs && (xattr.starts_with(b"user.") || privileged)
    }
}

impl Place {
    /// A place that was judged before, by the name that the archive has for it.
    pub(super) fn again(told: &[u8], strip: usize) -> Option<Self> {
        let name = Name::again(told, strip)?;
        Some(Self {
            told: (*told != *name.0).then(|| told.into()),
            name,
        })
    }

    /// The name as the archive has it.
    pub(super) fn told(&self) -> &[u8] {
        self.told.as_deref().unwrap_or(&self.name.0)
    }

    /// The refusal of this member for what is in its way; `end` is how much of its name is concerned.
    pub(super) fn obstructed(&self, end: usize, why: &str) -> Error {
        let under = shown(&self.name.0[..end]);
        refused(self.told(), &format!("cannot create under {under}: {why}"))
    }

    /// The failure of this member on the filesystem, known without asking the kernel.
    pub(super) fn impossible(&self, why: &str) -> Error {
        Kind::Internal.told(format!(
            "tar operation failed: {}: {why}",
            shown(self.told())
        ))
    }

    /// The failure of this member, as the kernel tells it.
    pub(super) fn failed(&self, errno: Errno) -> Error {
        match errno {
            _ if space::is_full(&errno.into()) => {
                Kind::DiskFull.told("no space is left on the target filesystem")
            }
            Errno::ACCESS => self.obstructed(self.name.0.len(), "permission denied"),
            Errno::XDEV => self.obstructed(self.name.0.len(), "the way there leaves the root"),
            Errno::LOOP => self.obstructed(self.name.0.len(), LINK_ON_THE_WAY),
            _ => Kind::Internal.told(format!("tar operation failed: {}", shown(self.told()))),
        }
        .because(errno)
    }
}

/// A symbolic link on the way, in words.
pub(super) const LINK_ON_THE_WAY: &str =
    "a symbolic link on the way there, which extraction refuses to follow";

fn symlink(path: &[u8], name: &Name, target: &[u8]) -> Result<Box<[u8]>> {
    check_target(path, target)?;
    let (dir, _) = name.split();
    let from = [dir, b"/", target].concat();
    let from = if dir.is_empty() { target } else { &from };
    if Name::parse(from).is_none() {
        return Err(outside(path, target));
    }
    Ok(target.into())
}

/// The target is named from the root, as a member is, so it is stripped as members are.
fn hard_link(path: &[u8], target: &[u8], strip: usize) -> Result<Name> {
    if strip == 0 || target.is_empty() {
        check_target(path, target)?;
    }
    let Some(left) = stripped(target, strip) else {
        let why = format!("nothing is left of its link target {}", shown(target));
        return Err(refused(path, &why));
    };
    Name::parse(left).ok_or_else(|| outside(path, target))
}

/// What is left of a name without its first `count` components, counted as GNU tar does: `.` is one, slashes that
/// follow each other are one; `None` when nothing is left.
fn stripped(name: &[u8], count: usize) -> Option<&[u8]> {
    let mut rest = name;
    for _ in 0..count {
        let start = rest.iter().position(|byte| *byte != b'/')?;
        let end = rest[start..].iter().position(|byte| *byte == b'/')?;
        rest = &rest[start + end..];
    }
    if count > 0 {
        let start = rest.iter().position(|byte| *byte != b'/')?;
        rest = &rest[start..];
    }
    Some(rest)
}

fn check_target(path: &[u8], target: &[u8]) -> Result<()> {
    match target.first() {
        None => Err(refused(path, "link member has no target")),
        Some(b'/') => Err(refused(
            path,
            &format!("absolute link target {}", shown(target)),
        )),
        Some(_) => Ok(()),
    }
}

fn outside(path: &[u8], target: &[u8]) -> Error {
    refused(
        path,
        &format!("link target {} resolves outside the root", shown(target)),
    )
}

fn refused(path: &[u8], why: &str) -> Error {
    Kind::Malformed.told(format!("refused tar member {}: {why}", shown(path)))
}

/// Bytes of an archive as a client may read them: never a control character, never without end.
fn shown(text: &[u8]) -> String {
    let cut = &text[..text.len().min(1024)];
    let text = String::from_utf8_lossy(cut);
    text.chars()
        .map(|each| {
            if each.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                each
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, kind: Type, link: &str, expected: &str) {
        check_stripped(0, path, kind, link, expected);
    }

    fn check_stripped(strip: usize, path: &str, kind: Type, link: &str, expected: &str) {
        let terms = Terms {
            strip,
            ..Terms::default()
        };
        let member = Member {
            path: path.into(),
            link: link.into(),
            kind,
            mode: 0o7777,
            mtime: Moment::default(),
            uid: None,
            gid: None,
            xattrs: Vec::new(),
            at: 0,
            data_at: 512,
            stored: 0,
            size: 0,
            runs: None,
        };
        let found = match Entry::judge(member, terms) {
            Ok(Entry {
                action: Action::HardLink(target),
                ..
            }) if strip > 0 => String::from_utf8_lossy(target.bytes()).into_owned(),
            Ok(entry) => String::from_utf8_lossy(entry.place.name.bytes()).into_owned(),
            Err(error) => error.sentence().to_owned(),
        };
        assert_eq!(found, expected, "{path} {kind:?} {link}");
    }

    #[test]
    fn names_are_resolved_lexically() {
        for (path, expected) in [
            ("a", "a"),
            ("./a//b/./c/", "a/b/c"),
            ("a/../b", "b"),
            ("a/b/../../c", "c"),
        ] {
            check(path, Type::File, "", expected);
        }
        check("d/..", Type::Directory, "", "");
        check("./", Type::Directory, "", "");
        check("", Type::Directory, "", "");
    }

    #[test]
    fn names_that_leave_the_root_are_refused() {
        for path in ["/abs", "../escape", "a/../../escape", "//x", ".."] {
            check(
                path,
                Type::File,
                "",
                &format!("refused tar member {path}: path escapes the extraction root"),
            );
        }
        let root = "only a directory member may name the extraction root";
        for path in ["", ".", "a/.."] {
            check(
                path,
                Type::File,
                "",
                &format!("refused tar member {path}: {root}"),
            );
            check(
                path,
                Type::Symlink,
                "t",
                &format!("refused tar member {path}: {root}"),
            );
        }
    }

    #[test]
    fn links_stay_inside() {
        for target in ["..", "../t", "x/../../t", "nothere", "."] {
            check("d/s", Type::Symlink, target, "d/s");
        }
        let out = |target| {
            format!("refused tar member d/s: link target {target} resolves outside the root")
        };
        check("d/s", Type::Symlink, "../../x", &out("../../x"));
        check("d/s", Type::HardLink, "../x", &out("../x"));
        check("d/s", Type::HardLink, "d/../x", "d/s");
        for kind in [Type::Symlink, Type::HardLink] {
            check(
                "s",
                kind,
                "",
                "refused tar member s: link member has no target",
            );
            check(
                "s",
                kind,
                "/etc/passwd",
                "refused tar member s: absolute link target /etc/passwd",
            );
        }
    }

    #[test]
    fn components_are_stripped_before_anything_is_judged() {
        for (strip, path, expected) in [
            (1, "a/b/c", "b/c"),
            (2, "a//b/c/", "c"),
            (1, "./a/b", "a/b"),
            (1, "/a/b", "b"),
            (1, "../a", "a"),
            (3, "a/b/c", ""),
            (1, "a/", ""),
            (9, "a", ""),
        ] {
            check_stripped(strip, path, Type::File, "", expected);
        }
        let out = "refused tar member a/../b: path escapes the extraction root";
        check_stripped(1, "a/../b", Type::File, "", out);
        // What is left out is not judged.
        check_stripped(1, "p", Type::Fifo, "", "");
        check_stripped(1, "a/h", Type::HardLink, "a/b/t", "b/t");
        check_stripped(1, "a/h", Type::HardLink, "/a/t", "t");
        let gone = "refused tar member a/h: nothing is left of its link target t";
        check_stripped(1, "a/h", Type::HardLink, "t", gone);
        let out = "refused tar member a/s: link target ../t resolves outside the root";
        check_stripped(1, "a/s", Type::Symlink, "../t", out);
    }

    #[test]
    fn types_that_are_no_files_are_refused() {
        for kind in [Type::Fifo, Type::CharDevice, Type::BlockDevice] {
            check(
                "p",
                kind,
                "",
                "refused tar member p: device and fifo members are not extractable",
            );
        }
        check(
            "p",
            Type::Unknown(b'Z'),
            "",
            "refused tar member p: member type 'Z' is not known",
        );
        check(
            "a\0b",
            Type::File,
            "",
            "refused tar member a\u{fffd}b: a name holds a NUL byte",
        );
    }
}
