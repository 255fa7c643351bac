//! What holds for every tree, every archive and every way of cutting bytes.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use proptest::prelude::*;
use ringd::error::{Kind, Result};
use ringd::fs::{extract, pack};
use ringd::ring::flow::Ready;
use ringd::ring::{Frame, Outflow, Step};
use ringd::wire::tar::write::{self, Head};
use ringd::wire::tar::{Event, Member, Scanner, Type};

type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// One runtime for all cases: a thread has one in its life.
static RUNTIME: LazyLock<Sender<Job>> = LazyLock::new(|| {
    let (sender, jobs) = channel::<Job>();
    std::thread::spawn(move || {
        let main = async {
            while let Ok(job) = jobs.recv() {
                job().await;
            }
            0
        };
        ringd::ring::start(ringd::ring::Choice::Auto, main).expect("a runtime starts");
    });
    sender
});

fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
    make: impl FnOnce() -> F + Send + 'static,
) -> T {
    let (sender, answer) = channel();
    let job: Job = Box::new(move || {
        let future = make();
        Box::pin(async move {
            let _ = sender.send(future.await);
        })
    });
    RUNTIME.send(job).expect("the runtime runs");
    answer.recv().expect("the job does not panic")
}

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("ringd-properties-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the name is fresh");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What a test made unreadable is made readable, for those who are not root.
        let _ = std::process::Command::new("chmod")
            .args(["-R", "u+rwX"])
            .arg(&self.0)
            .output();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Sink(Vec<u8>);

impl Outflow for Sink {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()> {
        self.0.extend_from_slice(bytes);
        Box::pin(async { Ok(()) })
    }

    fn flush(&mut self) -> Step<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn offer(&mut self, _: &[Frame<'_>]) -> Result<usize> {
        unreachable!("nobody offers here")
    }

    fn ready(&mut self) -> Step<'_, ()> {
        unreachable!("nobody offers here")
    }

    fn send_file<'a>(
        &'a mut self,
        file: &'a std::fs::File,
        offset: u64,
        length: u64,
    ) -> Step<'a, ()> {
        Box::pin(async move {
            let before = self.0.len();
            self.0
                .resize(before + usize::try_from(length).expect("it fits"), 0);
            let read =
                std::os::unix::fs::FileExt::read_exact_at(file, &mut self.0[before..], offset);
            read.map_err(|error| Kind::Internal.told("cannot read file").because(error))
        })
    }
}

fn packed(path: &Path) -> Vec<u8> {
    let path = path.to_owned();
    let outcome: Result<Vec<u8>> = run(move || async move {
        let pack = pack::plan(
            &path,
            pack::Options::whole(pack::Limits {
                members: 10_000,
                bytes: 1 << 40,
            }),
        )
        .await?;
        let length = pack.length();
        let mut sink = Sink::default();
        pack.send(&mut sink).await?;
        assert_eq!(sink.0.len() as u64, length);
        Ok(sink.0)
    });
    outcome.expect("the tree can be packed")
}

/// How an archive is extracted.
#[derive(Clone, Copy, Debug)]
enum Way {
    Memory,
    Disk,
    Streamed,
}

const WAYS: [Way; 3] = [Way::Memory, Way::Disk, Way::Streamed];

fn extracted(root: &Path, archive: Vec<u8>, way: Way) -> Result<()> {
    let root = root.to_owned();
    run(move || async move {
        let limits = extract::Limits {
            members: 10_000,
            bytes: 1 << 40,
            reserve: 0,
            spool_dir: std::env::temp_dir(),
            spool_memory: if matches!(way, Way::Memory) {
                1 << 30
            } else {
                0
            },
        };
        let mut body = Ready::new(archive);
        let terms = extract::Terms::default();
        match way {
            Way::Streamed => extract::streamed(&root, &mut body, &limits, terms).await,
            _ => extract::spooled(&root, &mut body, &limits, terms).await,
        }
    })
}

/// A thing to put into a tree; one that does not fit there is left out.
#[derive(Clone, Debug)]
enum Thing {
    Directory(u32),
    File {
        mode: u32,
        size: usize,
        byte: u8,
        hole: bool,
    },
    Symlink(String),
    HardLink(usize),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab][ab.!-]{0,2}",
        1 => Just("long".repeat(40)),
        1 => Just("\u{fc}ber".to_owned()),
        1 => Just("new\nline".to_owned()),
    ]
    .prop_filter("no component of that name", |name| {
        name != "." && name != ".."
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..5).prop_map(|names| names.join("/"))
}

fn thing() -> impl Strategy<Value = Thing> {
    let size = prop_oneof![4 => 0usize..2000, 2 => 100_000usize..600_000, 1 => Just(512), 1 => Just(262_144)];
    prop_oneof![
        2 => (0u32..0o1000).prop_map(Thing::Directory),
        4 => (0u32..0o1000, size, any::<u8>(), any::<bool>())
            .prop_map(|(mode, size, byte, hole)| Thing::File { mode, size, byte, hole }),
        1 => prop_oneof![name(), path(), Just("long".repeat(50))].prop_map(Thing::Symlink),
        1 => any::<usize>().prop_map(Thing::HardLink),
    ]
}

fn build(root: &Path, things: &[(String, Thing)]) {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut modes = Vec::new();
    for (name, thing) in things {
        let path = root.join(name);
        let parent = path.parent().expect("it is below the root");
        if std::fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match thing {
            Thing::Directory(mode) => {
                std::fs::create_dir(&path).expect("nothing has the name");
                modes.push((path, *mode));
            }
            Thing::File {
                mode,
                size,
                byte,
                hole,
            } => {
                let mut data = vec![*byte; *size];
                if *hole && *size > 20_000 {
                    let file = std::fs::File::create(&path).expect("nothing has the name");
                    let tail = &data[..1000];
                    let offset = *size as u64 - 1000;
                    std::os::unix::fs::FileExt::write_all_at(&file, tail, offset)
                        .expect("the disk takes it");
                } else {
                    data.truncate(*size);
                    std::fs::write(&path, data).expect("nothing has the name");
                }
                files.push(path.clone());
                modes.push((path, *mode));
            }
            Thing::Symlink(target) => symlink(target, &path).expect("nothing has the name"),
            Thing::HardLink(_) if files.is_empty() => {}
            Thing::HardLink(index) => {
                std::fs::hard_link(&files[index % files.len()], &path)
                    .expect("nothing has the name");
            }
        }
    }
    // Deepest first, and readable by us whoever we are.
    for (path, mode) in modes.into_iter().rev() {
        let mode = mode | if path.is_dir() { 0o700 } else { 0o400 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
}

/// A tree as far as an archive carries it: by name a description, names of one file together.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut twins: HashMap<u64, PathBuf> = HashMap::new();
    let mut names = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.symlink_metadata().expect("it is there").is_dir() {
                waiting.push(path.clone());
            }
            names.push(path);
        }
    }
    names.sort();
    for path in names {
        let meta = path.symlink_metadata().expect("it is there");
        let name = path.strip_prefix(root).expect("it is below").to_owned();
        let mode = meta.mode() & 0o755;
        let mtime = meta.mtime();
        let told = if meta.is_dir() {
            format!("directory {mode:o} {mtime}")
        } else if meta.is_symlink() {
            format!(
                "link {:?} {mtime}",
                std::fs::read_link(&path).expect("it is a link")
            )
        } else {
            let first = twins
                .entry(meta.ino())
                .or_insert_with(|| name.clone())
                .clone();
            let data = std::fs::read(&path).expect("it can be read");
            let sum = data.iter().fold(7u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
            });
            format!("file {mode:o} {mtime} {} {sum:x} as {first:?}", data.len())
        };
        found.insert(name, told);
    }
    found
}

/// A member that may be up to anything.
#[derive(Clone, Debug)]
struct Hostile {
    path: String,
    link: String,
    kind: Type,
    data: usize,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let part = || prop_oneof![3 => "[abc]", 2 => Just("..".to_owned()), 1 => Just(".".to_owned()), 1 => Just(String::new()), 1 => Just("out".to_owned())];
    let path = move || {
        (any::<bool>(), prop::collection::vec(part(), 1..5)).prop_map(|(absolute, parts)| {
            if absolute && parts.len() > 3 {
                format!("/{}", parts.join("/"))
            } else {
                parts.join("/")
            }
        })
    };
    let kind = prop_oneof![
        4 => Just(Type::File),
        3 => Just(Type::Symlink),
        2 => Just(Type::HardLink),
        3 => Just(Type::Directory),
        1 => Just(Type::Fifo),
        1 => Just(Type::CharDevice),
        1 => any::<u8>().prop_map(Type::Unknown),
    ];
    (path(), path(), kind, 0usize..1500).prop_map(|(path, link, kind, data)| Hostile {
        path,
        link,
        kind,
        data,
    })
}

fn archive(members: &[Hostile]) -> Vec<u8> {
    let mut out = Vec::new();
    for Hostile {
        path,
        link,
        kind,
        data,
    } in members
    {
        let data = if *kind == Type::File { *data } else { 0 };
        let head = Head {
            path: path.as_bytes(),
            link: link.as_bytes(),
            kind: *kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            size: data as u64,
            device: (1, 3),
            runs: None,
        };
        head.write(&mut out);
        out.resize(out.len() + data, b'!');
        write::pad(data as u64, &mut out);
    }
    out.extend_from_slice(&write::END);
    out
}

/// Everything outside of the root, with what it holds.
fn outside(dir: &Path) -> BTreeMap<PathBuf, String> {
    tree(dir)
        .into_iter()
        .filter(|(name, _)| !name.starts_with("root"))
        .collect()
}

/// All that a scan yields, the error too, when the bytes come in pieces that end at `cuts`.
fn scan(bytes: &[u8], cuts: &[usize]) -> (Vec<(Member, Vec<u8>)>, Option<String>) {
    let mut scanner = Scanner::default();
    let mut found: Vec<(Member, Vec<u8>)> = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut start = 0;
    for end in cuts {
        let mut piece = &bytes[start..end];
        start = end;
        loop {
            match scanner.feed(&mut piece) {
                Ok(Event::More | Event::End) => break,
                Ok(Event::Member(member)) => found.push((member, Vec::new())),
                Ok(Event::Data(data)) => found
                    .last_mut()
                    .expect("a member came")
                    .1
                    .extend_from_slice(data),
                Err(error) => return (found, Some(error.sentence().to_owned())),
            }
        }
    }
    let end = scanner
        .finish()
        .err()
        .map(|error| error.sentence().to_owned());
    (found, end)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_that_is_packed_and_extracted_is_the_same_tree(things in prop::collection::vec((path(), thing()), 0..25)) {
        let dir = Dir::new();
        let from = dir.0.join("from");
        std::fs::create_dir(&from).expect("it is fresh");
        build(&from, &things);
        let expected = tree(&from);
        let bytes = packed(&from);
        prop_assert!(bytes == packed(&from), "the same tree gives the same bytes");
        for (index, way) in WAYS.into_iter().enumerate() {
            let to = dir.0.join(format!("to{index}"));
            extracted(&to, bytes.clone(), way).expect("what we packed is sound");
            prop_assert_eq!(&tree(&to), &expected);
            // Once more over what is there.
            extracted(&to, bytes.clone(), way).expect("what we packed is sound");
            prop_assert_eq!(&tree(&to), &expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_archive_touches_anything_outside_the_root(members in prop::collection::vec(hostile(), 1..12), linked in any::<bool>()) {
        for way in WAYS {
            let dir = Dir::new();
            std::fs::create_dir(dir.0.join("out")).expect("it is fresh");
            std::fs::write(dir.0.join("out/a"), "secret").expect("it is fresh");
            let root = dir.0.join("root");
            if linked {
                std::fs::create_dir(&root).expect("it is fresh");
                symlink(dir.0.join("out"), root.join("a")).expect("it is fresh");
                symlink("../out/a", root.join("b")).expect("it is fresh");
            }
            let before = outside(&dir.0);
            let was = root.exists().then(|| tree(&root));
            let outcome = extracted(&root, archive(&members), way);
            prop_assert_eq!(outside(&dir.0), before);
            if outcome.is_err() && !matches!(way, Way::Streamed) {
                prop_assert_eq!(root.exists().then(|| tree(&root)), was, "a refused archive changes nothing");
            }
        }
    }

    #[test]
    fn an_archive_is_read_the_same_however_it_is_cut(
        members in prop::collection::vec(hostile(), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        length in any::<usize>(),
    ) {
        let mut bytes = archive(&members);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length % (2 * bytes.len()));
        let whole = scan(&bytes, &[]);
        prop_assert_eq!(&scan(&bytes, &cuts), &whole);
        let each: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&scan(&bytes, &each), &whole);
    }
}
