//! Trees as archives: spooled to a temporary file, packed and unpacked by the tar crate on a blocking thread.

use std::io::{BufReader, BufWriter, Seek};
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tokio::fs::File;

use super::{Failure, Shared, files};

const SPOOL_BUFFER_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
pub(super) struct Root {
    path: PathBuf,
}

pub(super) async fn pack(
    State(app): Shared,
    Query(root): Query<Root>,
) -> Result<Response, Failure> {
    let spool = tokio::task::spawn_blocking(move || -> std::io::Result<std::fs::File> {
        let spool = BufWriter::with_capacity(SPOOL_BUFFER_BYTES, tempfile::tempfile()?);
        let mut builder = tar::Builder::new(spool);
        builder.follow_symlinks(false);
        builder.append_dir_all(".", root.path)?;
        let mut file = builder.into_inner()?.into_inner()?;
        file.rewind()?;
        Ok(file)
    });
    let spool = File::from_std(spool.await??);
    let length = spool.metadata().await?.len();
    Ok(files::send(spool, length, app.chunk, "application/x-tar"))
}

pub(super) async fn unpack(Query(root): Query<Root>, body: Body) -> Result<StatusCode, Failure> {
    let spool = tokio::task::spawn_blocking(tempfile::tempfile).await??;
    let spool = files::receive(body, File::from_std(spool)).await?;
    let spool = spool.into_std().await;
    let unpacked = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        let mut spool = BufReader::with_capacity(SPOOL_BUFFER_BYTES, spool);
        spool.rewind()?;
        std::fs::create_dir_all(&root.path)?;
        tar::Archive::new(spool).unpack(&root.path)
    });
    unpacked.await??;
    Ok(StatusCode::NO_CONTENT)
}
