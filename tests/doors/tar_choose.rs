//! Downloading a part of a tree: patterns and options (contract D28).

use std::fs::{self, FileTimes};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use crate::archive::entries;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;
use crate::request::{Request, escaped, tar_at};
use crate::scratch::{noise, tree};

both![
    patterns_choose_what_is_packed,
    a_pattern_that_is_none_is_refused_by_name,
    a_value_that_is_none_is_refused_by_name,
    what_is_left_out_does_not_count,
    directories_keep_their_modes_when_they_lead_to_a_member,
    names_lose_their_front,
    hard_links_stay_inside_what_is_stripped,
    only_what_is_newer_is_packed,
    mount_points_are_packed_empty,
    links_are_followed_inside_the_root,
    a_link_that_has_no_end_stays_a_link,
    sparse_files_are_sent_as_pax_and_stay_sparse,
    fractions_of_seconds_are_told_when_asked_for,
    an_archive_comes_in_the_coding_that_is_preferred,
    head_with_options_tells_the_length,
    two_archives_at_once_are_those_of_one,
];

fn patterns_choose_what_is_packed(driver: Driver) {
    let daemon = with_files(
        driver,
        &[
            "Makefile",
            "doc/a.md",
            "doc/img/b.png",
            "src/gen/x.rs",
            "src/lib.rs",
            "src/lib.o",
            "z.o",
        ],
    );
    fs::create_dir(daemon.path("t/empty")).expect("the scratch directory is ours");
    for (query, expected) in [
        ("include=*.rs", ". src src/gen src/gen/x.rs src/lib.rs"),
        (
            "include=src/",
            ". src src/gen src/gen/x.rs src/lib.o src/lib.rs",
        ),
        ("include=/doc/*.md&include=Make*", ". Makefile doc doc/a.md"),
        (
            "include=src/&exclude=*.o",
            ". src src/gen src/gen/x.rs src/lib.rs",
        ),
        ("include=src/&include=!gen/", ". src src/lib.o src/lib.rs"),
        ("exclude=src&exclude=doc/**", ". Makefile doc empty z.o"),
        (
            "exclude=*.o&exclude=!/z.o&exclude=/src&exclude=/doc",
            ". Makefile empty z.o",
        ),
        ("include=empty", ". empty"),
        ("include=nothing", "."),
        ("exclude=*", "."),
        ("include=**/img/*", ". doc doc/img doc/img/b.png"),
        ("include=src/lib.*&exclude=*.o", ". src src/lib.rs"),
    ] {
        assert_eq!(names(&daemon, query), expected, "{query}");
    }
}

fn a_pattern_that_is_none_is_refused_by_name(driver: Driver) {
    let daemon = with_files(driver, &["secret"]);
    for (query, expected) in [
        ("include=[a", "include pattern \"[a\" is no glob"),
        ("exclude=", "exclude pattern \"\" has an empty component"),
        (
            "exclude=a/../b",
            "exclude pattern \"a/../b\" has an empty component, or one that is . or ..",
        ),
        ("include=!a", "include has patterns with ! only"),
    ] {
        let text = daemon.get(target(&daemon, query)).explains(400).text();
        assert!(text.contains(expected), "{query}: {text}");
    }
    let many = "&include=a".repeat(257);
    let text = daemon.get(target(&daemon, &many[1..])).explains(400).text();
    assert!(
        text.contains("include is given more than 256 times"),
        "{text}"
    );
    // What names no option is ignored, as everywhere.
    assert_eq!(names(&daemon, "included=1"), ". secret");
}

fn a_value_that_is_none_is_refused_by_name(driver: Driver) {
    let daemon = with_files(driver, &["f"]);
    for (query, expected) in [
        ("strip=x", "strip must be a whole number up to 2048"),
        ("strip=-1", "strip must be a whole number up to 2048"),
        ("strip=2049", "strip must be a whole number up to 2048"),
        ("strip=1&strip=1", "strip is given more than once"),
        ("follow=2", "follow must be 1, true, 0 or false"),
        ("xattrs=yes", "xattrs must be 1, true, 0 or false"),
        ("precise=", "precise must be 1, true, 0 or false"),
        (
            "one_file_system=no",
            "one_file_system must be 1, true, 0 or false",
        ),
        (
            "newer_than=yesterday",
            "newer_than \"yesterday\" is neither seconds since 1970 nor a date of RFC 3339 or RFC 9110",
        ),
    ] {
        let text = daemon.get(target(&daemon, query)).explains(400).text();
        assert_eq!(text.trim_end(), expected, "{query}");
    }
}

fn what_is_left_out_does_not_count(driver: Driver) {
    let setup = Setup::new(driver)
        .flag("--max-tar-members", "4")
        .flag("--max-tar-bytes", "1000");
    let daemon = setup.ready();
    fill(
        &daemon,
        &["a/keep", "b/1", "b/2", "b/3", "b/4", "b/5", "b/6"],
    );
    fs::write(daemon.path("t/large"), noise(5000)).expect("the scratch directory is ours");
    daemon.get(target(&daemon, "")).explains(413);
    assert_eq!(names(&daemon, "exclude=b&exclude=large"), ". a a/keep");
    assert_eq!(names(&daemon, "include=/a/"), ". a a/keep");
    assert_eq!(names(&daemon, "include=keep"), ". a a/keep");
    daemon.get(target(&daemon, "include=b")).explains(413);
    daemon.get(target(&daemon, "include=large")).explains(413);
}

fn directories_keep_their_modes_when_they_lead_to_a_member(driver: Driver) {
    let daemon = with_files(driver, &["a/b/c", "a/d"]);
    fs::set_permissions(daemon.path("t/a/b"), fs::Permissions::from_mode(0o710)).expect("ours");
    let body = daemon.get(target(&daemon, "include=c")).is(200).body;
    let shown: Vec<_> = entries(&body)
        .into_iter()
        .map(|entry| (entry.name, entry.mode))
        .collect();
    assert_eq!(shown[2], ("a/b".to_owned(), 0o710));
    assert_eq!(shown.len(), 4);
}

fn names_lose_their_front(driver: Driver) {
    let daemon = with_files(driver, &["a/b/c", "a/d", "e", "f/g"]);
    symlink("../x", daemon.path("t/a/s")).expect("the scratch directory is ours");
    assert_eq!(names(&daemon, "strip=0"), ". a a/b a/b/c a/d a/s e f f/g");
    assert_eq!(names(&daemon, "strip=1"), "b b/c d s g");
    assert_eq!(names(&daemon, "strip=2"), "c");
    assert_eq!(names(&daemon, "strip=3"), "");
    assert_eq!(names(&daemon, "strip=1&include=c"), "b b/c");
    let body = daemon.get(target(&daemon, "strip=1")).is(200).body;
    assert_eq!(entries(&body)[3].link.as_deref(), Some("../x"));
    assert_eq!(
        daemon.get(target(&daemon, "strip=3")).is(200).body,
        [0; 1024]
    );
}

fn hard_links_stay_inside_what_is_stripped(driver: Driver) {
    let daemon = with_files(driver, &["a/x/1", "b/x/1"]);
    let link = |from: &str, to: &str| {
        fs::hard_link(daemon.path(from), daemon.path(to)).expect("the scratch directory is ours");
    };
    link("t/a/x/1", "t/a/y");
    link("t/a/x/1", "t/b/z");
    link("t/a/x/1", "t/b/zz");
    let body = daemon.get(target(&daemon, "strip=1")).is(200).body;
    let shown: Vec<_> = entries(&body)
        .into_iter()
        .map(|entry| {
            (
                entry.name,
                entry.link,
                String::from_utf8_lossy(&entry.data).into_owned(),
            )
        })
        .collect();
    let of = |name: &str, link: Option<&str>, data: &str| {
        (name.to_owned(), link.map(str::to_owned), data.to_owned())
    };
    assert_eq!(
        shown,
        [
            of("x", None, ""),
            of("x/1", None, "a/x/1"),
            of("y", Some("x/1"), ""),
            of("x", None, ""),
            of("x/1", None, "b/x/1"),
            of("z", None, "a/x/1"),
            of("zz", Some("z"), ""),
        ]
    );
}

fn only_what_is_newer_is_packed(driver: Driver) {
    let daemon = with_files(driver, &["a/new", "a/old", "b/old", "c/old", "d/exact"]);
    symlink("x", daemon.path("t/link")).expect("the scratch directory is ours");
    let at = |nanos: u32| UNIX_EPOCH + Duration::new(1_000_000_000, nanos);
    for (name, nanos) in [
        ("a/new", 500_000_001),
        ("a/old", 0),
        ("b/old", 0),
        ("c/old", 0),
        ("d/exact", 500_000_000),
        ("a", 0),
        ("b", 0),
        ("c", 600_000_000),
        ("d", 0),
        ("", 0),
    ] {
        touch(&daemon, name, at(nanos));
    }
    for since in [
        "1000000000.5",
        "2001-09-09T01:46:40.5Z",
        "2001-09-09T03:46:40.5%2B02:00",
        "2001-09-09T03:46:40.5+02:00",
    ] {
        let query = format!("newer_than={since}");
        assert_eq!(names(&daemon, &query), ". a a/new c link", "{since}");
    }
    let query = "newer_than=Sun,%2009%20Sep%202001%2001:46:40%20GMT";
    assert_eq!(names(&daemon, query), ". a a/new c d d/exact link");
    assert_eq!(
        names(&daemon, "newer_than=1000000000.5&include=c&exclude=link"),
        ". c"
    );
    assert_eq!(names(&daemon, "newer_than=9999999999"), ".");
    assert_eq!(names(&daemon, "newer_than=-1").split(' ').count(), 11);
}

fn mount_points_are_packed_empty(driver: Driver) {
    if !is_root("mounting") {
        return;
    }
    for (kind, point) in [
        ("-t tmpfs none", "t/m"),
        ("--bind elsewhere", "t/m"),
        ("--bind elsewhere/f", "t/f"),
    ] {
        let setup = Setup::new(driver);
        fs::create_dir_all(setup.path("t/m")).expect("the scratch directory is ours");
        fs::create_dir_all(setup.path("elsewhere")).expect("the scratch directory is ours");
        for name in ["elsewhere/f", "t/f", "t/g"] {
            fs::write(setup.path(name), name).expect("the scratch directory is ours");
        }
        let kind = kind.replace("elsewhere", &setup.path("elsewhere").display().to_string());
        let mount = format!("{kind} {}", setup.path(point).display());
        let daemon = setup.with_mount(&mount).ready();
        if point == "t/m" {
            let inside = crate::request::file_at(daemon.path("t/m/f"));
            daemon.put(inside, "inside").bare(204);
            assert_eq!(names(&daemon, ""), ". f g m m/f", "{mount}");
            assert_eq!(names(&daemon, "one_file_system=1"), ". f g m", "{mount}");
            assert_eq!(
                names(&daemon, "one_file_system=1&include=m/f"),
                ".",
                "{mount}"
            );
        } else {
            assert_eq!(names(&daemon, ""), ". f g m", "{mount}");
            assert_eq!(names(&daemon, "one_file_system=1"), ". g m", "{mount}");
        }
    }
}

fn links_are_followed_inside_the_root(driver: Driver) {
    let daemon = with_files(driver, &["a/f", "a/large", "a/sub/g"]);
    let large = noise(700_000);
    fs::write(daemon.path("t/a/large"), &large).expect("the scratch directory is ours");
    fs::write(daemon.path("outside"), "secret").expect("the scratch directory is ours");
    for (name, to) in [
        ("file", "a/f"),
        ("big", "a/large"),
        ("dir", "a/sub"),
        ("twice", "dir"),
        ("a/sub/up", "../f"),
        ("dangling", "none"),
        ("out", "../outside"),
        ("absolute", "/etc/passwd"),
        ("proc", "/proc/self/exe"),
    ] {
        symlink(to, daemon.path("t").join(name)).expect("the scratch directory is ours");
    }
    let body = daemon.get(target(&daemon, "follow=1")).is(200).body;
    let packed = entries(&body);
    let shown: Vec<_> = packed
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    let expected = [
        (".", b'5'),
        ("a", b'5'),
        ("a/f", b'0'),
        ("a/large", b'0'),
        ("a/sub", b'5'),
        ("a/sub/g", b'0'),
        ("a/sub/up", b'0'),
        ("absolute", b'2'),
        ("big", b'0'),
        ("dangling", b'2'),
        ("dir", b'5'),
        ("dir/g", b'0'),
        ("dir/up", b'0'),
        ("file", b'0'),
        ("out", b'2'),
        ("proc", b'2'),
        ("twice", b'5'),
        ("twice/g", b'0'),
        ("twice/up", b'0'),
    ];
    assert_eq!(shown, expected);
    let data = |name: &str| {
        packed
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.data.clone())
    };
    assert_eq!(data("twice/up"), Some(b"a/f".to_vec()));
    assert_eq!(data("file"), Some(b"a/f".to_vec()));
    assert!(data("big") == Some(large));
    assert_eq!(
        names(&daemon, "follow=1&include=/dir/&exclude=up"),
        ". dir dir/g"
    );
    assert_eq!(names(&daemon, "follow=0&include=/dir"), ". dir");
}

fn a_link_that_has_no_end_stays_a_link(driver: Driver) {
    let daemon = with_files(driver, &["a/b/f"]);
    for (name, to) in [
        ("a/b/up", ".."),
        ("a/b/here", "."),
        ("loop", "loop"),
        ("a/b/top", "../.."),
    ] {
        symlink(to, daemon.path("t").join(name)).expect("the scratch directory is ours");
    }
    let body = daemon.get(target(&daemon, "follow=1")).is(200).body;
    let shown: Vec<_> = entries(&body)
        .into_iter()
        .map(|entry| (entry.name, entry.kind))
        .collect();
    let links: Vec<_> = shown
        .iter()
        .filter(|(_, kind)| *kind == b'2')
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(links, ["a/b/here", "a/b/top", "a/b/up", "loop"]);
    // Ways that double at each step are bounded like all members.
    let setup = Setup::new(driver).flag("--max-tar-members", "1000");
    let daemon = setup.ready();
    for level in 0..15 {
        let dir = daemon.path(&format!("t/{level}"));
        fs::create_dir_all(&dir).expect("the scratch directory is ours");
        for name in ["x", "y"] {
            symlink(format!("../{}", level + 1), dir.join(name))
                .expect("the scratch directory is ours");
        }
    }
    daemon.get(target(&daemon, "")).is(200);
    daemon.get(target(&daemon, "follow=1")).explains(413);
}

fn sparse_files_are_sent_as_pax_and_stay_sparse(driver: Driver) {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let daemon = with_files(driver, &["f"]);
    let sparse = fs::File::create(daemon.path("t/sparse")).expect("the scratch directory is ours");
    for at in [0, 1 << 20, 5 << 20] {
        sparse.write_all_at(b"data", at).expect("it is ours");
    }
    sparse.set_len(9 << 20).expect("it is ours");
    let body = daemon.get(target(&daemon, "")).is(200).body;
    assert!(body.len() < 100_000, "{} bytes", body.len());
    let text = String::from_utf8_lossy(&body);
    for record in [
        "GNU.sparse.major=1\n",
        "GNU.sparse.minor=0\n",
        "GNU.sparse.name=sparse\n",
        "GNU.sparse.realsize=9437184\n",
        "GNUSparseFile.0/sparse\0",
    ] {
        assert!(text.contains(record), "{record}");
    }
    daemon.put(tar_at(daemon.path("u")), body).bare(204);
    assert_eq!(tree(&daemon.path("u")), tree(&daemon.path("t")));
    let held = fs::metadata(daemon.path("u/sparse"))
        .expect("it is there")
        .blocks()
        * 512;
    assert!(held < 1 << 20, "{held} bytes on disk");
}

fn fractions_of_seconds_are_told_when_asked_for(driver: Driver) {
    let daemon = with_files(driver, &["f", "g"]);
    let whole = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    touch(&daemon, "f", whole + Duration::from_nanos(120_000_000));
    touch(&daemon, "g", whole);
    touch(&daemon, "", whole);
    let plain = daemon.get(target(&daemon, "")).is(200).body;
    assert!(!String::from_utf8_lossy(&plain).contains("mtime="));
    let precise = daemon.get(target(&daemon, "precise=1")).is(200).body;
    assert!(String::from_utf8_lossy(&precise).contains("23 mtime=1000000000.12\n"));
    assert_eq!(
        precise.len(),
        plain.len() + 1024,
        "only one of them has a fraction"
    );
    daemon.put(tar_at(daemon.path("u")), precise).bare(204);
    let time = |name: &str| {
        fs::metadata(daemon.path(name))
            .and_then(|found| found.modified())
            .ok()
    };
    assert_eq!(time("u/f"), time("t/f"));
}

fn an_archive_comes_in_the_coding_that_is_preferred(driver: Driver) {
    use std::io::Read;
    let daemon = with_files(driver, &["a", "b/c"]);
    fs::write(daemon.path("t/large"), vec![b'x'; 3_000_000])
        .expect("the scratch directory is ours");
    let plain = daemon.get(target(&daemon, "")).is(200);
    assert_eq!(plain.field("vary"), Some("accept-encoding"));
    let ask = |value: &str| {
        let request = Request::get(target(&daemon, "")).bearer();
        daemon
            .call(&request.field("accept-encoding", value))
            .is(200)
    };
    let gzip = ask("gzip");
    assert_eq!(gzip.field("content-encoding"), Some("gzip"));
    assert_eq!(gzip.field("content-length"), None);
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(&*gzip.body)
        .read_to_end(&mut decoded)
        .expect("it is gzip");
    assert!(decoded == plain.body);
    assert!(gzip.body.len() < plain.body.len() / 10);
    let zstd = ask("gzip;q=0.5, zstd");
    assert_eq!(zstd.field("content-encoding"), Some("zstd"));
    let mut decoded = Vec::with_capacity(plain.body.len());
    zstd_safe::decompress(&mut decoded, &zstd.body).expect("it is zstd");
    assert!(decoded == plain.body);
    assert!(ask("identity").body == plain.body);
}

fn head_with_options_tells_the_length(driver: Driver) {
    let daemon = with_files(driver, &["a", "b/c", "d.o"]);
    let target = target(&daemon, "exclude=*.o&precise=1");
    let whole = daemon.get(&target).is(200);
    let head = daemon.call(&Request::new("HEAD", &target).bearer()).is(200);
    let length = whole.body.len().to_string();
    assert_eq!(head.field("content-length"), Some(&*length));
}

fn two_archives_at_once_are_those_of_one(driver: Driver) {
    let daemon = with_files(driver, &["a", "b/c"]);
    for index in 0..300 {
        fs::write(daemon.path(&format!("t/{index:03}")), noise(index * 40))
            .expect("the scratch directory is ours");
    }
    fs::write(daemon.path("t/large"), noise(3_000_000)).expect("the scratch directory is ours");
    let alone = daemon.get(target(&daemon, "")).is(200).body;
    let part = daemon.get(target(&daemon, "exclude=large")).is(200).body;
    let mut connections: Vec<_> = (0..6).map(|_| daemon.connect()).collect();
    for (index, connection) in connections.iter_mut().enumerate() {
        let query = if index % 2 == 0 { "" } else { "exclude=large" };
        connection.send(Request::get(target(&daemon, query)).bearer().bytes());
    }
    for (index, connection) in connections.iter_mut().enumerate() {
        let body = connection.reply().is(200).body;
        assert!(
            body == if index % 2 == 0 { &*alone } else { &*part },
            "{index}"
        );
    }
}

/// The target for the tree with options; brackets and other signs of patterns are escaped.
fn target(daemon: &Daemon, query: &str) -> String {
    let safe = |text: &str| match text.contains(['%', '+']) {
        true => text.to_owned(),
        false => escaped(text.as_bytes()),
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        format!("&{key}={}", safe(value))
    });
    tar_at(daemon.path("t")) + &pairs.collect::<String>()
}

/// The names of the members, in their order.
#[track_caller]
fn names(daemon: &Daemon, query: &str) -> String {
    let reply = daemon.get(target(daemon, query)).is(200);
    let length = reply.body.len().to_string();
    assert_eq!(reply.field("content-length"), Some(&*length));
    let packed = entries(&reply.body);
    let names: Vec<_> = packed.iter().map(|entry| entry.name.as_str()).collect();
    names.join(" ")
}

/// A daemon with files in the tree `t`, each with its name as content.
fn with_files(driver: Driver, names: &[&str]) -> Daemon {
    let daemon = Daemon::ready(driver);
    fill(&daemon, names);
    daemon
}

fn fill(daemon: &Daemon, names: &[&str]) {
    for name in names {
        let path = daemon.path("t").join(name);
        let parent = path.parent().expect("it is below the tree");
        fs::create_dir_all(parent).expect("the scratch directory is ours");
        fs::write(&path, name).expect("the scratch directory is ours");
    }
}

fn touch(daemon: &Daemon, name: &str, time: std::time::SystemTime) {
    let file = fs::File::open(daemon.path("t").join(name)).expect("it is there");
    file.set_times(FileTimes::new().set_modified(time))
        .expect("it is ours");
}
