//! Archives: heads of members are written, whole archives scanned.

use std::hint::black_box;

use ringd::wire::tar::write::{END, Extra, Head, pad, record, stored};
use ringd::wire::tar::{Event, Scanner, Segment, Type};

use crate::{Bench, Round, noise};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "tar/write-plain",
        bytes: 0,
        prepare: || write(Form::Plain),
    },
    Bench {
        name: "tar/write-long-name",
        bytes: 0,
        prepare: || write(Form::LongName),
    },
    Bench {
        name: "tar/write-pax",
        bytes: 0,
        prepare: || write(Form::Pax),
    },
    Bench {
        name: "tar/write-sparse",
        bytes: 0,
        prepare: || write(Form::Sparse),
    },
    Bench {
        name: "tar/scan-plain",
        bytes: 0,
        prepare: || scan(Form::Plain),
    },
    Bench {
        name: "tar/scan-long-name",
        bytes: 0,
        prepare: || scan(Form::LongName),
    },
    Bench {
        name: "tar/scan-pax",
        bytes: 0,
        prepare: || scan(Form::Pax),
    },
    Bench {
        name: "tar/scan-sparse",
        bytes: 0,
        prepare: || scan(Form::Sparse),
    },
];

/// What is peculiar to the members of an archive.
#[derive(Clone, Copy)]
enum Form {
    /// Nothing: one block says it all.
    Plain,
    /// A name of 180 bytes, in the GNU way.
    LongName,
    /// A name of 180 bytes and nanoseconds, in pax records.
    Pax,
    /// 64 runs of data in a file of 1 MiB, as GNU tar writes them into pax records.
    Sparse,
}

/// A member of one form, with what its head borrows.
struct Sample {
    form: Form,
    name: Vec<u8>,
    records: Vec<u8>,
    runs: Vec<Segment>,
}

impl Sample {
    fn new(form: Form) -> Self {
        let long = format!("packages/{}/index.js", "deep/".repeat(32)).into_bytes();
        let mut records = Vec::new();
        if matches!(form, Form::Pax) {
            record(b"path", &long, &mut records);
        }
        let name = match form {
            Form::LongName => long,
            Form::Plain | Form::Pax | Form::Sparse => b"src/main.rs".to_vec(),
        };
        let run = |index: u64| Segment {
            offset: index * 16_384,
            length: 512,
        };
        Self {
            form,
            name,
            records,
            runs: (0..64).map(run).collect(),
        }
    }

    fn head(&self) -> (Head<'_>, Extra<'_>) {
        let is_sparse = matches!(self.form, Form::Sparse);
        let is_pax = matches!(self.form, Form::Pax);
        let head = Head {
            path: &self.name,
            link: b"",
            kind: Type::File,
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            mtime: 1_764_547_200,
            size: if is_sparse { 1 << 20 } else { 4096 },
            device: (0, 0),
            runs: is_sparse.then_some(self.runs.as_slice()),
        };
        let extra = Extra {
            nanos: if is_pax { 123_456_789 } else { 0 },
            records: &self.records,
        };
        (head, extra)
    }

    fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        for _ in 0..MEMBERS {
            let (head, extra) = self.head();
            head.write_with(&extra, &mut archive);
            let length = stored(head.size, head.runs);
            archive.extend(noise(usize::try_from(length).expect("samples are small")));
            pad(length, &mut archive);
        }
        archive.extend_from_slice(&END);
        archive
    }
}

fn write(form: Form) -> Round {
    let sample = Sample::new(form);
    let mut out = Vec::with_capacity(65_536);
    Box::new(move || {
        out.clear();
        let (head, extra) = sample.head();
        black_box(head).write_with(&black_box(extra), &mut out);
        out.len()
    })
}

/// An archive that comes in pieces of 10,000 bytes, so that they end anywhere.
fn scan(form: Form) -> Round {
    let archive = Sample::new(form).archive();
    Box::new(move || {
        let mut scanner = Scanner::default();
        let mut members = 0;
        let mut data = 0;
        for mut piece in archive.chunks(10_000) {
            loop {
                match scanner.feed(black_box(&mut piece)) {
                    Ok(Event::Member(member)) => members += member.path.len().min(1),
                    Ok(Event::Data(bytes)) => data += bytes.len(),
                    Ok(Event::More | Event::End) => break,
                    Err(error) => panic!("a sound archive is refused: {error}"),
                }
            }
        }
        assert_eq!(
            (members, scanner.has_ended()),
            (MEMBERS, true),
            "all is read"
        );
        data
    })
}

const MEMBERS: usize = 64;
