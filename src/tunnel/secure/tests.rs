//! Tests of the handshake and of the messages behind it, as the two halves and a forger between them see them.

use proptest::prelude::*;

use super::*;

const PORT: u16 = 5432;
const GUEST: [u8; 32] = [7; 32];
const HOST: [u8; 32] = [9; 32];

fn public(private: [u8; 32]) -> [u8; 32] {
    public_key(&private).expect("X25519 is there")
}

fn guest_of(seed: [u8; 32], host: [u8; 32], port: u16) -> Responder {
    let keys = Keys {
        seed,
        host_public_key: public(host),
    };
    Responder::new(&keys, port).expect("it can be built")
}

fn guest() -> Responder {
    guest_of(GUEST, HOST, PORT)
}

fn host_of(private_key: [u8; 32], guest: [u8; 32], protocol: Protocol) -> (Initiator, Vec<u8>) {
    let keys = HostKeys {
        private_key,
        guest_public_key: public(guest),
    };
    Initiator::new(&keys, protocol, PORT).expect("it can be built")
}

fn host(protocol: Protocol) -> (Initiator, Vec<u8>) {
    host_of(HOST, GUEST, protocol)
}

/// The two ends of a tunnel: the host's, the guest's.
fn pair(protocol: Protocol) -> (Session, Session) {
    let (initiator, first) = host(protocol);
    let (answer, guest) = guest().answer(&first).expect("the caller is right");
    (
        initiator.finish(&answer).expect("the guest is right"),
        guest,
    )
}

fn sealed(by: &mut Session, plain: &[u8]) -> Vec<u8> {
    let mut message = vec![0; plain.len() + TAG];
    let length = by.seal(plain, &mut message).expect("it fits");
    assert_eq!(length, message.len());
    message
}

fn opened(by: &mut Session, message: &[u8]) -> Option<Vec<u8>> {
    let mut plain = vec![0; message.len()];
    let length = by.open(message, &mut plain).ok()?;
    plain.truncate(length);
    Some(plain)
}

fn hex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digits).collect()
}

fn base64(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    crate::wire::base64::append(&mut text, bytes);
    String::from_utf8(text).expect("base64 is ASCII")
}

#[test]
fn the_public_keys_of_the_contract_come_out() {
    assert_eq!(
        base64(&public(GUEST)),
        "E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20="
    );
    assert_eq!(
        base64(&public(HOST)),
        "V9tLNZ8jrl4Ubk4lEgVnBHIlBjSMFQwUdT0Mkz0E1CE="
    );
}

#[test]
fn the_prologue_is_the_contracts() {
    let expected = "6d6963726f766d732d74756e6e656c00\
                    4e6f6973655f4b4b5f32353531395f436861436861506f6c795f424c414b45327300\
                    32002f76312f746370001234";
    assert_eq!(Protocol::Second.prologue(0x1234), hex(expected));
    assert_eq!(Protocol::First.prologue(0x1234), b"");
}

#[test]
fn both_generations_are_served() {
    for (protocol, ready) in [(Protocol::First, false), (Protocol::Second, true)] {
        let (mut host, mut guest) = pair(protocol);
        assert_eq!(guest.expects_ready(), ready);
        assert_eq!(host.expects_ready(), ready);
        assert!(guest.peer_promises_end() && host.peer_promises_end());
        for text in ["to the guest", "", "again"] {
            let message = sealed(&mut host, text.as_bytes());
            assert_eq!(
                opened(&mut guest, &message).as_deref(),
                Some(text.as_bytes())
            );
            let message = sealed(&mut guest, text.as_bytes());
            assert_eq!(
                opened(&mut host, &message).as_deref(),
                Some(text.as_bytes())
            );
        }
    }
}

/// The handshake of a caller that writes this payload, in the first generation.
fn answer_to(payload: &[u8]) -> (HandshakeState, Vec<u8>, Session) {
    let peer = public(GUEST);
    let mut state = builder(&HOST, &peer, &[])
        .and_then(Builder::build_initiator)
        .expect("it can be built");
    let mut first = vec![0; HANDSHAKE + payload.len()];
    let length = state.write_message(payload, &mut first).expect("it fits");
    assert_eq!(length, first.len());
    let (answer, session) = guest().answer(&first).expect("the caller is right");
    (state, answer, session)
}

#[test]
fn a_payload_is_read_leniently() {
    for (payload, promises) in [
        (&b""[..], false),
        (b"\x00", false),
        (b"\x01", true),
        (b"\xff", true),
        (b"\x02", false),
        (b"\x01 and what nobody knows yet", true),
        (&[1; MOST_MESSAGE - HANDSHAKE], true),
    ] {
        let (_, _, session) = answer_to(payload);
        let length = payload.len();
        assert_eq!(session.peer_promises_end(), promises, "{length} bytes");
    }
}

#[test]
fn a_caller_without_flags_is_told_of_the_end_of_stream_too() {
    let (mut caller, answer, mut guest) = answer_to(b"");
    assert_eq!(answer.len(), HANDSHAKE + 1);
    let mut flags = [0; 64];
    assert_eq!(caller.read_message(&answer, &mut flags), Ok(1));
    assert_eq!(flags[0], SENDS_END);
    let mut caller = caller.into_transport_mode().expect("the handshake is over");
    let message = sealed(&mut guest, b"hello");
    let mut plain = [0; 64];
    assert_eq!(caller.read_message(&message, &mut plain), Ok(5));
}

#[test]
fn handshake_messages_have_the_size_of_the_contract() {
    let (_, first) = host(Protocol::Second);
    assert_eq!(first.len(), 49);
    let (answer, _) = guest().answer(&first).expect("the caller is right");
    assert_eq!(answer.len(), 49);
}

#[track_caller]
fn is_refused(guest: Responder, first: &[u8]) {
    let error = guest
        .answer(first)
        .expect_err("it is not the pinned host's");
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.sentence().contains("handshake"), "{error}");
}

#[test]
fn a_wrong_caller_is_refused() {
    for protocol in [Protocol::First, Protocol::Second] {
        let (_, first) = host_of([8; 32], GUEST, protocol);
        is_refused(guest(), &first);
    }
}

#[test]
fn a_wrong_pin_is_refused() {
    for protocol in [Protocol::First, Protocol::Second] {
        let (_, first) = host_of(HOST, [6; 32], protocol);
        is_refused(guest(), &first);
    }
}

#[test]
fn a_caller_may_not_mean_another_port() {
    let (_, first) = host(Protocol::Second);
    is_refused(guest_of(GUEST, HOST, PORT + 1), &first);
}

#[test]
fn a_guest_with_another_key_is_refused_by_the_host() {
    for protocol in [Protocol::First, Protocol::Second] {
        let (initiator, _) = host(protocol);
        let (_, other) = host_of(HOST, [6; 32], protocol);
        let impostor = guest_of([6; 32], HOST, PORT);
        let (answer, _) = impostor.answer(&other).expect("it knows its own caller");
        let error = initiator.finish(&answer).expect_err("not the pinned guest");
        assert_eq!(error.kind(), Kind::Unauthorized);
    }
}

#[test]
fn a_first_message_of_any_other_length_is_refused() {
    let (_, first) = host(Protocol::Second);
    for length in 0..first.len() {
        is_refused(guest(), &first[..length]);
    }
    for length in [first.len() + 1, MOST_MESSAGE, MOST_MESSAGE + 1, 1 << 20] {
        let mut longer = first.clone();
        longer.resize(length, 0);
        is_refused(guest(), &longer);
    }
}

#[test]
fn a_changed_bit_of_the_handshake_is_refused() {
    for protocol in [Protocol::First, Protocol::Second] {
        let (_, first) = host(protocol);
        for at in 0..first.len() {
            // X25519 ignores the highest bit of a public key, but the handshake hashes it.
            let mut forged = first.clone();
            forged[at] ^= 0x80;
            is_refused(guest(), &forged);
        }
    }
}

#[test]
fn what_was_recorded_opens_in_no_other_session() {
    for protocol in [Protocol::First, Protocol::Second] {
        let (initiator, first) = host(protocol);
        let (answer, _) = guest().answer(&first).expect("the caller is right");
        let mut host = initiator.finish(&answer).expect("the guest is right");
        let recorded = sealed(&mut host, READY);
        // A first message has nothing of the guest's in it, so a second guest cannot know that it is old.
        let (_, mut again) = guest().answer(&first).expect("it is the host's");
        assert_eq!(opened(&mut again, &recorded), None);
    }
}

#[test]
fn a_message_opens_once() {
    let (mut host, mut guest) = pair(Protocol::Second);
    let message = sealed(&mut host, b"once");
    assert!(opened(&mut guest, &message).is_some());
    assert_eq!(opened(&mut guest, &message), None);
}

#[test]
fn messages_open_in_their_order_only() {
    let (mut host, mut guest) = pair(Protocol::Second);
    let _left_out = sealed(&mut host, b"first");
    let second = sealed(&mut host, b"second");
    assert_eq!(opened(&mut guest, &second), None);
}

#[test]
fn a_message_does_not_open_in_the_direction_it_came_from() {
    let (mut host, _guest) = pair(Protocol::Second);
    let message = sealed(&mut host, b"mirror");
    assert_eq!(opened(&mut host, &message), None);
}

#[test]
fn a_session_that_failed_once_stays_failed() {
    let (mut host, mut guest) = pair(Protocol::Second);
    let message = sealed(&mut host, b"good");
    let mut forged = message.clone();
    forged[0] ^= 1;
    assert_eq!(opened(&mut guest, &forged), None);
    assert_eq!(opened(&mut guest, &message), None);
    let error = guest.open(&message, &mut [0; 64]).expect_err("it failed");
    assert_eq!(error.kind(), Kind::Malformed);
}

#[test]
fn every_changed_bit_and_every_cut_is_seen() {
    let text = b"some text";
    for at in 0..text.len() + TAG {
        let (mut host, mut guest) = pair(Protocol::First);
        let mut message = sealed(&mut host, text);
        let cut = message[..at].to_vec();
        message[at] ^= 1;
        assert_eq!(opened(&mut guest, &message), None, "byte {at}");
        let (mut host, mut guest) = pair(Protocol::First);
        let _ = sealed(&mut host, text);
        assert_eq!(opened(&mut guest, &cut), None, "{at} bytes");
    }
}

#[test]
fn messages_of_every_size_pass_and_larger_ones_do_not() {
    let (mut host, mut guest) = pair(Protocol::Second);
    for length in [0, 1, 15, 16, 17, MOST_PLAIN, MOST_MESSAGE - TAG] {
        let plain: Vec<u8> = (0..=250).cycle().take(length).collect();
        let message = sealed(&mut host, &plain);
        assert_eq!(opened(&mut guest, &message), Some(plain));
    }
    let too_long = [0; MOST_MESSAGE - TAG + 1];
    let mut into = vec![0; MOST_MESSAGE + 1];
    let error = host.seal(&too_long, &mut into).expect_err("too long");
    assert_eq!(error.kind(), Kind::Internal);
    assert_eq!(opened(&mut guest, &into), None);
}

#[test]
fn a_buffer_that_is_too_short_is_an_error() {
    let (mut host, mut guest) = pair(Protocol::Second);
    let message = sealed(&mut host, b"12345");
    let error = guest.open(&message, &mut [0; 4]).expect_err("too short");
    assert_eq!(error.kind(), Kind::Internal);
    let error = host.seal(b"12345", &mut [0; 20]).expect_err("too short");
    assert_eq!(error.kind(), Kind::Internal);
}

#[test]
fn a_buffer_of_the_plaintexts_length_is_enough() {
    let (mut host, mut guest) = pair(Protocol::Second);
    let message = sealed(&mut host, b"12345");
    let mut into = [0; 5];
    assert_eq!(guest.open(&message, &mut into).ok(), Some(5));
    assert_eq!(&into, b"12345");
}

#[test]
fn nothing_prints_a_secret() {
    let keys = Keys {
        seed: GUEST,
        host_public_key: public(HOST),
    };
    let (initiator, first) = host(Protocol::First);
    let responder = guest();
    let shown = format!("{keys:?} {initiator:?} {responder:?}");
    let (_, session) = responder.answer(&first).expect("the caller is right");
    let shown = format!("{shown} {session:?}");
    assert_eq!(
        shown,
        "Keys { .. } Initiator { .. } Responder { .. } Session { .. }"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_refused_as_a_first_message(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(guest().answer(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused_as_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (initiator, _) = host(Protocol::Second);
        prop_assert!(initiator.finish(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused_as_a_message(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        room in 0usize..250,
    ) {
        let (_, mut guest) = pair(Protocol::First);
        prop_assert!(guest.open(&bytes, &mut vec![0; room]).is_err());
    }
}
