//! Reading a file under conditions: what is not sent again, what is refused, and what HEAD says beforehand.

use std::fs::{self, File, FileTimes};
use std::time::{Duration, SystemTime};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::wait_until;
use crate::reply::Reply;
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    what_the_client_holds_is_not_sent_again,
    a_version_that_is_not_there_is_refused,
    conditions_are_judged_before_ranges,
    conditions_hold_for_lines_too,
    a_kernel_file_has_no_validators,
    head_says_what_get_would,
    head_has_no_ranges,
    a_date_names_a_version_that_has_rested,
    a_date_that_was_set_by_hand_names_no_version,
];

fn what_the_client_holds_is_not_sent_again(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, etag, modified) = made(&daemon, "content");
    let mut connection = daemon.connect();
    let lists = [
        etag.clone(),
        format!("W/{etag}"),
        format!("\"other\", {etag}"),
        "*".to_owned(),
    ];
    for method in ["GET", "HEAD"] {
        for list in &lists {
            let request = Request::new(method, &*target).bearer();
            let reply = connection.call(&request.field("if-none-match", list));
            is_unchanged(&reply, &etag, &modified);
        }
        let request = Request::new(method, &*target).bearer();
        let reply = connection.call(&request.field("if-modified-since", &*modified));
        is_unchanged(&reply, &etag, &modified);
    }
    let long_ago = "Sunday, 06-Nov-94 08:49:37 GMT";
    for (name, value) in [
        ("if-none-match", "\"other\""),
        ("if-modified-since", long_ago),
        ("if-modified-since", "nonsense"),
    ] {
        let request = Request::get(&*target).bearer().field(name, value);
        assert_eq!(connection.call(&request).is(200).text(), "content");
    }
    // A tag makes the date go unread.
    let both = Request::get(&*target).bearer();
    let both = both.field("if-none-match", "\"other\"");
    let both = both.field("if-modified-since", modified);
    assert_eq!(connection.call(&both).is(200).text(), "content");
}

fn a_version_that_is_not_there_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, etag, modified) = made(&daemon, "content");
    let weak = format!("W/{etag}");
    let get = || Request::get(&*target).bearer();
    for (name, value) in [
        ("if-match", "\"other\""),
        ("if-match", &*weak),
        ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        daemon.call(&get().field(name, value)).explains(412);
        // What must be there comes before what must not.
        let both = get().field("if-none-match", &*etag).field(name, value);
        daemon.call(&both).explains(412);
    }
    for (name, value) in [
        ("if-match", &*etag),
        ("if-match", "*"),
        ("if-unmodified-since", &*modified),
    ] {
        let reply = daemon.call(&get().field(name, value)).is(200);
        assert_eq!(reply.text(), "content", "{name}: {value}");
    }
    let head = Request::new("HEAD", &*target).bearer();
    let reply = daemon.call(&head.field("if-match", "\"other\""));
    assert_eq!(reply.status, 412, "{reply:?}");
    daemon
        .call(
            &Request::get(file_at(daemon.path("absent")))
                .bearer()
                .field("if-match", "*"),
        )
        .explains(404);
}

fn conditions_are_judged_before_ranges(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, etag, _) = made(&daemon, "content");
    let outside = || Request::get(&*target).bearer().field("range", "bytes=100-");
    daemon
        .call(&outside().field("if-none-match", &*etag))
        .bare(304);
    daemon
        .call(&outside().field("if-match", "\"other\""))
        .explains(412);
    daemon.call(&outside().field("if-match", &*etag)).bare(416);
    let inside = Request::get(&*target).bearer().field("range", "bytes=1-2");
    let reply = daemon.call(&inside.field("if-match", &*etag)).is(206);
    assert_eq!(reply.text(), "on");
}

fn conditions_hold_for_lines_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, etag, modified) = made(&daemon, "l1\nl2\nl3\n");
    for query in ["start_line=2", "end_line=1", "last_lines=1"] {
        let get = || Request::get(format!("{target}&{query}")).bearer();
        let reply = daemon.call(&get()).is(200);
        assert_eq!(reply.field("etag"), Some(&*etag), "{reply:?}");
        is_unchanged(
            &daemon.call(&get().field("if-none-match", &*etag)),
            &etag,
            &modified,
        );
        daemon
            .call(&get().field("if-match", "\"other\""))
            .explains(412);
        daemon.call(&get().field("if-match", &*etag)).is(200);
    }
}

fn a_kernel_file_has_no_validators(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let get = || Request::get(file_at("/proc/version")).bearer();
    for name in ["etag", "last-modified", "accept-ranges", "content-length"] {
        assert_eq!(daemon.call(&get()).is(200).field(name), None, "{name}");
    }
    for (name, value, status) in [
        ("if-none-match", "\"x\"", 200),
        ("if-modified-since", "Fri, 31 Dec 9999 23:59:59 GMT", 200),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("if-match", "*", 200),
        ("if-match", "\"x\"", 412),
        ("range", "bytes=0-0", 200),
    ] {
        let reply = daemon.call(&get().field(name, value));
        assert_eq!(reply.status, status, "{name}: {value}: {reply:?}");
    }
}

fn head_says_what_get_would(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("small"), "l1\nl2\n").expect("the scratch directory is ours");
    fs::write(daemon.path("large"), noise(3 << 20)).expect("the scratch directory is ours");
    let codings = [None, Some("gzip"), Some("zstd, gzip;q=0.5"), Some("br")];
    for name in ["small", "large", "/proc/version", "absent"] {
        for query in ["", "&start_line=2", "&last_lines=1", "&start_line=0"] {
            for coding in codings {
                let request = |method| {
                    let target = format!("{}{query}", file_at(daemon.path(name)));
                    let request = Request::new(method, target).bearer();
                    match coding {
                        Some(coding) => request.field("accept-encoding", coding),
                        None => request,
                    }
                };
                let get = daemon.call(&request("GET"));
                let head = daemon.call(&request("HEAD"));
                assert_eq!(head.status, get.status, "{name}{query} {coding:?}");
                assert_eq!(told(&head), told(&get), "{name}{query} {coding:?}");
            }
        }
    }
}

fn head_has_no_ranges(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, ..) = made(&daemon, "content");
    for range in ["bytes=1-2", "bytes=100-"] {
        let head = Request::new("HEAD", &*target)
            .bearer()
            .field("range", range);
        let reply = daemon.call(&head).is(200);
        assert_eq!(reply.field("content-length"), Some("7"), "{reply:?}");
        assert_eq!(reply.field("content-range"), None, "{reply:?}");
    }
}

fn a_date_names_a_version_that_has_rested(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (target, _, modified) = made(&daemon, "content");
    let part = || Request::get(&*target).bearer().field("range", "bytes=1-2");
    wait_until("the file has rested", || {
        let reply = daemon.call(&part().field("if-range", &*modified));
        assert_eq!(
            reply.text(),
            if reply.status == 206 { "on" } else { "content" }
        );
        reply.status == 206
    });
    let other = part().field("if-range", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(daemon.call(&other).is(200).text(), "content");
}

fn a_date_that_was_set_by_hand_names_no_version(driver: Driver) {
    let daemon = Daemon::ready(driver);
    made(&daemon, "content");
    let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
    let file = File::options()
        .write(true)
        .open(daemon.path("f"))
        .expect("it was made");
    file.set_times(FileTimes::new().set_modified(long_ago))
        .expect("the file is ours");
    let target = file_at(daemon.path("f"));
    let modified = field(&daemon.get(&*target).is(200), "last-modified");
    let part = Request::get(target).bearer().field("range", "bytes=1-2");
    let reply = daemon.call(&part.field("if-range", modified));
    // The old content may have had that date as well.
    assert_eq!(reply.is(200).text(), "content");
}

/// Writes a file; its target, its etag and its date.
#[track_caller]
fn made(daemon: &Daemon, content: &str) -> (String, String, String) {
    fs::write(daemon.path("f"), content).expect("the scratch directory is ours");
    let target = file_at(daemon.path("f"));
    let reply = daemon.get(&*target).is(200);
    let (etag, modified) = (field(&reply, "etag"), field(&reply, "last-modified"));
    (target, etag, modified)
}

#[track_caller]
fn field(reply: &Reply, name: &str) -> String {
    let value = reply.field(name);
    value
        .unwrap_or_else(|| panic!("no {name}: {reply:?}"))
        .to_owned()
}

#[track_caller]
fn is_unchanged(reply: &Reply, etag: &str, modified: &str) {
    assert_eq!(reply.status, 304, "{reply:?}");
    assert!(reply.body.is_empty(), "{reply:?}");
    for (name, value) in [
        ("etag", Some(etag)),
        ("last-modified", Some(modified)),
        ("vary", Some("accept-encoding")),
        ("content-type", None),
        ("content-length", None),
    ] {
        assert_eq!(reply.field(name), value, "{name}: {reply:?}");
    }
}

/// The fields that tell of the file.
fn told(reply: &Reply) -> Vec<&(String, String)> {
    // A HEAD announces no chunks, and an error that has no body no length.
    let passing = ["date", "transfer-encoding"];
    let fields = reply.fields.iter();
    fields
        .filter(|(name, _)| !passing.contains(&name.as_str()))
        .collect()
}
