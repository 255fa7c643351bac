//! From a header block, and the extension blocks before it, to a member.

use tar::Header;

use super::pax::Records;
use super::{Member, Segment, Type, number, sparse};

/// What extension headers have said about the member to come.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Offset of the first of them; `None` when there was none.
    pub(super) at: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) records: Records,
}

/// A member whose sparse map may still be incomplete.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) member: Member,
    pub(super) runs: Option<Vec<Segment>>,
    /// Where the rest of the map is.
    pub(super) more: More,
}

/// What must be read before the data of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// Nothing.
    Nothing,
    /// Blocks of 21 runs (old GNU).
    Blocks,
    /// Lines of text that count as data (pax version 1.0).
    Text,
}

/// True when the block's checksum is right, as an unsigned sum or as the signed one of some old writers.
pub(super) fn is_sound(header: &Header) -> bool {
    let bytes = header.as_bytes();
    let Some(told) = number::decode(&bytes[148..156]) else {
        return false;
    };
    // The field itself counts as blanks.
    let (before, after) = (&bytes[..148], &bytes[156..]);
    let sum = |part: &[u8]| part.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    if told == i64::from(8 * 32 + sum(before) + sum(after)) {
        return true;
    }
    let sum = |part: &[u8]| {
        part.iter()
            .map(|byte| i64::from(byte.cast_signed()))
            .sum::<i64>()
    };
    told == 8 * 32 + sum(before) + sum(after)
}

/// Puts a member together; the error says what is wrong with the header.
pub(super) fn draft(header: &Header, pending: Pending, at: u64) -> Result<Draft, &'static str> {
    let Pending {
        at: started,
        name,
        link,
        records,
    } = pending;
    let flag = header.as_old().linkflag[0];
    let old_sparse = flag == b'S';
    let path = [records.sparse_name, records.path, name]
        .into_iter()
        .flatten()
        .next();
    let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
    let link = records.link.or(link);
    let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
    let kind = kind(flag, &path);
    let stored = stored(header, kind, records.size)?;
    let mut draft = Draft {
        member: Member {
            path,
            link,
            kind,
            mode: u32::try_from(
                number::decode(&header.as_old().mode).ok_or("the mode is no number")? & 0o7777,
            )
            .unwrap_or(0),
            mtime: match records.mtime {
                Some(moment) => moment,
                None => super::Moment {
                    secs: number::decode(&header.as_old().mtime).ok_or("the time is no number")?,
                    nanos: 0,
                },
            },
            uid: owner(records.uid, &header.as_old().uid),
            gid: owner(records.gid, &header.as_old().gid),
            xattrs: records.xattrs,
            at: started.unwrap_or(at),
            data_at: at + super::BLOCK,
            stored,
            size: stored,
            runs: None,
        },
        runs: None,
        more: More::Nothing,
    };
    if old_sparse {
        draft.old_sparse(header)?;
    } else if kind == Type::File && (records.runs.is_some() || records.runs_in_data) {
        draft.member.size = records.real_size.ok_or("a sparse file has no size")?;
        draft.runs = Some(records.runs.unwrap_or_default());
        if records.runs_in_data {
            draft.more = More::Text;
        }
    }
    Ok(draft)
}

impl Draft {
    fn old_sparse(&mut self, header: &Header) -> Result<(), &'static str> {
        let gnu = header
            .as_gnu()
            .ok_or("a sparse member without a GNU header")?;
        let mut runs = Vec::new();
        sparse::take(&gnu.sparse, &mut runs)?;
        self.member.size = number::unsigned(&gnu.realsize).ok_or("the size is no number")?;
        self.runs = Some(runs);
        if gnu.is_extended() {
            self.more = More::Blocks;
        }
        Ok(())
    }

    /// The member, once its map is complete.
    pub(super) fn settle(self) -> Result<Member, &'static str> {
        let mut member = self.member;
        if let Some(runs) = self.runs {
            member.runs = Some(sparse::settle(runs, member.stored, member.size)?);
        }
        Ok(member)
    }
}

fn kind(flag: u8, path: &[u8]) -> Type {
    match flag {
        // Before POSIX a directory was a file whose name ends in a slash.
        0 if path.ends_with(b"/") => Type::Directory,
        0 | b'0' | b'7' | b'S' => Type::File,
        b'1' => Type::HardLink,
        b'2' => Type::Symlink,
        b'3' => Type::CharDevice,
        b'4' => Type::BlockDevice,
        b'5' => Type::Directory,
        b'6' => Type::Fifo,
        other => Type::Unknown(other),
    }
}

/// The number of an owner; the last one of 32 bits means nobody to the kernel.
fn owner(told: Option<u64>, field: &[u8]) -> Option<u32> {
    let number = told.or_else(|| number::unsigned(field))?;
    u32::try_from(number).ok().filter(|id| *id != u32::MAX)
}

/// Only files have data; the size of other types is a hint at most (POSIX), as GNU tar and Python read it.
fn stored(header: &Header, kind: Type, told: Option<u64>) -> Result<u64, &'static str> {
    match kind {
        Type::File | Type::Unknown(_) => {
            let size = told.or_else(|| number::unsigned(&header.as_old().size));
            let size = size.ok_or("the size is no number")?;
            // So that no sum of offsets can overflow.
            if size > u64::MAX / 4 {
                return Err("the size is absurd");
            }
            Ok(size)
        }
        _ => Ok(0),
    }
}
