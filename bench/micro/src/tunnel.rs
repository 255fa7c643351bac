//! Messages of a verified tunnel, and beside them the cipher alone: how much of its speed is left.

use std::hint::black_box;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ringd::tunnel::secure::{
    HostKeys, Initiator, Keys, MOST_PLAIN, Protocol, Responder, Session, TAG, public_key,
};

use crate::{Bench, Round, noise};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "tunnel/seal-32k",
        bytes: MOST_PLAIN,
        prepare: seal,
    },
    Bench {
        name: "tunnel/seal-and-open-32k",
        bytes: 2 * MOST_PLAIN,
        prepare: seal_and_open,
    },
    Bench {
        name: "tunnel/cipher-alone-32k",
        bytes: MOST_PLAIN,
        prepare: encrypt,
    },
    Bench {
        name: "tunnel/cipher-alone-both-ways-32k",
        bytes: 2 * MOST_PLAIN,
        prepare: encrypt_and_decrypt,
    },
    Bench {
        name: "tunnel/handshake",
        bytes: 0,
        prepare: || Box::new(|| usize::from(pair().0.expects_ready())),
    },
];

/// The two ends of a tunnel.
fn pair() -> (Session, Session) {
    let (guest, host) = ([7; 32], [9; 32]);
    let public = |private| public_key(&private).expect("X25519 is there");
    let keys = Keys {
        seed: guest,
        host_public_key: public(host),
    };
    let responder = Responder::new(&keys, 1).expect("it can be built");
    let keys = HostKeys {
        private_key: host,
        guest_public_key: public(guest),
    };
    let (initiator, first) = Initiator::new(&keys, Protocol::Second, 1).expect("it can be built");
    let (answer, guest) = responder.answer(&first).expect("the caller is right");
    (
        initiator.finish(&answer).expect("the guest is right"),
        guest,
    )
}

fn seal() -> Round {
    let (_, mut guest) = pair();
    let plain = noise(MOST_PLAIN);
    let mut message = vec![0; MOST_PLAIN + TAG];
    Box::new(move || {
        let sealed = guest.seal(black_box(&plain), &mut message);
        black_box(&message);
        sealed.unwrap_or_default()
    })
}

fn seal_and_open() -> Round {
    let (mut host, mut guest) = pair();
    let plain = noise(MOST_PLAIN);
    let mut message = vec![0; MOST_PLAIN + TAG];
    let mut opened = vec![0; MOST_PLAIN + TAG];
    Box::new(move || {
        let sealed = guest.seal(black_box(&plain), &mut message);
        let length = sealed.unwrap_or_default();
        let count = host.open(&message[..length], &mut opened);
        black_box(&opened);
        count.unwrap_or_default()
    })
}

fn key() -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[1; 32]).expect("32 bytes are a key"))
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([2; 12])
}

/// What is in the buffer is of no matter: it is encrypted again and again where it lies.
fn encrypt() -> Round {
    let key = key();
    let mut bytes = noise(MOST_PLAIN);
    Box::new(move || {
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), black_box(&mut bytes));
        tag.map_or(0, |tag| tag.as_ref().len() + MOST_PLAIN)
    })
}

fn encrypt_and_decrypt() -> Round {
    let key = key();
    let mut bytes = noise(MOST_PLAIN);
    bytes.resize(MOST_PLAIN + TAG, 0);
    Box::new(move || {
        let (plain, end) = bytes.split_at_mut(MOST_PLAIN);
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), black_box(plain));
        end.copy_from_slice(tag.as_ref().map_or(&[0; TAG], |tag| tag.as_ref()));
        let opened = key.open_in_place(nonce(), Aad::empty(), black_box(&mut bytes));
        opened.map_or(0, |plain| plain.len())
    })
}
