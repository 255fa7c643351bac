//! Requests, as far as the loops need them: a first line, the length of the body, a range.

use std::io::Read;
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

const MAX_HEAD_BYTES: usize = 16 << 10;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) route: String,
    pub(super) path: String,
    pub(super) count: u64,
    pub(super) width: u64,
    /// Whether a download is the file's own bytes.
    pub(super) sendfile: bool,
    pub(super) length: Option<u64>,
    pub(super) range: Option<String>,
}

impl Request {
    /// Reads one head. Bytes that came behind it are left in `early`. Nothing when the peer has closed.
    pub(super) fn read(stream: &mut TcpStream, early: &mut Vec<u8>) -> Result<Option<Self>> {
        let mut chunk = [0; 4096];
        let end = loop {
            if let Some(end) = early.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            ensure!(
                early.len() < MAX_HEAD_BYTES,
                "the head is larger than {MAX_HEAD_BYTES} bytes"
            );
            let count = stream.read(&mut chunk)?;
            if count == 0 {
                return Ok(None);
            }
            early.extend_from_slice(&chunk[..count]);
        };
        let head = String::from_utf8(early[..end].to_vec()).context("the head is not text")?;
        early.drain(..end + 4);
        Self::parse(&head).map(Some)
    }

    fn parse(head: &str) -> Result<Self> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let method = first.next().unwrap_or_default();
        let target = first.next().context("the first line has no target")?;
        let (route, query) = target.split_once('?').unwrap_or((target, ""));
        let lookup = |key: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        };
        let number = |key: &str| match lookup(key) {
            None => Ok(1),
            Some(text) => text.parse().with_context(|| format!("{key}={text}")),
        };
        let path = lookup("path").unwrap_or_default();
        ensure!(!path.contains('%'), "path is taken as it is: {path}");
        let mut request = Self {
            method: method.to_owned(),
            route: route.to_owned(),
            path: path.to_owned(),
            count: number("count")?,
            width: number("width")?,
            sendfile: match lookup("sendfile") {
                None | Some("0") => false,
                Some("1") => true,
                Some(other) => bail!("sendfile is 0 or 1, not {other:?}"),
            },
            length: None,
            range: None,
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                request.length = Some(value.parse().context("content-length")?);
            } else if name.eq_ignore_ascii_case("range") {
                request.range = Some(value.to_owned());
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_taken_apart() {
        let head =
            "PUT /v1/fs/file?path=/a/b&count=3 HTTP/1.1\r\nContent-Length: 12\r\nrange: bytes=0-1";
        let request = Request::parse(head).expect("it is right");
        assert_eq!(request.method, "PUT");
        assert_eq!(request.route, "/v1/fs/file");
        assert_eq!(request.path, "/a/b");
        assert_eq!((request.count, request.width), (3, 1));
        assert_eq!(request.length, Some(12));
        assert_eq!(request.range.as_deref(), Some("bytes=0-1"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (target, named) in [
            ("/v1/spawn?count=x", "count=x"),
            ("/v1/fs/file?path=/a%20b", "/a%20b"),
            ("/v1/fs/file?path=/a&sendfile=yes", "yes"),
        ] {
            let refused = Request::parse(&format!("GET {target} HTTP/1.1")).err();
            let error = refused.expect("it is wrong");
            assert!(format!("{error:#}").contains(named), "{error:#}");
        }
    }
}
