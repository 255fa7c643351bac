//! The one bounded copy loop: an inflow into a file.

use std::fs::File;

use super::{Inflow, buffers, file};
use crate::error::{Kind, Result};

/// Copies `source` to the start of `file` and answers how many bytes there were.
///
/// After every [`CHECK_EVERY`] bytes `may_go_on` is asked (free space, a cancelled transfer).
///
/// # Errors
/// Those of the source, of the file and of `may_go_on`; what was written stays for the caller to remove.
pub async fn to_file(
    source: &mut dyn Inflow,
    file: &File,
    mut may_go_on: impl AsyncFnMut() -> Result<()>,
) -> Result<u64> {
    let mut writer = file::Writer::new(file)
        .map_err(|error| Kind::Internal.told("cannot write file").because(error))?;
    let mut buffer = buffers::lease();
    let mut checked = 0;
    loop {
        let ended = fill(source, &mut buffer).await?;
        if !buffer.is_empty() {
            let (outcome, bytes) = writer.append(buffer.take()).await;
            buffer.restore(bytes);
            outcome?;
        }
        if ended {
            return Ok(writer.offset);
        }
        if writer.offset - checked >= CHECK_EVERY {
            checked = writer.offset;
            may_go_on().await?;
        }
    }
}

/// Fills `buffer` to its capacity; true when the source has ended.
///
/// # Errors
/// Those of the source.
pub async fn fill(source: &mut dyn Inflow, buffer: &mut Vec<u8>) -> Result<bool> {
    while buffer.len() < buffer.capacity() {
        if source.read(buffer).await? == 0 {
            return Ok(true);
        }
    }
    Ok(source.remaining() == Some(0))
}

/// Bytes between two checks.
pub const CHECK_EVERY: u64 = 8 * 1024 * 1024;
