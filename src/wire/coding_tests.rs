//! Tests of the codings: any bytes, cut anywhere, and everything that is not one.

use proptest::prelude::*;

use super::*;

const BOTH: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

/// `plain` in pieces, with a pause behind every other one.
fn encoded(coding: Coding, pieces: &[&[u8]]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding).expect("there is memory");
    let mut coded = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let then = [Then::More, Then::Pause][index % 2];
        encoder
            .feed(piece, &mut coded, then)
            .expect("it is encoded");
    }
    encoder
        .feed(b"", &mut coded, Then::End)
        .expect("it is encoded");
    coded
}

fn whole(coding: Coding, plain: &[u8]) -> Vec<u8> {
    encoded(coding, &[plain])
}

/// Decodes what comes in pieces of at most `most`, through a buffer with `room`.
fn decoded(coding: Coding, coded: &[u8], most: usize, room: usize) -> Result<Vec<u8>> {
    let mut decoder = Decoder::new(coding)?;
    let mut plain = Vec::new();
    let mut buffer = Vec::with_capacity(room);
    for piece in coded.chunks(most) {
        let mut input = piece;
        while !input.is_empty() || decoder.holds_back() {
            decoder.feed(&mut input, &mut buffer)?;
            plain.append(&mut buffer);
        }
    }
    decoder.finish().map(|()| plain)
}

#[track_caller]
fn refused(coding: Coding, coded: &[u8], expected: &str) {
    for most in [1, 7, 4096] {
        let error = decoded(coding, coded, most, 1000).expect_err(expected);
        assert_eq!(error.kind(), Kind::Malformed);
        assert_eq!(error.sentence(), expected, "in pieces of {most}");
    }
}

/// Bytes that a coding finds something to do with.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::collection::vec(any::<u8>(), 1..20);
    let words = prop::collection::vec((word, 1usize..200), 0..20);
    words.prop_map(|words| {
        let repeated = words.iter().map(|(word, times)| word.repeat(*times));
        repeated.flatten().collect()
    })
}

proptest! {
    #[test]
    fn what_was_encoded_in_pieces_is_decoded_in_pieces(
        pieces in prop::collection::vec(text(), 0..6),
        most in 1usize..5000,
        room in 1usize..5000,
    ) {
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        for coding in BOTH {
            let coded = encoded(coding, &slices);
            prop_assert_eq!(decoded(coding, &coded, most, room).ok(), Some(pieces.concat()));
        }
    }

    #[test]
    fn a_body_that_is_cut_anywhere_is_refused(plain in text(), at in any::<prop::sample::Index>()) {
        for coding in BOTH {
            let coded = whole(coding, &plain);
            let cut = &coded[..at.index(coded.len())];
            let error = decoded(coding, cut, 100, 100).expect_err("it is not whole");
            let end = if cut.is_empty() { "it is empty" } else { "it ends too early" };
            let expected = format!("malformed {} body at byte {}: {end}", coding.name(), cut.len());
            prop_assert_eq!(error.sentence(), expected);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(coded in prop::collection::vec(any::<u8>(), 1..200)) {
        for coding in BOTH {
            let _ = decoded(coding, &coded, 13, 64);
        }
    }

    #[test]
    fn a_byte_that_was_changed_does_not_go_unseen(
        plain in text(), at in any::<prop::sample::Index>(), flip in 1u8..=255,
    ) {
        for coding in BOTH {
            let mut coded = whole(coding, &plain);
            let index = at.index(coded.len());
            coded[index] ^= flip;
            // A field that says nothing of the content may change: then the content is still the same.
            if let Ok(seen) = decoded(coding, &coded, 100, 100) {
                prop_assert_eq!(&seen, &plain);
            }
        }
    }
}

#[test]
fn a_pause_lets_everything_through() {
    for coding in BOTH {
        let mut encoder = Encoder::new(coding).expect("there is memory");
        let mut decoder = Decoder::new(coding).expect("there is memory");
        for piece in [&b"one"[..], b"two", &[7; 100_000], b"x"] {
            let mut coded = Vec::new();
            encoder
                .feed(piece, &mut coded, Then::Pause)
                .expect("it is encoded");
            let mut plain = Vec::with_capacity(piece.len() + 1);
            decoder
                .feed(&mut coded.as_slice(), &mut plain)
                .expect("it is decoded");
            assert_eq!(plain, piece, "{coding:?}");
        }
    }
}

#[test]
fn members_and_frames_follow_each_other() {
    for coding in BOTH {
        let parts: [&[u8]; 4] = [b"one", b"", b"two", &[9; 50_000]];
        let coded: Vec<u8> = parts.iter().flat_map(|part| whole(coding, part)).collect();
        for most in [1, 10, 100_000] {
            let plain = decoded(coding, &coded, most, 777).expect("they are whole");
            assert_eq!(plain, parts.concat(), "{coding:?} in pieces of {most}");
        }
    }
}

#[test]
fn a_skippable_frame_is_skipped() {
    let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let frame = whole(Coding::Zstd, b"content");
    for coded in [
        [&skipped[..], &frame].concat(),
        [&frame[..], skipped].concat(),
        [&frame[..], skipped, &frame].concat(),
    ] {
        for most in [1, 4, 1000] {
            let plain = decoded(Coding::Zstd, &coded, most, 100).expect("it is whole");
            assert!(plain.starts_with(b"content"));
        }
    }
}

#[test]
fn what_follows_and_is_none_is_refused_where_it_begins() {
    let frame = whole(Coding::Zstd, b"content");
    let at = frame.len();
    refused(
        Coding::Zstd,
        &[&frame[..], b"garbage"].concat(),
        &format!("malformed zstd body at byte {at}: no zstd frame begins here"),
    );
    let member = whole(Coding::Gzip, b"content");
    for most in [1, 100] {
        let behind = [&member[..], b"garbage"].concat();
        let error = decoded(Coding::Gzip, &behind, most, 100).expect_err("it is no member");
        let at = member.len();
        let places = [at, at + 1, at + 2].map(|at| format!("malformed gzip body at byte {at}: "));
        let said = error.sentence();
        assert!(places.iter().any(|start| said.starts_with(start)), "{said}");
    }
}

#[test]
fn a_window_larger_than_8_mib_is_refused() {
    // Magic, a descriptor with neither a size nor a single segment, then the window: 2^(10 + n/8) bytes.
    let frame = |exponent: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3, 1, 0, 0];
    let plain = decoded(Coding::Zstd, &frame(23), 100, 100);
    assert_eq!(plain.ok(), Some(Vec::new()));
    let error = decoded(Coding::Zstd, &frame(24), 100, 100).expect_err("it is larger");
    let said = error.sentence();
    assert!(said.ends_with("its window is larger than 8 MiB"), "{said}");
}

#[test]
fn codings_are_known_by_name() {
    assert_eq!(Coding::named(b"ZSTD"), Some(Coding::Zstd));
    assert_eq!(Coding::named(b"gzip"), Some(Coding::Gzip));
    assert_eq!(Coding::named(b"X-Gzip"), Some(Coding::Gzip));
    for name in [&b"br"[..], b"deflate", b"identity", b"", b"zstd ", b"*"] {
        assert_eq!(Coding::named(name), None);
    }
}
