//! Buffers that the ring knows: the kernel need not look up and pin their pages for each transfer.

use std::cell::RefCell;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use tokio_uring::buf::fixed::{FixedBuf, FixedBufPool};

/// One receive or send of the bulk paths: what a socket holds, and what stays in the cache.
pub(crate) const STEP_BYTES: usize = 256 << 10;
/// So many transfers at once have a buffer each, where that may be; further ones wait for one.
const COUNT: usize = 64;
/// With fewer there is no use in measuring.
const LEAST: usize = 4;

thread_local! {
    static POOL: RefCell<Option<FixedBufPool<Vec<u8>>>> = const { RefCell::new(None) };
}

/// Registers the buffers with the ring of this thread: fewer of them where a user may lock little memory, often 8 MiB
/// (RLIMIT_MEMLOCK in getrlimit(2)).
pub(super) fn register() -> Result<()> {
    let mut count = COUNT;
    let pool = loop {
        let pool = FixedBufPool::new((0..count).map(|_| Vec::with_capacity(STEP_BYTES)));
        match pool.register() {
            Ok(()) => break pool,
            Err(error) if error.kind() == ErrorKind::OutOfMemory && count > LEAST => count /= 2,
            Err(error) => {
                return Err(error)
                    .context("cannot register buffers with the ring (RLIMIT_MEMLOCK?)");
            }
        }
    };
    POOL.with_borrow_mut(|slot| *slot = Some(pool));
    Ok(())
}

/// A buffer of [`STEP_BYTES`]; given back when dropped.
pub(super) async fn lease() -> Result<FixedBuf> {
    let pool = POOL.with_borrow(Clone::clone);
    let pool = pool.context("the load side does not run")?;
    Ok(pool.next(STEP_BYTES).await)
}
