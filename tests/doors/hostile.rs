//! Clients that break off, send nonsense, or never end: what they cost is bounded (wishes 14 and 31).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::archive::{archive, file};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{self, wait_until};
use crate::request::{Request, file_at, tar_at};
use crate::scratch::{noise, tree};

both![
    nonsense_is_answered_or_closed_and_nothing_more,
    a_request_broken_off_anywhere_leaves_nothing,
    a_response_nobody_reads_is_let_go,
    bytes_behind_a_closing_response_are_not_kept,
    an_upload_that_is_slow_is_served_and_delays_nobody,
    a_stranger_cannot_grow_the_daemon,
    a_storm_of_connections_is_survived,
    a_link_that_is_swapped_in_is_never_followed,
];

fn nonsense_is_answered_or_closed_and_nothing_more(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    // The path is relative, so that one that was changed still lies in the scratch directory.
    let mut whole = Request::put(file_at("f"))
        .bearer()
        .chunks(["abc", "def"])
        .bytes();
    whole.extend(Request::get("/v1/health").bytes());
    for round in 0..150 {
        let mut bytes = if round % 3 == 0 {
            noise(1 + round * 20)
        } else {
            whole.clone()
        };
        // Some bytes of a good request are changed.
        for (number, place) in noise(round % 7 + 1).into_iter().enumerate() {
            let place = (usize::from(place) * 3 + number * round) % bytes.len();
            bytes[place] = bytes[place].wrapping_add(place.to_le_bytes()[0] | 1);
        }
        let mut connection = daemon.connect();
        let _ = connection.try_send(&bytes);
        connection.finish();
        let (_, _) = connection.rest();
    }
    daemon.health();
    daemon.holds_at_most(before);
}

fn a_request_broken_off_anywhere_leaves_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = (tree(&daemon.path("")), daemon.at_rest());
    let start = json!({"exec_id": "e", "command": ["touch", daemon.path("ran").to_str()]});
    let requests = [
        Request::put(file_at(daemon.path("f")))
            .bearer()
            .body(noise(300))
            .bytes(),
        Request::put(file_at(daemon.path("f")))
            .bearer()
            .chunks([noise(150), noise(100)])
            .bytes(),
        Request::put(tar_at(daemon.path("t")))
            .bearer()
            .body(archive([file("f", noise(100))]))
            .bytes(),
        Request::post("/v1/exec/start")
            .bearer()
            .json(&start)
            .bytes(),
    ];
    for bytes in &requests {
        for sent in (1..bytes.len()).step_by(13).chain([bytes.len() - 1]) {
            let mut connection = daemon.connect();
            connection.send(&bytes[..sent]);
            if sent % 2 == 0 {
                connection.reset();
            }
        }
    }
    daemon.holds_at_most(before.1);
    wait_until("nothing is left", || tree(&daemon.path("")) == before.0);
    daemon.poll("e").is(404);
    assert!(tree(&daemon.temporary()).is_empty());
}

fn a_response_nobody_reads_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver).flag("--body-timeout", "0.3").ready();
    let large = std::fs::File::create(daemon.path("f")).expect("the scratch directory is ours");
    large.set_len(256 << 20).expect("a sparse file");
    let before = daemon.at_rest();
    let targets = [file_at(daemon.path("f")), file_at("/dev/zero")];
    let mut idle = Vec::new();
    for target in &targets {
        let mut connection = daemon.connect();
        connection.send(Request::get(&**target).bearer().bytes());
        connection.head().expect("a response");
        idle.push(connection);
    }
    daemon.holds_at_most(before);
}

fn bytes_behind_a_closing_response_are_not_kept(driver: Driver) {
    let daemon = Daemon::start(driver);
    let mut connection = daemon.connect();
    let mut bytes = Request::get("/v1/health")
        .field("connection", "close")
        .bytes();
    bytes.extend(Request::get("/v1/nope").bytes().repeat(100));
    connection.send(bytes);
    connection.reply().is(200);
    let (rest, _) = connection.rest();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

fn an_upload_that_is_slow_is_served_and_delays_nobody(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = Request::put(file_at(daemon.path("f")))
        .bearer()
        .body(noise(200))
        .bytes();
    let mut connection = daemon.connect();
    for byte in &bytes {
        connection.send([*byte]);
        daemon.health();
    }
    connection.reply().is(204);
    assert!(std::fs::read(daemon.path("f")).expect("it was written") == noise(200));
}

fn a_stranger_cannot_grow_the_daemon(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.at_rest();
    let resident = || {
        let text = process::status(daemon.pid(), "VmRSS");
        text.trim_end_matches(" kB")
            .parse::<u64>()
            .expect("kibibytes")
    };
    let before = resident();
    let mut crowd = Vec::new();
    for number in 0..100 {
        let mut connection = daemon.connect();
        // Whoever has no token gets to send a head and what the sockets hold, and no more is kept of it.
        let request = Request::put(file_at(daemon.path("f"))).body(vec![0; 60_000]);
        let bytes = if number % 2 == 0 {
            request.head()
        } else {
            request.bytes()
        };
        let _ = connection.try_send(&bytes[..bytes.len() - 1]);
        crowd.push(connection);
    }
    daemon.health();
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 * 1024, "it has grown by {grown} KiB");
}

fn a_storm_of_connections_is_survived(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    for round in 0..600 {
        let mut connection = daemon.connect();
        match round % 4 {
            0 => {}
            1 => connection.send("GET /v1/he"),
            2 => connection.send(Request::get("/v1/health").bytes()),
            _ => {
                connection.send(Request::get("/v1/health").bytes());
                connection.reset();
            }
        }
    }
    daemon.health();
    daemon.holds_at_most(before);
}

fn a_link_that_is_swapped_in_is_never_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    std::fs::create_dir_all(daemon.path("root/d")).expect("the scratch directory is ours");
    std::fs::create_dir(daemon.path("outside")).expect("the scratch directory is ours");
    let (dir, aside) = (daemon.path("root/d"), daemon.path("aside"));
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                // The upload makes the directory again when it finds none, and then it is in our way.
                let _ = std::fs::rename(&dir, &aside);
                let _ = std::os::unix::fs::symlink("../outside", &dir);
                let _ = std::fs::remove_file(&dir);
                let _ = std::fs::rename(&aside, &dir);
                let _ = std::fs::remove_dir_all(&aside);
            }
        }
    });
    let members = (0..50).map(|number| file(format!("d/f{number}"), "x"));
    let body = archive(members);
    for spool in ["", "&spool=off"] {
        for _ in 0..20 {
            let target = format!("{}{spool}", tar_at(daemon.path("root")));
            let reply = daemon.put(target, body.clone());
            assert!([204, 400, 500].contains(&reply.status), "{reply:?}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().expect("no panic");
    assert!(tree(&daemon.path("outside")).is_empty());
}
