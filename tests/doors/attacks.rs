//! What a hostile client has found once, and must not find again.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use serde_json::json;

use crate::archive::{archive, file, gnu_long};
use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::execs::exec_at;
use crate::process::wait_until;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::noise;

both![
    a_time_limit_fires_while_many_downloads_run,
    the_highest_id_is_no_user_and_no_group,
    kills_of_one_exec_are_one_kill,
    a_window_that_nobody_waits_for_is_given_up,
    a_file_whose_first_read_fails_is_an_error,
    a_name_longer_than_any_path_is_refused,
    a_request_of_a_million_values_keeps_nobody_waiting,
    a_refused_body_without_end_is_let_go,
];

/// Sixty downloads that are always ready kept the timers from firing.
fn a_time_limit_fires_while_many_downloads_run(driver: Driver) {
    let daemon = Setup::new(driver).flag("--kill-grace", "1").ready();
    endless(&daemon, "f");
    let downloads: Vec<_> = (0..60).map(|_| download(&daemon, "f")).collect();
    daemon.begin(
        "t",
        &json!({"command": ["sleep", "1000"], "timeout_sec": 0.1}),
    );
    assert_eq!(daemon.exited("t")["timed_out"], true);
    for download in downloads {
        let _ = download.shutdown(Shutdown::Both);
    }
}

/// The kernel takes this number for "leave it as it is", and the daemon may be root.
fn the_highest_id_is_no_user_and_no_group(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (field, value, slug) in [
        ("user", json!(u32::MAX), "unknown_user"),
        ("user", json!("4294967295"), "unknown_user"),
        ("group", json!(u32::MAX), "unknown_group"),
        ("group", json!("4294967295"), "unknown_group"),
    ] {
        let mut request = json!({"exec_id": "x", "command": ["id"]});
        request[field] = value;
        daemon.ask(&request).refuses(400, slug);
    }
}

fn kills_of_one_exec_are_one_kill(driver: Driver) {
    let daemon = Setup::new(driver).flag("--kill-grace", "1").ready();
    let script =
        "trap '' TERM; for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo $$ > up; wait; wait";
    daemon.begin_script("k", script);
    daemon.pid_in("up");
    let base = daemon.descriptors();
    let kill = Request::post(format!("{}/kill", exec_at("k")))
        .bearer()
        .bytes();
    let mut kills: Vec<Connection> = (0..30).map(|_| daemon.connect()).collect();
    for connection in &mut kills {
        connection.send(&kill);
    }
    // One connection each, and no more than one set of watched processes.
    wait_until("the kills are under way", || {
        daemon.descriptors() >= base + 30
    });
    assert!(
        daemon.descriptors() < base + 30 + 30,
        "{}",
        daemon.descriptors()
    );
    for mut connection in kills {
        connection.reply().is(200);
    }
    daemon.exited("k");
}

/// A search for the first line of a window said nothing, so nobody saw that its client had left.
fn a_window_that_nobody_waits_for_is_given_up(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let base = daemon.at_rest();
    endless(&daemon, "f");
    let target = format!("{}&start_line=2", file_at(daemon.path("f")));
    let mut search = daemon.connect();
    search.send(Request::get(target).bearer().bytes());
    wait_until("the search is under way", || daemon.descriptors() > base);
    drop(search);
    daemon.holds_at_most(base);
}

fn a_file_whose_first_read_fails_is_an_error(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.get(file_at("/proc/self/mem")).explains(500);
    let mut kept = daemon.connect();
    kept.call(&Request::get(file_at("/proc/self/mem")).bearer())
        .is(500);
    kept.call(&Request::get("/v1/health")).is(200);
}

/// Half a million directories were made of one name, in half a minute.
fn a_name_longer_than_any_path_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let deep = format!("{}f", "q/".repeat(100_000));
    for spool in ["on", "off"] {
        let body = archive([gnu_long(b'L', &deep), file("short", "1")]);
        let target = format!("{}&spool={spool}", tar_at(daemon.path("t")));
        daemon.put(target, body).explains(400);
    }
}

fn a_request_of_a_million_values_keeps_nobody_waiting(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let many = vec![""; 2_000_000];
    daemon
        .ask(&json!({"exec_id": "x", "command": many}))
        .refuses(500, "spawn_failed");
    daemon.get(exec_at("x")).refuses(404, "unknown_exec");
}

fn a_refused_body_without_end_is_let_go(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let base = daemon.at_rest();
    let mut pump = daemon.connect();
    let head = "PUT /v1/fs/file?path=/x HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n";
    pump.send(head);
    let pumping = pump.send_aside(noise(64_000_000));
    pump.reply().is(401);
    // It ends with an error once the daemon has let go, or is through.
    let _ = pumping.join();
    drop(pump);
    daemon.holds_at_most(base);
}

/// A file of a terabyte that takes no room.
fn endless(daemon: &Daemon, name: &str) {
    let file = File::create(daemon.path(name)).expect("the scratch directory is ours");
    file.set_len(1 << 40).expect("holes are free");
}

/// A download whose client takes what comes as fast as it comes, until it is shut down.
fn download(daemon: &Daemon, name: &str) -> TcpStream {
    let mut stream =
        TcpStream::connect(("127.0.0.1", daemon.addresses()[0].port())).expect("connects");
    let target = file_at(daemon.path(name));
    let request = Request::get(target).bearer().bytes();
    stream
        .write_all(&request)
        .expect("the daemon takes what is sent");
    let mut taken = stream.try_clone().expect("a socket can be duplicated");
    thread::spawn(move || {
        let mut scratch = [0; 65_536];
        while taken.read(&mut scratch).is_ok_and(|count| count > 0) {}
    });
    stream
}
