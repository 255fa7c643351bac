//! A target and the files that it is asked for, and how they are looked at.

use anyhow::{Result, ensure};

use super::super::opened;
use super::super::turns::Entrant;
use crate::bench::{Bench, Needs};
use crate::fixture::FileSet;
use crate::load::{Connection, Manner, Request, closed_loop, open_many};
use crate::results::ScenarioResults;
use crate::target::{Dialect, Placement, Target};

/// Anyone who serves files. The bare loops send them with sendfile(2).
pub(super) const ANYONE: Needs = Needs::dialects(&[Dialect::Guest, Dialect::Plain, Dialect::Bare]);

/// A target that has the files of a set.
pub(super) struct Reader {
    pub(super) target: Target,
    /// Where it has them: request targets, in the order of the set.
    places: Vec<String>,
}

impl Reader {
    /// Opens the targets that can take part, and gives the files to those that do not see them.
    pub(super) async fn open(
        bench: &Bench,
        out: &mut ScenarioResults,
        needs: Needs,
        set: &FileSet,
    ) -> Result<Vec<Self>> {
        let mut readers = Vec::new();
        for target in opened(bench, out, needs, Placement::ServerCpu).await? {
            let mut places = Vec::with_capacity(set.paths.len());
            for path in &set.paths {
                let path = bench.provide(&target, path).await?;
                let mut place = target.file(&path, bench.dir());
                if target.dialect == Dialect::Bare {
                    place += "&sendfile=1";
                }
                places.push(place);
            }
            readers.push(Self { target, places });
        }
        Ok(readers)
    }

    pub(super) async fn connect(&self, manner: Manner, count: usize) -> Result<Vec<Connection>> {
        open_many(&self.target.endpoint, manner, count).await
    }

    /// The request for the file of an index; after the last comes the first again.
    pub(super) fn get(&self, index: usize) -> Request<'_> {
        Request::get(&self.places[index % self.places.len()])
    }

    /// Fetches every file of the set over so many connections and looks at every byte.
    pub(super) async fn check(&self, set: &FileSet, connections: usize) -> Result<()> {
        let manner = match connections {
            1 => Manner::Ring,
            _ => Manner::Ready,
        };
        let exchange = async |connection: &mut Connection, index: usize| {
            let (bytes, crc) = summary(connection, self.get(index), &[200]).await?;
            ensure!(
                bytes == set.bytes,
                "{bytes} bytes came instead of {}",
                set.bytes
            );
            ensure!(crc == set.crcs[index], "a byte is wrong");
            Ok(())
        };
        let mut connections = self.connect(manner, connections).await?;
        closed_loop(&mut connections, set.paths.len(), exchange).await?;
        Ok(())
    }
}

impl Entrant for Reader {
    fn name(&self) -> &str {
        &self.target.name
    }
}

/// Length and checksum of what comes.
pub(super) async fn summary(
    connection: &mut Connection,
    request: Request<'_>,
    statuses: &[u16],
) -> Result<(u64, u32)> {
    connection.send(request).await?;
    let mut crc = crc32fast::Hasher::new();
    let bytes = connection
        .body(|bytes| {
            crc.update(bytes);
            Ok(())
        })
        .await?;
    connection.expect(statuses, request)?;
    Ok((bytes, crc.finalize()))
}

/// Fetches `bytes` bytes and drops them.
pub(super) async fn discard(
    connection: &mut Connection,
    request: Request<'_>,
    status: u16,
    bytes: u64,
) -> Result<()> {
    connection.send(request).await?;
    let came = connection.discard().await?;
    connection.expect(&[status], request)?;
    ensure!(came == bytes, "{came} bytes came instead of {bytes}");
    Ok(())
}
