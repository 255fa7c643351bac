//! The chunked coding of bodies, both ways.

use std::hint::black_box;

use ringd::wire::http::chunked::{Decoder, SIZE_LINE, size_line};

use crate::{Bench, Round, noise};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "chunked/decode-64k",
        bytes: 65_536,
        prepare: || decode(65_536, 4096),
    },
    Bench {
        name: "chunked/decode-16-byte-chunks",
        bytes: 4096,
        prepare: || decode(4096, 16),
    },
    Bench {
        name: "chunked/size-lines",
        bytes: 0,
        prepare: size_lines,
    },
];

fn decode(length: usize, chunk: usize) -> Round {
    let mut body = Vec::new();
    for data in noise(length).chunks(chunk) {
        let size = data.len() as u64;
        body.extend_from_slice(size_line(size, &mut [0; SIZE_LINE]));
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    let mut out = Vec::with_capacity(length);
    Box::new(move || {
        out.clear();
        let mut decoder = Decoder::default();
        let taken = decoder.feed(black_box(&body), &mut out, length);
        assert_eq!(taken, Ok(body.len()), "the body is sound");
        assert!(
            decoder.is_done() && out.len() == length,
            "the body is whole"
        );
        out.len()
    })
}

/// The lines before a hundred chunks of different sizes.
fn size_lines() -> Round {
    Box::new(|| {
        let mut space = [0; SIZE_LINE];
        let lines = (1..=100).map(|size| size_line(black_box(size * 997), &mut space).len());
        lines.sum()
    })
}
