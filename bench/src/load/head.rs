//! The head of a response.

use anyhow::{Context, Result};

/// What a response head says.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) length: Option<u64>,
    pub(crate) is_chunked: bool,
    /// The content type as it came.
    pub(crate) media: String,
    /// What the server made of the key of a WebSocket; else empty.
    pub(crate) websocket_accept: String,
}

/// The head at the front of `bytes` and its size, or nothing while it is incomplete.
pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end]).context("a response head is not text")?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status: u16 = first
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("bad status line {first:?}"))?;
    let mut head = Head {
        status,
        length: (status == 204 || status == 304).then_some(0),
        is_chunked: false,
        media: String::new(),
        websocket_accept: String::new(),
    };
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .with_context(|| format!("bad field {line:?}"))?;
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.trim().parse()?);
        }
        if name.eq_ignore_ascii_case("content-type") {
            value.trim().clone_into(&mut head.media);
        }
        if name.eq_ignore_ascii_case("sec-websocket-accept") {
            value.trim().clone_into(&mut head.websocket_accept);
        }
        head.is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
    }
    Ok(Some((head, end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> (Head, usize) {
        parse_head(bytes)
            .expect("the head is right")
            .expect("the head is complete")
    }

    #[test]
    fn a_head_is_found_only_when_it_is_complete() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello";
        for cut in 0..bytes.len() - 5 {
            assert!(
                parse_head(&bytes[..cut])
                    .expect("no part of it is wrong")
                    .is_none(),
                "cut at {cut}"
            );
        }
        let (head, used) = parsed(bytes);
        assert_eq!(
            (head.status, head.length, used),
            (200, Some(12), bytes.len() - 5)
        );
    }

    #[test]
    fn no_content_needs_no_length() {
        let (head, _) = parsed(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!((head.status, head.length), (204, Some(0)));
    }

    #[test]
    fn a_chunked_response_has_no_known_length() {
        let (head, _) = parsed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        assert!(head.is_chunked && head.length.is_none());
    }
}
