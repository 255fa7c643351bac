//! Data that is sent in place of an archive, known by its first bytes.

/// What `start` looks like, and what its sender can do; `None` for what nobody knows.
///
/// Sources: RFC 1952, RFC 8878, the xz, bzip2, lz4 and zip file format documents, cpio(5), ar(5).
pub(super) fn recognize(start: &[u8]) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(magic, _)| start.starts_with(magic));
    known.map(|(_, what)| *what)
}

const KNOWN: &[(&[u8], &str)] = &[
    (
        b"\x1f\x8b",
        "this looks like gzip; send it with content-encoding: gzip",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "this looks like zstd; send it with content-encoding: zstd",
    ),
    (
        b"\xfd7zXZ\0",
        "this looks like xz, which is not decoded here; decompress it, or use zstd or gzip",
    ),
    (
        b"BZh",
        "this looks like bzip2, which is not decoded here; decompress it, or use zstd or gzip",
    ),
    (
        b"\x04\x22\x4d\x18",
        "this looks like lz4, which is not decoded here; decompress it, or use zstd or gzip",
    ),
    (b"PK\x03\x04", "this looks like zip; send a tar archive"),
    (b"PK\x05\x06", "this looks like zip; send a tar archive"),
    (b"070701", "this looks like cpio; send a tar archive"),
    (b"070702", "this looks like cpio; send a tar archive"),
    (b"070707", "this looks like cpio; send a tar archive"),
    (b"\xc7\x71", "this looks like cpio; send a tar archive"),
    (b"!<arch>\n", "this looks like ar; send a tar archive"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_known_by_its_first_bytes() {
        let gzip = recognize(b"\x1f\x8b\x08\0").expect("gzip");
        assert!(gzip.contains("content-encoding: gzip"), "{gzip}");
        let zstd = recognize(b"\x28\xb5\x2f\xfd\x04").expect("zstd");
        assert!(zstd.contains("content-encoding: zstd"), "{zstd}");
        assert!(recognize(b"BZh9").is_some_and(|what| what.contains("bzip2")));
        assert_eq!(recognize(b""), None);
        assert_eq!(recognize(b"\x1f"), None);
        assert_eq!(recognize(b"name"), None);
    }
}
