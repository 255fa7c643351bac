//! `put-1g`: one large upload into a new file in a new directory.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::transfer::{CPU_COPY, CPU_SPIN, GROWTH, RATE_COPY, RATE_SPIN, Reading, upload};
use super::{Sample, alternate, warm_up};
use crate::client::Manner;
use crate::fixture::{LargeFile, warm_free_pages};
use crate::lab::Lab;
use crate::report::ScenarioReport;
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "put-1g";

const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let bytes = lab.large()?.bytes;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Bare])?;
    warm_up(&servers, |server| check_upload(lab, server))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        let spin = put(lab, server, Manner::Spin)?;
        let copy = put(lab, server, Manner::Sleep)?;
        Ok(Sample::from([
            (CPU_SPIN, spin.cpu_per_gib(bytes)),
            (RATE_SPIN, spin.gib_per_s(bytes)),
            (CPU_COPY, copy.cpu_per_gib(bytes)),
            (RATE_COPY, copy.gib_per_s(bytes)),
            (GROWTH, spin.grown_mib.max(copy.grown_mib)),
        ]))
    })?;
    notes.push("Before each upload as much page cache is taken and given back, so that no target pays for pages the host had taken.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

/// One measured upload. The file is removed afterwards, outside the measured part.
pub(super) fn put(lab: &Lab, server: &Server, manner: Manner) -> Result<Reading> {
    let bytes = lab.large()?.bytes;
    let path = new_file(lab)?;
    lab.settle()?;
    warm_free_pages(lab.dir(), bytes)?;
    let reading = upload(
        server,
        &target(&path),
        &vec![0x5a; BUFFER_BYTES],
        bytes,
        manner,
    )?;
    let written = std::fs::metadata(&path)?.len();
    ensure!(
        written == bytes,
        "{written} bytes were written instead of {bytes}"
    );
    std::fs::remove_file(&path)?;
    Ok(reading)
}

/// Uploads the large file itself and reads it back.
fn check_upload(lab: &Lab, server: &Server) -> Result<()> {
    let large = lab.large()?;
    let path = new_file(lab)?;
    let mut client = server.client(Manner::Sleep)?;
    client.send_head("PUT", &target(&path), large.bytes)?;
    let mut source = File::open(&large.path)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        client.send(&buffer[..count])?;
    }
    let reply = client.reply()?;
    ensure!(reply.status == 204, "PUT answered {}", reply.status);
    ensure!(
        LargeFile::measure(&path)? == (large.bytes, large.crc),
        "what was written is not what was sent"
    );
    std::fs::remove_file(&path)?;
    Ok(())
}

fn new_file(lab: &Lab) -> Result<PathBuf> {
    let dir = lab.fresh_path("put");
    std::fs::create_dir(&dir)?;
    Ok(dir.join("upload.bin"))
}

fn target(path: &std::path::Path) -> String {
    format!("/v1/fs/file?path={}", path.display())
}
