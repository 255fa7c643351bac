//! Extended attributes and POSIX ACLs as pax records, in the spelling of star that GNU tar and bsdtar share.
//!
//! Sources: xattr(7), acl(5), star(5); the binary form of an ACL is that of linux/posix_acl_xattr.h.

use std::fmt::Write;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::wire::tar::write::record;

/// The records of an open file or directory: `user.*`, `security.capability` and ACLs, by their names.
pub(super) fn records(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut names = Vec::new();
    match whole(|room| rustix::fs::flistxattr(&file, room), &mut names) {
        Ok(()) => {}
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    }
    let mut names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| told(name))
        .collect();
    // The kernel's order is that of their making.
    names.sort_unstable();
    let mut records = Vec::new();
    for name in names {
        let mut value = Vec::new();
        match whole(|room| rustix::fs::fgetxattr(&file, name, room), &mut value) {
            Ok(()) => {}
            // It was taken away meanwhile.
            Err(Errno::NODATA) => continue,
            Err(errno) => return Err(errno),
        }
        let key: &[u8] = match name {
            b"system.posix_acl_access" => b"SCHILY.acl.access",
            b"system.posix_acl_default" => b"SCHILY.acl.default",
            _ => {
                record(&key(name), &value, &mut records);
                continue;
            }
        };
        if let Some(text) = acl(&value) {
            record(key, text.as_bytes(), &mut records);
        }
    }
    Ok(records)
}

/// Asks until the answer fits into the room for it.
fn whole(ask: impl Fn(&mut [u8]) -> Result<usize, Errno>, into: &mut Vec<u8>) -> Result<(), Errno> {
    into.resize(USUAL, 0);
    loop {
        match ask(into) {
            Ok(length) => {
                into.truncate(length);
                return Ok(());
            }
            Err(Errno::RANGE) if into.len() < LARGEST => into.resize(into.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}

fn told(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || matches!(
            name,
            b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default"
        )
}

/// The key of a record ends at the first `=`, so GNU tar writes one in a name as `%3D`, and `%` as `%25`.
fn key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            _ => key.push(*byte),
        }
    }
    key
}

/// `user::rw-,user:1000:r--,group::r--,mask::rw-,other::r--`; `None` for what is no ACL of version 2.
fn acl(value: &[u8]) -> Option<String> {
    let entries = value.strip_prefix(&2u32.to_le_bytes())?;
    let mut text = String::new();
    let whole = entries.chunks_exact(8);
    if !whole.remainder().is_empty() {
        return None;
    }
    for entry in whole {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let bits = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (who, named) = match tag {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(who);
        text.push(':');
        if named {
            // Writing to a string cannot fail.
            let _ = write!(text, "{id}");
        }
        text.push(':');
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if bits & bit == 0 { '-' } else { letter });
        }
    }
    Some(text)
}

const USUAL: usize = 1024;
/// More than the kernel ever answers.
const LARGEST: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_written_as_star_writes_it() {
        let entry = |tag: u16, bits: u16, id: u32| {
            let mut bytes = tag.to_le_bytes().to_vec();
            bytes.extend_from_slice(&bits.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes
        };
        let nobody = u32::MAX;
        let entries = [
            entry(1, 6, nobody),
            entry(2, 7, 1000),
            entry(4, 4, nobody),
            entry(8, 1, 5),
            entry(0x10, 7, nobody),
            entry(0x20, 0, nobody),
        ];
        let mut value = 2u32.to_le_bytes().to_vec();
        value.extend(entries.concat());
        let text = "user::rw-,user:1000:rwx,group::r--,group:5:--x,mask::rwx,other::---";
        assert_eq!(acl(&value).as_deref(), Some(text));
        assert_eq!(acl(&value[..value.len() - 1]), None);
        assert_eq!(acl(&[1, 0, 0, 0]), None);
        assert_eq!(acl(b""), None);
    }

    #[test]
    fn a_key_has_no_sign_that_ends_it() {
        assert_eq!(key(b"user.a=b%"), b"SCHILY.xattr.user.a%3Db%25");
    }
}
