//! Lines out of large text files: the last ones, and windows out of the middle.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};

use super::super::{Sample, take_turns};
use super::exchanges::Exchanges;
use super::reader::Reader;
use crate::bench::{Bench, Needs};
use crate::fixture::{FileSet, LargeFile, MIB, lines};
use crate::load::{Connection, Manner, Request, Unsupported};
use crate::results::ScenarioResults;

/// One question and its only right answer.
struct Page {
    /// What follows the path in the query.
    query: String,
    lines: Vec<u8>,
}

/// The last ten lines of the large file, which is noise with a line end about every 256 bytes.
pub(super) async fn last(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let large = bench.large()?;
    let page = Page {
        query: format!("&last_lines={LAST}"),
        lines: last_lines(large)?,
    };
    let requests = (bench.sizes.requests / LAST_SHARE).max(1);
    read_pages(bench, out, &FileSet::of(large), &[page], requests).await
}

const LAST: usize = 10;
/// One request for so many of `--requests`.
const LAST_SHARE: usize = 20;

/// Windows of a hundred lines, one behind the other, from the middle of a text on.
pub(super) async fn windows(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let bytes = (bench.sizes.large_mib / TEXT_SHARE).clamp(1, TEXT_MIB) * MIB;
    let count = usize::try_from(bytes)? / LINE_BYTES;
    let text = lines(count, LINE_BYTES);
    let path = bench.dir().join("lines.txt");
    std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    let page = |index: usize| {
        let first = count / 2 + index * WINDOW;
        Page {
            query: format!("&start_line={}&end_line={}", first + 1, first + WINDOW),
            lines: text[first * LINE_BYTES..(first + WINDOW) * LINE_BYTES].to_vec(),
        }
    };
    let pages: Vec<Page> = (0..WINDOWS).map(page).collect();
    let set = FileSet {
        crcs: vec![crc32fast::hash(&text)],
        paths: vec![path],
        bytes: text.len() as u64,
    };
    drop(text);
    out.notes.push(format!(
        "The text has {count} lines of {LINE_BYTES} bytes; every answer is compared."
    ));
    let passes = (bench.sizes.requests / WINDOW_SHARE).max(1);
    read_pages(bench, out, &set, &pages, passes * WINDOWS).await
}

/// The text is this part of the large file, and at most so large: whoever knows nothing of it searches it from its front.
const TEXT_SHARE: u64 = 4;
const TEXT_MIB: u64 = 32;
const LINE_BYTES: usize = 64;
const WINDOW: usize = 100;
const WINDOWS: usize = 20;
/// All windows are read once for so many of `--requests`.
const WINDOW_SHARE: usize = 2000;

/// Asks for the pages, one after the other over one connection, and compares every answer.
async fn read_pages(
    bench: &Bench,
    out: &mut ScenarioResults,
    set: &FileSet,
    pages: &[Page],
    requests: usize,
) -> Result<()> {
    let front = front(set)?;
    let exchanges = Exchanges {
        connections: 1,
        requests,
    };
    let readers = Reader::open(bench, out, Needs::GUEST, set).await?;
    take_turns(
        bench,
        out,
        readers,
        async |reader| {
            let mut connection = reader.target.connect(Manner::Ring)?;
            for page in pages {
                ask(&mut connection, reader, page, &front).await?;
            }
            Ok(())
        },
        async |reader| {
            let exchange = async |connection: &mut Connection, index: usize| {
                ask(connection, reader, &pages[index % pages.len()], &front).await
            };
            let mut sample = Sample::default();
            for manner in exchanges.manners() {
                let added = exchanges.add_to(&mut sample, &reader.target, *manner, exchange);
                added.await?;
            }
            Ok(sample)
        },
    )
    .await
}

/// Asks for one page. One who answers with the front of the file does not know the question.
async fn ask(
    connection: &mut Connection,
    reader: &Reader,
    page: &Page,
    front: &[u8],
) -> Result<()> {
    let place = format!("{}{}", reader.get(0).target, page.query);
    let request = Request::get(&place);
    connection.send(request).await?;
    let mut came = Vec::with_capacity(page.lines.len());
    connection
        .body(|bytes| {
            came.extend_from_slice(bytes);
            if came.len() <= page.lines.len() {
                return Ok(());
            }
            if came.starts_with(front) {
                let sentence = format!("it does not know {}", page.query);
                return Err(Unsupported(sentence).into());
            }
            bail!("more came than these lines")
        })
        .await?;
    connection.expect(&[200], request)?;
    ensure!(came == page.lines, "the lines are wrong");
    Ok(())
}

/// Enough of the file's first bytes to know it by.
fn front(set: &FileSet) -> Result<Vec<u8>> {
    let mut front = vec![0; FRONT_BYTES];
    let path = set.paths.first().context("a set has files")?;
    File::open(path)?.read_exact_at(&mut front, 0)?;
    Ok(front)
}

const FRONT_BYTES: usize = 64;

fn last_lines(large: &LargeFile) -> Result<Vec<u8>> {
    let from = large.bytes.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(large.bytes - from)?];
    File::open(&large.path)?.read_exact_at(&mut tail, from)?;
    // The line that ends the file needs no end of its own.
    let inner = &tail[..tail.len() - 1];
    let before = memchr::memrchr_iter(b'\n', inner).nth(LAST - 1);
    let before = before.context("the end of the file has too few lines")?;
    Ok(tail[before + 1..].to_vec())
}

/// More than ten lines of noise ever are.
const TAIL_BYTES: u64 = 256 << 10;
