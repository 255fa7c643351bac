//! Tests of the scanner: every archive is also fed byte by byte and in uneven pieces, with the same outcome.

use super::super::write::{self, Head};
use super::super::{Moment, Segment, Type};
use super::*;

/// What a scan yields: members with their data.
type Found = std::result::Result<Vec<(Member, Vec<u8>)>, String>;

fn scan_in(pieces: &mut dyn Iterator<Item = &[u8]>) -> Found {
    let mut scanner = Scanner::default();
    let mut found = Vec::new();
    let told = |error: crate::error::Error| error.sentence().to_owned();
    for mut piece in pieces {
        loop {
            match scanner.feed(&mut piece).map_err(told)? {
                Event::More | Event::End => break,
                Event::Member(member) => found.push((member, Vec::new())),
                Event::Data(bytes) => {
                    let last = found.last_mut().expect("data follows a member");
                    last.1.extend_from_slice(bytes);
                }
            }
        }
    }
    scanner.finish().map_err(told)?;
    Ok(found)
}

/// Scans the archive whole, byte by byte and in pieces of uneven lengths.
fn scan(archive: &[u8]) -> Found {
    let whole = scan_in(&mut std::iter::once(archive));
    assert_eq!(scan_in(&mut archive.chunks(1)), whole, "byte by byte");
    for length in [7, 100, 511, 512, 513, 1000] {
        assert_eq!(
            scan_in(&mut archive.chunks(length)),
            whole,
            "in pieces of {length}"
        );
    }
    whole
}

fn head<'a>(path: &'a str, kind: Type) -> Head<'a> {
    Head {
        path: path.as_bytes(),
        link: b"",
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 0,
        size: 0,
        device: (0, 0),
        runs: None,
    }
}

/// A member with data, padded.
fn member(path: &str, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let size = data.len() as u64;
    Head {
        size,
        ..head(path, Type::File)
    }
    .write(&mut out);
    out.extend_from_slice(data);
    write::pad(size, &mut out);
    out
}

/// A member with any type flag, and data.
fn flagged(flag: u8, path: &str, data: &[u8]) -> Vec<u8> {
    let mut out = member(path, data);
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(&out[..512]);
    header.as_old_mut().linkflag = [flag];
    header.set_cksum();
    out[..512].copy_from_slice(header.as_bytes());
    out
}

fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let text: String = records
        .iter()
        .map(|(key, value)| record(key, value))
        .collect();
    flagged(b'x', "pax", text.as_bytes())
}

/// Names and data of the members of the archive.
fn check(archive: &[u8], expected: &[(&str, &[u8])]) -> Vec<Member> {
    let found = scan(archive).expect("the archive is sound");
    let names: Vec<_> = found
        .iter()
        .map(|(member, data)| {
            (
                String::from_utf8_lossy(&member.path).into_owned(),
                data.as_slice(),
            )
        })
        .collect();
    let names: Vec<_> = names
        .iter()
        .map(|(name, data)| (name.as_str(), *data))
        .collect();
    assert_eq!(names, expected);
    found.into_iter().map(|(member, _)| member).collect()
}

fn check_broken(archive: &[u8], expected: &str) {
    assert_eq!(
        scan(archive).map(|_| ()),
        Err(format!("malformed tar archive at byte {expected}"))
    );
}

#[test]
fn data_comes_with_its_member() {
    let archive = [
        member("a", b"one"),
        member("b", b""),
        member("c", &[7; 1025]),
        vec![0; 1024],
    ]
    .concat();
    let members = check(&archive, &[("a", b"one"), ("b", b""), ("c", &[7; 1025])]);
    assert_eq!(members[2].data_at, 512 * 4);
    assert_eq!(members[2].at, 512 * 3);
}

#[test]
fn an_archive_ends_in_three_ways_and_what_follows_is_ignored() {
    let one = member("a", b"x");
    for tail in [0, 512, 1024, 10_240] {
        check(&[one.clone(), vec![0; tail]].concat(), &[("a", b"x")]);
    }
    check(
        &[one.clone(), vec![0; 512], b"garbage".to_vec()].concat(),
        &[("a", b"x")],
    );
    check(&[one.clone(), vec![0; 512], one].concat(), &[("a", b"x")]);
    check(&[], &[]);
    check(&[0; 512], &[]);
}

#[test]
fn what_breaks_off_is_broken_at_its_last_byte() {
    let one = member("a", b"x");
    check_broken(&one[..100], "100: it ends inside a header");
    check_broken(&one[..512], "512: it ends inside a member");
    check_broken(&one[..600], "600: it ends inside a member");
    check_broken(
        &flagged(b'L', "n", b"long"),
        "1024: it ends inside a header",
    );
    check_broken(&[0; 100], "100: it ends inside a header");
}

#[test]
fn garbage_is_broken_where_it_stands() {
    check_broken(&[b'g'; 1024], "0: the checksum of a header is wrong");
    let archive = [member("a", b"x"), vec![b'g'; 512]].concat();
    check_broken(&archive, "1024: the checksum of a header is wrong");
    let zeros = [flagged(b'x', "p", b""), vec![0; 512]].concat();
    check_broken(&zeros, "512: an extension header describes no member");
}

#[test]
fn long_names_come_from_gnu_and_pax_headers() {
    let long = "n".repeat(300);
    check(&member(&long, b"x"), &[(&long, b"x")]);
    let archive = [
        pax(&[("path", &long), ("linkpath", "t"), ("mtime", "-1.25")]),
        member("short", b"x"),
    ]
    .concat();
    let members = check(&archive, &[(&long, b"x")]);
    assert_eq!(members[0].link, b"t");
    assert_eq!(
        members[0].mtime,
        Moment {
            secs: -2,
            nanos: 750_000_000
        }
    );
    assert_eq!((members[0].at, members[0].data_at), (0, 1536));
    let both = [
        flagged(b'L', "n", b"gnu\0"),
        pax(&[("path", "pax")]),
        member("short", b""),
    ]
    .concat();
    check(&both, &[("pax", b"")]);
}

#[test]
fn a_pax_size_wins_over_the_field() {
    let mut archive = [pax(&[("size", "5")]), member("f", b"")].concat();
    archive.extend_from_slice(b"12345");
    archive.resize(2048, 0);
    check(&archive, &[("f", b"12345")]);
}

#[test]
fn an_extension_holds_for_one_member() {
    let archive = [pax(&[("path", "long")]), member("a", b""), member("b", b"")].concat();
    check(&archive, &[("long", b""), ("b", b"")]);
}

#[test]
fn a_global_header_is_skipped() {
    let text = record("comment", &"x".repeat(600)) + &record("path", "no");
    let archive = [flagged(b'g', "g", text.as_bytes()), member("a", b"x")].concat();
    check(&archive, &[("a", b"x")]);
}

#[test]
fn an_extension_that_is_too_long_is_refused() {
    let mut out = Vec::new();
    Head {
        size: LONGEST_EXTENSION + 1,
        ..head("n", Type::Unknown(b'L'))
    }
    .write(&mut out);
    check_broken(&out, "0: an extension header is longer than 1 MiB");
}

#[test]
fn types_are_told_apart() {
    for (flag, kind) in [
        (b'0', Type::File),
        (0, Type::File),
        (b'7', Type::File),
        (b'1', Type::HardLink),
        (b'2', Type::Symlink),
        (b'3', Type::CharDevice),
        (b'4', Type::BlockDevice),
        (b'5', Type::Directory),
        (b'6', Type::Fifo),
        (b'Z', Type::Unknown(b'Z')),
        (b'D', Type::Unknown(b'D')),
    ] {
        assert_eq!(check(&flagged(flag, "n", b""), &[("n", b"")])[0].kind, kind);
    }
    let old = check(&flagged(0, "dir/", b""), &[("dir/", b"")]);
    assert_eq!(old[0].kind, Type::Directory);
}

#[test]
fn a_size_that_no_type_has_is_no_data() {
    for flag in [b'1', b'2', b'5', b'6'] {
        let head = &flagged(flag, "n", b"123")[..512];
        check(
            &[head, &member("a", b"x")].concat(),
            &[("n", b""), ("a", b"x")],
        );
    }
}

#[test]
fn a_prefix_stands_before_the_name() {
    let mut header = Header::new_ustar();
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.name[..4].copy_from_slice(b"leaf");
        ustar.prefix[..3].copy_from_slice(b"dir");
    }
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    check(header.as_bytes(), &[("dir/leaf", b"")]);
}

#[test]
fn a_signed_checksum_is_one_too() {
    let mut out = member("caf\u{e9}", b"");
    let signed: i64 = 8 * 32
        + out[..148]
            .iter()
            .chain(&out[156..512])
            .map(|byte| i64::from(byte.cast_signed()))
            .sum::<i64>();
    out[148..156].copy_from_slice(format!("{signed:06o}\0 ").as_bytes());
    check(&out, &[("caf\u{e9}", b"")]);
}

#[test]
fn sparse_maps_of_every_version_are_read() {
    let runs = [
        Segment {
            offset: 512,
            length: 3,
        },
        Segment {
            offset: 4096,
            length: 2,
        },
    ];
    let data = b"abcde";
    let zero = [
        ("GNU.sparse.size", "9000"),
        ("GNU.sparse.numblocks", "2"),
        ("GNU.sparse.offset", "512"),
        ("GNU.sparse.numbytes", "3"),
        ("GNU.sparse.offset", "4096"),
        ("GNU.sparse.numbytes", "2"),
    ];
    let one = [
        ("GNU.sparse.size", "9000"),
        ("GNU.sparse.name", "f"),
        ("GNU.sparse.map", "512,3,4096,2"),
    ];
    let text = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "f"),
        ("GNU.sparse.realsize", "9000"),
    ];
    let mut mapped = b"2\n512\n3\n4096\n2\n".to_vec();
    mapped.resize(512, 0);
    mapped.extend_from_slice(data);
    for archive in [
        [pax(&zero), member("f", data)].concat(),
        [pax(&one), member("GNUSparseFile.1/f", data)].concat(),
        [pax(&text), member("GNUSparseFile.1/f", &mapped)].concat(),
    ] {
        let members = check(&archive, &[("f", data)]);
        assert_eq!(members[0].runs.as_deref(), Some(runs.as_slice()));
        assert_eq!((members[0].size, members[0].stored), (9000, 5));
    }
}

#[test]
fn a_sparse_map_that_lies_is_refused() {
    let with = |map: &str| {
        let records = [("GNU.sparse.size", "100"), ("GNU.sparse.map", map)];
        [pax(&records), member("f", b"abcde")].concat()
    };
    check(&with("0,5"), &[("f", b"abcde")]);
    check_broken(
        &with("0,4"),
        "1024: a sparse map does not match the stored bytes",
    );
    check_broken(&with("0,3,2,2"), "1024: the runs of a sparse map overlap");
    check_broken(
        &with("98,5"),
        "1024: a sparse map reaches past the end of its file",
    );
    check_broken(
        &with("18446744073709551615,5"),
        "1024: a sparse map has a broken number",
    );
    check_broken(
        &with("0,x"),
        "512: a pax record has a value that is no number",
    );
}

#[test]
fn numbers_that_are_none_are_refused() {
    for (field, what) in [(100, "the mode"), (124, "the size"), (136, "the time")] {
        let mut header = Header::new_old();
        header
            .as_mut_bytes()
            .copy_from_slice(&member("a", b"")[..512]);
        header.as_mut_bytes()[field] = b'x';
        header.set_cksum();
        check_broken(header.as_bytes(), &format!("0: {what} is no number"));
    }
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    header.as_old_mut().linkflag = [b'0'];
    header.set_cksum();
    check_broken(header.as_bytes(), "0: the size is absurd");
}
