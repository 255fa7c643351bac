//! Digests of content: computed in pieces, with the processor's own instructions where it has them.

use sha2::{Digest, Sha256, Sha512};

/// A sha-256 under way.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The digests that some bytes are expected to have; all that are given are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The sha-256.
    pub sha256: Option<[u8; 32]>,
    /// The sha-512.
    pub sha512: Option<[u8; 64]>,
}

/// A comparison of bytes, in pieces, with the digests that they are expected to have.
#[derive(Clone)]
pub struct Comparison {
    expected: Expected,
    sha256: Sha256,
    sha512: Sha512,
}

impl Comparison {
    /// A comparison that has seen nothing.
    pub fn new(expected: Expected) -> Self {
        Self {
            expected,
            sha256: Sha256::new(),
            sha512: Sha512::new(),
        }
    }

    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.expected.sha256.is_some() {
            self.sha256.update(bytes);
        }
        if self.expected.sha512.is_some() {
            self.sha512.update(bytes);
        }
    }

    /// True when all bytes together have the digests that were expected.
    pub fn agrees(&self) -> bool {
        let Expected { sha256, sha512 } = self.expected;
        let same256 = sha256.is_none_or(|digest| self.sha256.clone().finalize()[..] == digest);
        let same512 = sha512.is_none_or(|digest| self.sha512.clone().finalize()[..] == digest);
        same256 && same512
    }
}
