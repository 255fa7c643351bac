//! `tar-put-1g`: an archive of one large member, beside the same bytes as a file.

use anyhow::{Result, ensure};

use super::transfer::{GIB, Reading, measure};
use super::{Sample, alternate, put, warm_up};
use crate::client::Manner;
use crate::fixture::{MIB, warm_free_pages};
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "tar-put-1g";

pub(crate) const SPOOLED: Metric = ratio("CPU, PUT tar over PUT file");
pub(crate) const STREAMED: Metric = ratio("CPU, PUT tar spool=off over PUT file");
const CPU_FILE: Metric = cpu("CPU, PUT file");
const CPU_TAR: Metric = cpu("CPU, PUT tar");
const CPU_STREAMED: Metric = cpu("CPU, PUT tar spool=off");
const RATE_FILE: Metric = rate("rate, PUT file");
const RATE_TAR: Metric = rate("rate, PUT tar");
const RATE_STREAMED: Metric = rate("rate, PUT tar spool=off");
const GROWTH: Metric = Metric {
    name: "peak RSS growth, PUT tar",
    unit: "MiB",
    better: Better::Low,
};

const BUFFER_BYTES: usize = 256 << 10;

const fn ratio(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "x",
        better: Better::Low,
    }
}

const fn cpu(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "CPU-s/GiB",
        better: Better::Low,
    }
}

const fn rate(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "GiB/s",
        better: Better::High,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let bytes = lab.large()?.bytes;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum])?;
    warm_up(&servers, |server| put_tar(lab, server, "").map(drop))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        let file = put::put(lab, server, Manner::Spin)?;
        let tar = put_tar(lab, server, "")?;
        let mut sample = Sample::from([
            (CPU_FILE, file.cpu_per_gib(bytes)),
            (CPU_TAR, tar.cpu_per_gib(bytes)),
            (SPOOLED, tar.cpu_s / file.cpu_s),
            (RATE_FILE, file.gib_per_s(bytes)),
            (RATE_TAR, tar.gib_per_s(bytes)),
            (GROWTH, tar.grown_mib),
        ]);
        if server.kind == Kind::Ringd {
            let streamed = put_tar(lab, server, "&spool=off")?;
            sample.push((CPU_STREAMED, streamed.cpu_per_gib(bytes)));
            sample.push((STREAMED, streamed.cpu_s / file.cpu_s));
            sample.push((RATE_STREAMED, streamed.gib_per_s(bytes)));
        }
        Ok(sample)
    })?;
    notes.push(format!(
        "The member has {:.2} GiB; spinning clients.",
        bytes as f64 / GIB
    ));
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

/// One measured upload of an archive with one member into a fresh directory.
fn put_tar(lab: &Lab, server: &Server, option: &str) -> Result<Reading> {
    let bytes = lab.large()?.bytes;
    let root = lab.fresh_path("member");
    lab.settle()?;
    warm_free_pages(lab.dir(), 2 * bytes + 64 * MIB)?;
    let mut header = tar::Header::new_gnu();
    header.set_path("member.bin")?;
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_cksum();
    let padding = vec![0; usize::try_from(bytes.next_multiple_of(512) - bytes)? + 1024];
    let length = 512 + bytes + padding.len() as u64;
    let target = format!("/v1/fs/tar?path={}{option}", root.display());
    let buffer = vec![0x5a; BUFFER_BYTES];
    let mut client = server.client(Manner::Spin)?;
    let (reading, ()) = measure(server, || {
        client.send_head("PUT", &target, length)?;
        client.send(header.as_bytes())?;
        client.send_repeated(&buffer, bytes)?;
        client.send(&padding)?;
        let reply = client.reply()?;
        ensure!(reply.status == 204, "PUT answered {}", reply.status);
        Ok(())
    })?;
    let member = root.join("member.bin");
    let written = std::fs::metadata(&member)?.len();
    ensure!(
        written == bytes,
        "{written} bytes were written instead of {bytes}"
    );
    std::fs::remove_dir_all(&root)?;
    Ok(reading)
}
