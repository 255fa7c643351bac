//! `get-1g`: one large file that is in the page cache, downloaded whole.

use anyhow::{Result, ensure};

use super::transfer::{CPU_COPY, CPU_SPIN, GROWTH, RATE_COPY, RATE_SPIN, download, fetch};
use super::{Sample, alternate, warm_up};
use crate::client::Manner;
use crate::lab::Lab;
use crate::report::ScenarioReport;
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "get-1g";

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let large = lab.large()?;
    let (servers, notes) = lab.start_all(&[
        Kind::Ringd,
        Kind::Axum,
        Kind::Axum64,
        Kind::Nginx,
        Kind::Bare,
    ])?;
    warm_up(&servers, |server| check_file(lab, server))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        let target = server.file_target(&large.path, lab.dir());
        let (spin, spin_bytes) = download(server, &target, Manner::Spin)?;
        let (copy, copy_bytes) = download(server, &target, Manner::Sleep)?;
        ensure!(
            spin_bytes == large.bytes && copy_bytes == large.bytes,
            "the length is wrong"
        );
        Ok(Sample::from([
            (CPU_SPIN, spin.cpu_per_gib(spin_bytes)),
            (RATE_SPIN, spin.gib_per_s(spin_bytes)),
            (CPU_COPY, copy.cpu_per_gib(copy_bytes)),
            (RATE_COPY, copy.gib_per_s(copy_bytes)),
            (GROWTH, spin.grown_mib.max(copy.grown_mib)),
        ]))
    })?;
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

/// Every byte must be right, except from the bare loop, which sends no file.
pub(super) fn check_file(lab: &Lab, server: &Server) -> Result<()> {
    let large = lab.large()?;
    let mut crc = crc32fast::Hasher::new();
    let bytes = fetch(
        server,
        &server.file_target(&large.path, lab.dir()),
        |part| crc.update(part),
    )?;
    ensure!(
        bytes == large.bytes,
        "{bytes} bytes came instead of {}",
        large.bytes
    );
    ensure!(
        !server.kind.sends_content() || crc.finalize() == large.crc,
        "a byte is wrong"
    );
    Ok(())
}
