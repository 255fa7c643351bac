//! A daemon that packs and extracts archives, in one of the two ways in which it may extract.

use std::cell::{Cell, OnceCell};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::super::turns::Entrant;
use super::super::{measure, opened};
use crate::bench::{Bench, Needs};
use crate::fixture::{Summary, Tree, archive_summary, tree_summary};
use crate::load::{Connection, Manner, Request, Unsupported};
use crate::results::ScenarioResults;
use crate::scenario::measure::Reading;
use crate::target::{Placement, Target};

/// A target under the name of what it does.
pub(in crate::scenario) struct Guest {
    name: String,
    pub(in crate::scenario) target: Rc<Target>,
    /// Further parameters of an upload, each with its `&`.
    pub(super) options: &'static str,
    /// The tree as the target sees it.
    root: OnceCell<PathBuf>,
    /// Length of the archive that it packs.
    length: Cell<u64>,
}

impl Entrant for Guest {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Guest {
    fn new(target: Rc<Target>, suffix: &str, options: &'static str) -> Self {
        Self {
            name: format!("{}{suffix}", target.name),
            target,
            options,
            root: OnceCell::new(),
            length: Cell::new(0),
        }
    }

    /// The targets that can take part.
    pub(in crate::scenario) async fn all(
        bench: &Bench,
        out: &mut ScenarioResults,
        needs: Needs,
    ) -> Result<Vec<Self>> {
        let targets = opened(bench, out, needs, Placement::ServerCpu).await?;
        let guests = targets.into_iter().map(Rc::new);
        Ok(guests.map(|target| Self::new(target, "", "")).collect())
    }

    /// The same, and once more those that can extract while they receive.
    pub(super) async fn both_ways(bench: &Bench, out: &mut ScenarioResults) -> Result<Vec<Self>> {
        let mut guests = Vec::new();
        for guest in Self::all(bench, out, Needs::GUEST).await? {
            let target = Rc::clone(&guest.target);
            guests.push(guest);
            if knows_spool(bench, &target).await? {
                guests.push(Self::new(target, " spool=off", "&spool=off"));
            }
        }
        Ok(guests)
    }

    /// Where the target sees a tree; it is extracted there once where the target does not see our files.
    pub(in crate::scenario) async fn root(&self, bench: &Bench, tree: &Tree) -> Result<&Path> {
        self.place(async || {
            if bench.shares_files(&self.target).await? {
                return Ok(tree.root.clone());
            }
            let root = bench.fresh_path(&self.target, "tree").await?;
            let mut connection = self.target.connect(Manner::Ready)?;
            let archive = std::fs::read(&tree.archive)?;
            put_archive(&mut connection, &root, "", &archive).await?;
            Ok(root)
        })
        .await
    }

    /// The root of what it packs, made by `make` the first time.
    pub(super) async fn place(&self, make: impl AsyncFnOnce() -> Result<PathBuf>) -> Result<&Path> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let root = make().await?;
        Ok(self.root.get_or_init(|| root))
    }

    /// Downloads the tree at `root` and compares it.
    pub(in crate::scenario) async fn check_packed(
        &self,
        root: &Path,
        expected: &Summary,
    ) -> Result<()> {
        let (summary, bytes) = summary_of_archive(&self.target, root).await?;
        self.length.set(bytes);
        ensure!(
            summary == *expected,
            "the archive holds {summary:?} instead of {expected:?}"
        );
        Ok(())
    }

    /// Downloads the tree at `root` `times` times. Also says how long its first byte took, in milliseconds.
    pub(in crate::scenario) async fn download(
        &self,
        target: &Target,
        root: &Path,
        manner: Manner,
        times: usize,
    ) -> Result<(Reading, f64)> {
        let mut connection = target.connect(manner)?;
        let asked = archive_target(root, "");
        let (reading, (first_s, bytes)) = measure(target, async {
            let (mut first_s, mut bytes) = (0.0, 0);
            for _ in 0..times {
                let start = Instant::now();
                connection.send(Request::get(&asked)).await?;
                while connection.present_head().is_none() {
                    let count = |_: &_, part: &[u8]| {
                        bytes += part.len() as u64;
                        Ok(())
                    };
                    connection.receive(count).await?;
                }
                first_s += start.elapsed().as_secs_f64();
                bytes += connection.discard().await?;
            }
            Ok((first_s, bytes))
        })
        .await?;
        let expected = self.length.get() * times as u64;
        ensure!(
            bytes == expected,
            "{bytes} bytes came instead of {expected}"
        );
        Ok((reading, first_s * 1e3 / times as f64))
    }

    /// Compares what lies at `root` on the target.
    pub(in crate::scenario) async fn check_extracted(
        &self,
        bench: &Bench,
        root: &Path,
        expected: &Summary,
    ) -> Result<()> {
        let summary = match bench.shares_files(&self.target).await? {
            true => tree_summary(root)?,
            false => summary_of_archive(&self.target, root).await?.0,
        };
        ensure!(
            summary == *expected,
            "the tree holds {summary:?} instead of {expected:?}"
        );
        Ok(())
    }
}

/// The request target of the archive of a tree.
pub(in crate::scenario) fn archive_target(root: &Path, options: &str) -> String {
    format!("/v1/fs/tar?path={}{options}", root.display())
}

/// Uploads an archive that is in memory.
pub(in crate::scenario) async fn put_archive(
    connection: &mut Connection,
    root: &Path,
    options: &str,
    archive: &[u8],
) -> Result<()> {
    let target = archive_target(root, options);
    let request = Request::of("PUT", &target, b"");
    connection.send_head(request, archive.len() as u64).await?;
    connection.send_bytes(archive).await?;
    expect_done(connection, &target).await
}

/// Reads the answer to an upload.
pub(super) async fn expect_done(connection: &mut Connection, target: &str) -> Result<()> {
    let answer = connection.answer().await?;
    refuse_other(answer.head.status, &[204], &format!("PUT {target}"))
}

/// An error for any status but those that are expected; [`Unsupported`] when there is no such route, or too small a limit.
pub(in crate::scenario) fn refuse_other(status: u16, expected: &[u16], what: &str) -> Result<()> {
    match status {
        _ if expected.contains(&status) => Ok(()),
        404 | 405 | 501 => Err(Unsupported(format!("{what} answered {status}")).into()),
        413 => Err(Unsupported(format!("{what} answered 413: it is too much for it")).into()),
        _ => bail!("{what} answered {status}"),
    }
}

/// Downloads a tree and reads it as it comes, on a thread of its own, so that nothing large is held in memory.
async fn summary_of_archive(target: &Target, root: &Path) -> Result<(Summary, u64)> {
    let mut connection = target.connect(Manner::Ring)?;
    let asked = archive_target(root, "");
    let (pipe, mut feed) = std::io::pipe()?;
    let reader = std::thread::spawn(move || {
        let mut pipe = BufReader::with_capacity(READER_BYTES, pipe);
        let summary = archive_summary(&mut pipe)?;
        // What follows the end of the archive must not break the pipe.
        std::io::copy(&mut pipe, &mut std::io::sink())?;
        Ok::<Summary, anyhow::Error>(summary)
    });
    connection.send(Request::get(&asked)).await?;
    let received = connection
        .body(|bytes| {
            feed.write_all(bytes)
                .context("the archive cannot be read on")
        })
        .await;
    drop(feed);
    let summary = reader.join().ok().context("the reader of the archive")?;
    if let Some(head) = connection.present_head() {
        refuse_other(head.status, &[200], &format!("GET {asked}"))?;
    }
    let summary = summary.with_context(|| format!("GET {asked} gave no archive"))?;
    Ok((summary, received?))
}

/// Whether a target extracts while it receives when it is told `spool=off`.
///
/// It is asked, not looked up: one that knows the parameter takes this value and refuses one that it cannot have; one
/// that ignores the parameter takes both.
async fn knows_spool(bench: &Bench, target: &Target) -> Result<bool> {
    for (options, known) in [("&spool=neither", 400), ("&spool=off", 204)] {
        let root = bench.fresh_path(target, "spool-probe").await?;
        let asked = archive_target(&root, options);
        let request = Request::of("PUT", &asked, &EMPTY_ARCHIVE);
        let answer = target.connect(Manner::Ready)?.ask(request).await?;
        if answer.head.status != known {
            return Ok(false);
        }
    }
    Ok(true)
}

const READER_BYTES: usize = 1 << 20;
const EMPTY_ARCHIVE: [u8; 1024] = [0; 1024];
