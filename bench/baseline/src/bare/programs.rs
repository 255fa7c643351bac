//! Programs: posix_spawn and wait, one at a time or several, and what one writes read from a pipe.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::WaitOptions;

const PIPE_BYTES: usize = 1 << 20;
const LARGE_BYTES: u64 = 64 << 10;

/// One request at a time: a wait for any child would take another's.
static TURN: Mutex<()> = Mutex::new(());

/// Spawns and waits, `count` times. Nanoseconds each.
pub(super) fn spawn(program: &str, count: u64) -> Result<Vec<u64>> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let status = silent(program).status();
        times.push(u64::try_from(start.elapsed().as_nanos())?);
        let status = status.with_context(|| format!("cannot run {program:?}"))?;
        ensure!(status.success(), "{program} failed: {status}");
    }
    Ok(times)
}

/// Spawns `count` times with `width` of them alive at once. Nanoseconds until the last was waited for.
pub(super) fn spawn_many(program: &str, count: u64, width: u64) -> Result<u64> {
    ensure!(width > 0, "width is at least 1");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let (mut begun, mut ended) = (0, 0);
    let mut failure = None;
    while ended < begun || (begun < count && failure.is_none()) {
        if begun < count && begun - ended < width && failure.is_none() {
            match silent(program).spawn() {
                Ok(_) => begun += 1,
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    failure = Some(error.context(format!("cannot run {program:?}")));
                }
            }
            continue;
        }
        let (_, status) = rustix::process::wait(WaitOptions::empty())?.context("no child ended")?;
        ended += 1;
        if status.exit_status() != Some(0) {
            failure = Some(anyhow!("{program} failed: {status:?}"));
        }
    }
    match failure {
        None => Ok(u64::try_from(start.elapsed().as_nanos())?),
        Some(failure) => Err(failure),
    }
}

fn silent(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs a writer of zeros and drops what it writes. Nanoseconds from before the spawn to after the wait.
pub(super) fn capture(buffer: &mut [u8], writer: &str, bytes: u64) -> Result<u64> {
    let command = writer_command(writer, bytes)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let mut total = 0;
    {
        let mut pipe = child.stdout.take().context("the child has no stdout")?;
        rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES)?;
        loop {
            match pipe.read(buffer)? as u64 {
                0 => break,
                count => total += count,
            }
        }
    }
    let status = child.wait()?;
    let took = start.elapsed().as_nanos();
    ensure!(
        total == bytes && status.success(),
        "{command:?} wrote {total} of {bytes} bytes: {status}"
    );
    Ok(u64::try_from(took)?)
}

/// `small` writes 8 KiB with one call, `large` 64 KiB.
fn writer_command(writer: &str, bytes: u64) -> Result<Vec<String>> {
    let words = match writer {
        "small" => format!("/usr/bin/head -c {bytes} /dev/zero"),
        "large" => {
            ensure!(
                bytes.is_multiple_of(LARGE_BYTES),
                "large writes multiples of {LARGE_BYTES} bytes, not {bytes}"
            );
            let blocks = bytes / LARGE_BYTES;
            format!("/bin/dd if=/dev/zero bs={LARGE_BYTES} count={blocks} status=none")
        }
        _ => bail!("no writer is called {writer:?}; there are small and large"),
    };
    Ok(words.split(' ').map(str::to_owned).collect())
}
