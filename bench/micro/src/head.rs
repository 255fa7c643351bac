//! Heads of HTTP: those of requests are parsed, those of answers written.

use std::hint::black_box;

use ringd::wire::http::head::{Fields, Head, Limits, Step, parse};
use ringd::wire::http::reply::{Delimiter, Reply};

use crate::{Bench, Round};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "head/typical",
        bytes: TYPICAL.len(),
        prepare: typical,
    },
    Bench {
        name: "head/60-fields",
        bytes: 0,
        prepare: sixty_fields,
    },
    Bench {
        name: "head/byte-by-byte",
        bytes: 0,
        prepare: byte_by_byte,
    },
    Bench {
        name: "head/reply",
        bytes: 0,
        prepare: reply,
    },
];

/// The fields of a request that has these lines.
pub(crate) fn fields(lines: &str) -> Fields {
    whole(format!("GET / HTTP/1.1\r\n{lines}\r\n").as_bytes()).fields
}

fn typical() -> Round {
    let text = TYPICAL.as_bytes().to_vec();
    Box::new(move || {
        let head = whole(black_box(&text));
        let token = head.fields.first("authorization").map_or(0, <[u8]>::len);
        assert!(token > 0 && head.keep_alive, "the head is understood");
        token + head.path().len()
    })
}

fn sixty_fields() -> Round {
    let mut text = "GET /v1/files/content?path=a HTTP/1.1\r\nhost: sandbox\r\n".to_owned();
    for number in 0..58 {
        text.push_str(&format!("x-forwarded-detail-{number}: {number}; q=0.5\r\n"));
    }
    text.push_str("authorization: Bearer token\r\n\r\n");
    Box::new(move || {
        let head = whole(black_box(text.as_bytes()));
        head.fields.first("authorization").map_or(0, <[u8]>::len)
    })
}

/// A head of which one byte comes at a time is looked at anew with each.
fn byte_by_byte() -> Round {
    let text = TYPICAL.as_bytes().to_vec();
    Box::new(move || {
        let waits =
            |end: &usize| matches!(parse(black_box(&text[..*end]), &LIMITS), Ok(Step::More));
        let before = (1..text.len()).filter(waits).count();
        assert_eq!(before, text.len() - 1, "only the last byte ends the head");
        before + whole(black_box(&text)).path().len()
    })
}

fn reply() -> Round {
    Box::new(|| {
        let mut reply = Reply::new(true, http::StatusCode::OK);
        reply
            .field("content-type", black_box("application/octet-stream"))
            .field("etag", black_box("\"1f3a-10000-67c0ffee.1-67c0ffee.2\""))
            .field("last-modified", black_box("Sun, 06 Nov 1994 08:49:37 GMT"))
            .field("accept-ranges", "bytes")
            .delimiter(Delimiter::Length(black_box(65_536)));
        reply.finish().len()
    })
}

fn whole(text: &[u8]) -> Head {
    match parse(text, &LIMITS) {
        Ok(Step::Done(head, used)) if used == text.len() => head,
        other => panic!("not one head: {other:?}"),
    }
}

/// What Python's requests sends.
const TYPICAL: &str = "POST /v1/exec?wait=1&stream=events HTTP/1.1\r\n\
    Host: 169.254.0.21:8080\r\n\
    User-Agent: python-requests/2.34.2\r\n\
    Accept-Encoding: gzip, deflate, zstd\r\n\
    Accept: */*\r\n\
    Connection: keep-alive\r\n\
    Content-Type: application/json\r\n\
    Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    Content-Length: 78\r\n\r\n";

const LIMITS: Limits = Limits {
    bytes: 65_536,
    fields: 100,
    target: 8192,
};
