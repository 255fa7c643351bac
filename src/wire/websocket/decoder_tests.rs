//! Tests of `decoder`: streams that are cut everywhere, and whatever a client must not send.

use super::*;

const MASK: [u8; 4] = [0x12, 0xf0, 0x55, 0x01];

/// A client's frame; `first` has the opcode and the bits before it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        short @ ..126 => out.push(0x80 | u8::try_from(short).expect("it is short")),
        long @ ..65_536 => {
            out.push(0x80 | 126);
            out.extend(u16::try_from(long).expect("it fits").to_be_bytes());
        }
        huge => {
            out.push(0x80 | 127);
            out.extend((huge as u64).to_be_bytes());
        }
    }
    out.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    out.extend(masked.map(|(byte, key)| byte ^ key));
    out
}

/// What a stream says, without regard to how it is handed out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    /// Messages: whether they are text, and their payload.
    messages: Vec<(bool, Vec<u8>)>,
    pings: Vec<Vec<u8>>,
    closed: Option<Option<u16>>,
}

impl Heard {
    fn take(&mut self, piece: &Piece, bytes: &[u8]) {
        match piece {
            Piece::Data(data) => {
                if data.is_first {
                    self.messages.push((data.is_text, Vec::new()));
                }
                let last = self.messages.last_mut().expect("a message has a beginning");
                assert_eq!(last.0, data.is_text);
                last.1.extend_from_slice(&bytes[data.at.clone()]);
            }
            Piece::Ping(at) => self.pings.push(bytes[at.clone()].to_vec()),
            Piece::Close(code) => self.closed = Some(*code),
        }
    }
}

/// Gives the parts one after another, as a receiver does that keeps what is not understood yet.
fn hear(grain: Grain, parts: &[&[u8]]) -> Result<Heard, Violation> {
    let mut decoder = Decoder::new(grain);
    let mut heard = Heard::default();
    let mut bytes = Vec::new();
    let mut ends = 0;
    for part in parts {
        bytes.extend_from_slice(part);
        let mut at = 0;
        while let Some(piece) = decoder.next(&mut bytes, &mut at)? {
            heard.take(&piece, &bytes);
            if let (Grain::Frames(_), Piece::Data(data)) = (grain, &piece) {
                ends += usize::from(data.is_last);
            }
        }
        bytes.drain(..at);
        if grain == Grain::Bytes {
            assert!(bytes.len() <= 139, "{} bytes are kept", bytes.len());
        }
    }
    if grain != Grain::Bytes {
        assert_eq!(ends, heard.messages.len(), "a message has no end");
    }
    Ok(heard)
}

fn conversation() -> (Vec<u8>, Heard) {
    let long: Vec<u8> = (0..=255).cycle().take(300).collect();
    let huge: Vec<u8> = (0..=250).cycle().take(66_000).collect();
    let stream = [
        frame(0x82, b"hello"),
        frame(0x81, "grüß".as_bytes()),
        frame(0x82, b""),
        frame(0x02, &long),
        frame(0x89, b"yes?"),
        frame(0x00, b""),
        frame(0x8a, b"nobody asked"),
        frame(0x80, &huge),
        frame(0x82, &[7; 126]),
        frame(0x89, &[1; 125]),
        frame(0x88, b"\x03\xe9gone"),
        frame(0x82, b"behind the end"),
        b"\xff\xff\xff".to_vec(),
    ];
    let heard = Heard {
        messages: vec![
            (false, b"hello".to_vec()),
            (true, "grüß".into()),
            (false, Vec::new()),
            (false, [long, huge].concat()),
            (false, vec![7; 126]),
        ],
        pings: vec![b"yes?".to_vec(), vec![1; 125]],
        closed: Some(Some(1001)),
    };
    (stream.concat(), heard)
}

#[test]
fn a_stream_says_the_same_wherever_it_is_cut() {
    let (stream, expected) = conversation();
    let ends = (0..420).chain(66_300..stream.len());
    for cut in ends {
        for grain in [Grain::Bytes, Grain::Frames(70_000)] {
            let (front, back) = stream.split_at(cut);
            let heard = hear(grain, &[front, back]).expect("nothing is wrong");
            assert!(heard == expected, "cut at {cut} with {grain:?}");
        }
    }
}

#[test]
fn a_stream_says_the_same_byte_by_byte() {
    let (stream, expected) = conversation();
    let parts: Vec<&[u8]> = stream.chunks(1).collect();
    let heard = hear(Grain::Bytes, &parts).expect("nothing is wrong");
    assert!(heard == expected);
}

#[test]
fn a_frame_is_handed_out_as_it_arrives() {
    let mut whole = frame(0x82, &[9; 1000]);
    let mut decoder = Decoder::new(Grain::Bytes);
    let mut at = 0;
    let piece = decoder.next(&mut whole[..500], &mut at);
    let Ok(Some(Piece::Data(data))) = piece else {
        panic!("{piece:?}");
    };
    assert_eq!(
        (data.at.len(), data.is_first, data.is_last),
        (492, true, false)
    );
    assert_eq!(at, 500);
}

#[test]
fn a_whole_frame_is_waited_for_when_frames_are_asked_for() {
    let mut whole = frame(0x82, &[9; 1000]);
    let mut decoder = Decoder::new(Grain::Frames(1000));
    let mut at = 0;
    assert_eq!(decoder.next(&mut whole[..1007], &mut at), Ok(None));
    assert_eq!(at, 0);
    let piece = decoder.next(&mut whole, &mut at);
    assert!(matches!(piece, Ok(Some(Piece::Data(data))) if data.at.len() == 1000));
}

#[test]
fn what_a_client_must_not_send_is_a_violation() {
    let open = frame(0x02, b"begun");
    let unmasked = vec![0x82, 1, b'x'];
    for (what, stream, code) in [
        ("an unmasked frame", unmasked, 1002),
        ("a reserved bit", frame(0xc2, b"x"), 1002),
        ("another reserved bit", frame(0x92, b"x"), 1002),
        ("a reserved opcode", frame(0x83, b"x"), 1002),
        ("a reserved control opcode", frame(0x8b, b"x"), 1002),
        ("a fragmented ping", frame(0x09, b"x"), 1002),
        ("a long ping", frame(0x89, &[0; 126]), 1002),
        ("a long close", frame(0x88, &[0; 126]), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        (
            "a message in a message",
            [open.clone(), frame(0x82, b"x")].concat(),
            1002,
        ),
        (
            "text in a message",
            [open, frame(0x01, b"x")].concat(),
            1002,
        ),
        ("half a close code", frame(0x88, b"x"), 1002),
        ("close code 0", frame(0x88, &[0, 0]), 1002),
        ("close code 1005", frame(0x88, &1005u16.to_be_bytes()), 1002),
        ("close code 1006", frame(0x88, &1006u16.to_be_bytes()), 1002),
        ("close code 2999", frame(0x88, &2999u16.to_be_bytes()), 1002),
        ("close code 5000", frame(0x88, &5000u16.to_be_bytes()), 1002),
        (
            "a reason that is not text",
            frame(0x88, b"\x03\xe8\xff"),
            1007,
        ),
        (
            "a negative length",
            [&[0x82, 0xff][..], &[0xff; 12]].concat(),
            1002,
        ),
    ] {
        for cut in 0..stream.len().min(20) {
            let outcome = hear(Grain::Bytes, &[&stream[..cut], &stream[cut..]]);
            let violation = outcome.expect_err(what);
            assert_eq!(violation.code, code, "{what}: {violation:?}");
        }
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_on_its_head() {
    let whole = frame(0x82, &[9; 1001]);
    let violation = hear(Grain::Frames(1000), &[&whole[..8]]).expect_err("it is too long");
    assert_eq!(violation.code, 1009);
}

#[test]
fn a_client_may_close_without_a_code_or_with_one_of_its_own() {
    for (payload, code) in [
        (&b""[..], None),
        (b"\x03\xe8", Some(1000)),
        (b"\x0b\xb8bye", Some(3000)),
        (b"\x13\x87", Some(4999)),
    ] {
        let heard = hear(Grain::Bytes, &[&frame(0x88, payload)]).expect("it may");
        assert_eq!(heard.closed, Some(code), "{payload:?}");
    }
}
