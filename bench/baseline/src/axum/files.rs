//! Single files: read whole, by byte range or by line window, and written.

use std::io::{ErrorKind, SeekFrom};
use std::path::{Path, PathBuf};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, TryStreamExt, stream};
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};
use tokio_util::io::{ReaderStream, StreamReader};

use super::{Failure, Shared};
use crate::range::Asked;

const BYTES: &str = "application/octet-stream";
/// The capacity that tokio gives a BufReader.
const LINE_BUFFER_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
pub(super) struct ReadQuery {
    path: PathBuf,
    start_line: Option<u64>,
    end_line: Option<u64>,
}

pub(super) async fn read(
    State(app): Shared,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let window = Window::of(query.start_line, query.end_line)?;
    let (mut file, total) = open(&query.path).await?;
    if let Some(window) = window {
        let body = Body::from_stream(window.read(file, app.chunk));
        return Ok(([(header::CONTENT_TYPE, BYTES)], body).into_response());
    }
    let field = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let mut response = match Asked::parse(field, total) {
        Asked::Whole => send(file, total, app.chunk, BYTES),
        Asked::Part { first, last } => {
            file.seek(SeekFrom::Start(first)).await?;
            let length = last - first + 1;
            let span = format!("bytes {first}-{last}/{total}");
            let part = send(file.take(length), length, app.chunk, BYTES);
            (
                StatusCode::PARTIAL_CONTENT,
                [(header::CONTENT_RANGE, span)],
                part,
            )
                .into_response()
        }
        Asked::NotThere => {
            let span = format!("bytes */{total}");
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            (status, [(header::CONTENT_RANGE, span)]).into_response()
        }
    };
    let accepted = header::HeaderValue::from_static("bytes");
    response
        .headers_mut()
        .insert(header::ACCEPT_RANGES, accepted);
    Ok(response)
}

async fn open(path: &Path) -> Result<(File, u64), Failure> {
    let file = File::open(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::told(StatusCode::NOT_FOUND, "no such file"),
        _ => error.into(),
    })?;
    let metadata = file.metadata().await?;
    if metadata.is_dir() {
        let text = "path is a directory; use /v1/fs/tar";
        return Err(Failure::told(StatusCode::BAD_REQUEST, text));
    }
    Ok((file, metadata.len()))
}

/// A response of `length` bytes that are read `chunk` at a time.
pub(super) fn send(
    reader: impl tokio::io::AsyncRead + Send + 'static,
    length: u64,
    chunk: usize,
    kind: &'static str,
) -> Response {
    let body = Body::from_stream(ReaderStream::with_capacity(reader, chunk));
    let head = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    (head, body).into_response()
}

/// Lines by number: the first is 1, both ends are part of it.
struct Window {
    first: u64,
    last: u64,
}

impl Window {
    fn of(start_line: Option<u64>, end_line: Option<u64>) -> Result<Option<Self>, Failure> {
        if start_line.is_none() && end_line.is_none() {
            return Ok(None);
        }
        let first = start_line.unwrap_or(1);
        let last = end_line.unwrap_or(u64::MAX);
        let refusal = if first == 0 {
            "start_line is 1 or more"
        } else if last < first {
            "end_line is before start_line"
        } else {
            return Ok(Some(Self { first, last }));
        };
        Err(Failure::told(StatusCode::BAD_REQUEST, refusal))
    }

    /// Reads line by line from the start of the file. What is sent at once is at least `chunk` bytes, unless it ends.
    fn read(self, file: File, chunk: usize) -> impl Stream<Item = std::io::Result<Bytes>> {
        let reader = BufReader::with_capacity(chunk.max(LINE_BUFFER_BYTES), file);
        let start = (reader, 1);
        stream::try_unfold(start, move |(mut reader, mut number)| async move {
            let mut lines = Vec::with_capacity(chunk);
            while number <= self.last && lines.len() < chunk {
                if reader.read_until(b'\n', &mut lines).await? == 0 {
                    break;
                }
                if number < self.first {
                    lines.clear();
                }
                number += 1;
            }
            let bytes = (!lines.is_empty()).then(|| Bytes::from(lines));
            Ok(bytes.map(|bytes| (bytes, (reader, number))))
        })
    }
}

#[derive(Deserialize)]
pub(super) struct WriteQuery {
    path: PathBuf,
}

pub(super) async fn write(
    Query(query): Query<WriteQuery>,
    body: Body,
) -> Result<StatusCode, Failure> {
    if let Some(parent) = query.path.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    receive(body, File::create(query.path).await?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn receive(body: Body, mut file: File) -> std::io::Result<File> {
    let mut reader = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    tokio::io::copy(&mut reader, &mut file).await?;
    file.flush().await?;
    Ok(file)
}
