//! What a file is given besides its bytes: mode, owner, time of modification.

use std::fs::File;

use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::super::space;
use crate::error::{Error, Kind, Result};
use crate::wire::tar::Moment;

/// An owner that is asked for: each half is set or left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The number of the user.
    pub user: Option<u32>,
    /// The number of the group.
    pub group: Option<u32>,
}

impl Owner {
    /// True when an owner is asked for.
    pub fn is_given(self) -> bool {
        self.user.is_some() || self.group.is_some()
    }
}

/// Reads a mode: octal, at most 07777, blanks around it, `0o` before it.
///
/// # Errors
/// `Malformed`.
pub fn parse_mode(text: &str) -> Result<u32> {
    let digits = text
        .trim()
        .trim_start_matches("0o")
        .trim_start_matches("0O");
    let mode = u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Kind::Malformed.told(format!("mode {text} is not a valid octal file mode")))
}

/// Reads a time: seconds since 1970, negative before, with up to nine decimals.
///
/// # Errors
/// `Malformed`.
pub fn parse_mtime(text: &str) -> Result<Moment> {
    moment(text).ok_or_else(|| {
        Kind::Malformed.told(format!(
            "mtime {text} is not a number of seconds since 1970"
        ))
    })
}

fn moment(text: &str) -> Option<Moment> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(digits) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    let secs: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{decimals:0<9}").parse().ok()?;
    // A time has whole seconds below it and nanoseconds above them, before 1970 too.
    if whole.starts_with('-') && nanos > 0 {
        return Some(Moment {
            secs: secs.checked_sub(1)?,
            nanos: 1_000_000_000 - nanos,
        });
    }
    Some(Moment { secs, nanos })
}

/// Gives a new file the mode and owner that it is to have: what is asked for, else those of the file that it replaces.
///
/// The owner comes before the mode, since a change of owner clears bits of it.
pub(super) fn dress(
    file: &File,
    there: Option<&Stat>,
    mode: Option<u32>,
    owner: Owner,
) -> Result<()> {
    if there.is_none() && mode.is_none() && !owner.is_given() {
        return Ok(());
    }
    let ours = rustix::fs::fstat(file).map_err(|errno| space::failed(errno, CANNOT_SET_MODE))?;
    let inherited = there.map_or((ours.st_uid, ours.st_gid), |stat| {
        (stat.st_uid, stat.st_gid)
    });
    let mut is = (ours.st_uid, ours.st_gid);
    if owner.is_given() {
        give(file, owner)?;
        is = (owner.user.unwrap_or(is.0), owner.group.unwrap_or(is.1));
    }
    let wanted = (
        owner.user.unwrap_or(inherited.0),
        owner.group.unwrap_or(inherited.1),
    );
    if is != wanted {
        is = inherit(file, is, wanted);
    }
    let Some(mode) = mode.or_else(|| there.map(|stat| kept(stat, is))) else {
        return Ok(());
    };
    match ours.st_mode & 0o7777 == mode {
        true => Ok(()),
        false => set_mode(file, mode),
    }
}

/// The mode of the file that is replaced; the rights of a user or group are lent no further than to its own files.
fn kept(stat: &Stat, owner: (u32, u32)) -> u32 {
    let mut mode = stat.st_mode & 0o7777;
    if stat.st_uid != owner.0 {
        mode &= !0o4000;
    }
    if stat.st_gid != owner.1 {
        mode &= !0o2000;
    }
    mode
}

/// Gives a file to the owner of the one it replaces, as far as we may; answers whose it is then.
fn inherit(file: &File, is: (u32, u32), wanted: (u32, u32)) -> (u32, u32) {
    let (user, group) = (Uid::from_raw(wanted.0), Gid::from_raw(wanted.1));
    if rustix::fs::fchown(file, Some(user), Some(group)).is_ok() {
        return wanted;
    }
    match is.1 != wanted.1 && rustix::fs::fchown(file, None, Some(group)).is_ok() {
        true => (is.0, wanted.1),
        false => is,
    }
}

/// Sets the owner that is asked for.
///
/// # Errors
/// `Denied` when we may not, else `Internal`.
pub(super) fn give(file: &File, owner: Owner) -> Result<()> {
    let user = owner.user.map(Uid::from_raw);
    let group = owner.group.map(Gid::from_raw);
    let given = rustix::fs::fchown(file, user, group);
    given.map_err(|errno| {
        denied(
            errno,
            "the daemon may not set the owner",
            "cannot set owner",
        )
    })
}

/// Sets the time of modification and leaves the other.
///
/// # Errors
/// `Denied` when we may not, else `Internal`.
pub(super) fn set_mtime(file: &File, mtime: Moment) -> Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime.secs,
            tv_nsec: mtime.nanos.into(),
        },
    };
    let set = rustix::fs::futimens(file, &times);
    set.map_err(|errno| denied(errno, "the daemon may not set the time", "cannot set time"))
}

/// Sets the mode exactly.
///
/// # Errors
/// `Internal`.
pub(super) fn set_mode(file: &File, mode: u32) -> Result<()> {
    let set = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    set.map_err(|errno| space::failed(errno, CANNOT_SET_MODE))
}

fn denied(errno: Errno, sentence: &'static str, otherwise: &'static str) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::ROFS => Kind::Denied.told(sentence).because(errno),
        errno => space::failed(errno, otherwise),
    }
}

const CANNOT_SET_MODE: &str = "cannot set mode";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal() {
        for (text, mode) in [
            ("644", 0o644),
            ("0644", 0o644),
            (" 755 ", 0o755),
            ("0o600", 0o600),
            ("0O7", 7),
            ("+644", 0o644),
            ("7777", 0o7777),
        ] {
            assert_eq!(parse_mode(text).ok(), Some(mode), "{text}");
        }
        for text in ["", "888", "100644", "17777", "-1", "rw", "0x1"] {
            let error = parse_mode(text).expect_err(text);
            assert_eq!(
                error.sentence(),
                format!("mode {text} is not a valid octal file mode")
            );
        }
    }

    #[test]
    fn a_time_is_seconds_with_decimals() {
        for (text, secs, nanos) in [
            ("0", 0, 0),
            ("1700000000", 1_700_000_000, 0),
            ("1700000000.5", 1_700_000_000, 500_000_000),
            ("1.000000001", 1, 1),
            ("1.10", 1, 100_000_000),
            ("-1", -1, 0),
            ("-1.25", -2, 750_000_000),
            ("-0.5", -1, 500_000_000),
            ("-0", 0, 0),
        ] {
            assert_eq!(moment(text), Some(Moment { secs, nanos }), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-",
            "+1",
            " 1",
            "1e3",
            "1.0000000001",
            "1.-5",
            "now",
            "9223372036854775808",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
