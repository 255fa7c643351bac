//! Sparse members of every format: expanded exactly, and still sparse on disk (D14, wish 20).

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::archive::{BLOCK, Member, archive, file, padded, pax, pax_record};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::tar_at;
use crate::scratch::{noise, tree};

both![
    every_sparse_format_is_expanded,
    a_sparse_member_of_many_pieces_is_expanded,
    a_hole_stays_a_hole,
    a_sparse_map_that_is_wrong_is_refused,
];

/// The pieces of a sparse file, in order, and its length.
struct Sparse {
    pieces: Vec<(u64, Vec<u8>)>,
    length: u64,
}

fn every_sparse_format_is_expanded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let sparse = |pieces: &[(u64, usize)], length: u64| Sparse {
        pieces: pieces
            .iter()
            .map(|(offset, length)| (*offset, noise(*length)))
            .collect(),
        length,
    };
    let shapes = [
        ("a hole at the end", sparse(&[(0, 512)], 100_000)),
        ("a hole at the beginning", sparse(&[(99_488, 512)], 100_000)),
        (
            "holes between",
            sparse(&[(0, 512), (4096, 1024), (65_536, 2048)], 70_000),
        ),
        ("odd pieces", sparse(&[(512, 7), (1000, 513)], 2000)),
        ("only a hole", sparse(&[], 50_000)),
        ("no hole", sparse(&[(0, 1000)], 1000)),
        ("empty", sparse(&[], 0)),
    ];
    for (shape, sparse) in &shapes {
        for (format, members) in formats(sparse) {
            let body = archive(
                [file("before", "1")]
                    .into_iter()
                    .chain(members)
                    .chain([file("after", "2")]),
            );
            daemon.put(tar_at(daemon.path("root")), body).bare(204);
            let found = fs::read(daemon.path("root/name")).expect("it was extracted");
            assert!(
                found == sparse.content(),
                "{shape} as {format}: {} bytes",
                found.len()
            );
            assert_eq!(tree(&daemon.path("root")).len(), 3, "{shape} as {format}");
            fs::remove_dir_all(daemon.path("root")).expect("ours");
        }
    }
}

fn a_sparse_member_of_many_pieces_is_expanded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // More than a header has room for, and more than one extension block has.
    for count in [5_u64, 26, 120] {
        let pieces = (0..count)
            .map(|number| (number * 4096, noise(100)))
            .collect();
        let sparse = Sparse {
            pieces,
            length: count * 4096,
        };
        for (format, members) in formats(&sparse) {
            daemon
                .put(tar_at(daemon.path("root")), archive(members))
                .bare(204);
            let found = fs::read(daemon.path("root/name")).expect("it was extracted");
            assert!(found == sparse.content(), "{count} pieces as {format}");
        }
    }
}

fn a_hole_stays_a_hole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let sparse = Sparse {
        pieces: vec![(0, noise(4096)), (9 << 20, noise(4096))],
        length: 10 << 20,
    };
    for (format, members) in formats(&sparse) {
        daemon
            .put(tar_at(daemon.path(format)), archive(members))
            .bare(204);
        let found = fs::metadata(daemon.path(format).join("name")).expect("it was extracted");
        assert_eq!(found.len(), 10 << 20, "{format}");
        assert!(
            found.blocks() * 512 < 1 << 20,
            "{format}: {} blocks",
            found.blocks()
        );
    }
}

fn a_sparse_map_that_is_wrong_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = tree(&daemon.path(""));
    let maps = [
        ("out of order", "4096,512,0,512", 1024),
        ("overlapping", "0,1024,512,512", 1536),
        ("past the end", "0,512,99999999,512", 1024),
        ("more data than pieces", "0,512", 1024),
        ("more pieces than data", "0,512,1024,512", 512),
        ("no number", "a,b", 512),
        ("half a pair", "0,512,1024", 512),
        ("too large", "18446744073709551615,512", 512),
    ];
    for (what, map, stored) in maps {
        let records = [
            ("GNU.sparse.size", "8192"),
            ("GNU.sparse.map", map),
            ("GNU.sparse.name", "name"),
        ];
        let members = [pax(b'x', &records), file("ignored", noise(stored))];
        let reply = daemon.put(tar_at(daemon.path("root")), archive(members));
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert_eq!(tree(&daemon.path("")), before, "{what}");
    }
}

impl Sparse {
    /// What a reader of the file sees.
    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(self.length).expect("small")];
        for (offset, piece) in &self.pieces {
            let offset = usize::try_from(*offset).expect("small");
            content[offset..offset + piece.len()].copy_from_slice(piece);
        }
        content
    }

    /// The pieces one behind the other, as an archive stores them.
    fn stored(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(|(_, piece)| piece.clone())
            .collect()
    }

    /// The map, with the empty piece that GNU tar puts at the end of a file that ends in a hole.
    fn map(&self) -> Vec<(u64, u64)> {
        let length = |piece: &Vec<u8>| u64::try_from(piece.len()).expect("64 bits");
        let mut map: Vec<(u64, u64)> = self
            .pieces
            .iter()
            .map(|(offset, piece)| (*offset, length(piece)))
            .collect();
        if map
            .last()
            .is_none_or(|(offset, length)| offset + length < self.length)
        {
            map.push((self.length, 0));
        }
        map
    }
}

/// The same file in each format that GNU tar has written.
fn formats(sparse: &Sparse) -> [(&'static str, Vec<Member>); 4] {
    [
        ("gnu", vec![old_gnu(sparse)]),
        ("pax-0.0", pax_0_0(sparse)),
        ("pax-0.1", pax_0_1(sparse)),
        ("pax-1.0", pax_1_0(sparse)),
    ]
}

/// Four pieces in the header, 21 in each block behind it, then the data.
fn old_gnu(sparse: &Sparse) -> Member {
    let map = sparse.map();
    let (first, more) = map.split_at(map.len().min(4));
    let mut data = Vec::new();
    let mut blocks = more.chunks(21).peekable();
    while let Some(pieces) = blocks.next() {
        let mut block = entries(pieces);
        block.resize(504, 0);
        block.push(u8::from(blocks.peek().is_some()));
        block.resize(BLOCK, 0);
        data.extend_from_slice(&block);
    }
    data.extend_from_slice(&sparse.stored());
    let stored = u64::try_from(sparse.stored().len()).expect("64 bits");
    Member::new(b'S', "name")
        .data(data)
        .size(stored)
        .gnu()
        .patch(386, entries(first))
        .patch(482, [u8::from(!more.is_empty())])
        .patch(483, format!("{:011o}\0", sparse.length))
}

fn pax_0_0(sparse: &Sparse) -> Vec<Member> {
    let mut records = pax_record("GNU.sparse.size", sparse.length.to_string().as_bytes());
    records.extend(pax_record(
        "GNU.sparse.numblocks",
        sparse.map().len().to_string().as_bytes(),
    ));
    for (offset, length) in sparse.map() {
        records.extend(pax_record(
            "GNU.sparse.offset",
            offset.to_string().as_bytes(),
        ));
        records.extend(pax_record(
            "GNU.sparse.numbytes",
            length.to_string().as_bytes(),
        ));
    }
    vec![
        Member::new(b'x', "@PaxHeader").data(records),
        file("name", sparse.stored()),
    ]
}

fn pax_0_1(sparse: &Sparse) -> Vec<Member> {
    let map: Vec<String> = sparse
        .map()
        .iter()
        .map(|(offset, length)| format!("{offset},{length}"))
        .collect();
    let (size, count, map) = (
        sparse.length.to_string(),
        map.len().to_string(),
        map.join(","),
    );
    let records = [
        ("GNU.sparse.size", size.as_str()),
        ("GNU.sparse.numblocks", count.as_str()),
        ("GNU.sparse.name", "name"),
        ("GNU.sparse.map", map.as_str()),
    ];
    vec![
        pax(b'x', &records),
        file("GNUSparseFile.1/name", sparse.stored()),
    ]
}

fn pax_1_0(sparse: &Sparse) -> Vec<Member> {
    let mut map = format!("{}\n", sparse.map().len());
    for (offset, length) in sparse.map() {
        map.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut data = padded(map.as_bytes());
    data.extend_from_slice(&sparse.stored());
    let size = sparse.length.to_string();
    let records = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "name"),
        ("GNU.sparse.realsize", size.as_str()),
    ];
    vec![pax(b'x', &records), file("GNUSparseFile.1/name", data)]
}

/// Pairs of octal numbers, twelve bytes each.
fn entries(pieces: &[(u64, u64)]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|(offset, length)| format!("{offset:011o}\0{length:011o}\0").into_bytes())
        .collect()
}
