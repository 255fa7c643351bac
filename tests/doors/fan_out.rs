//! Many followers of one exec: all are told the same, and those that do not read cost nobody anything.

use std::thread;

use serde_json::json;

use crate::client::Connection;
use crate::daemon::{Address, Daemon, Setup};
use crate::driver::Driver;
use crate::events::{Events, Heard};
use crate::process::{self, wait_until};
use crate::request::Request;
use crate::scratch::noise;

both![
    two_hundred_followers_are_told_the_same,
    followers_that_do_not_read_cost_a_bounded_amount,
];

/// What each of the two streams carries.
const HALF: usize = 96 << 10;

fn two_hundred_followers_are_told_the_same(driver: Driver) {
    let daemon = wide(driver);
    std::fs::write(daemon.path("f"), noise(HALF / 16)).expect("the scratch directory is ours");
    let script =
        "read go; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do cat f; cat f >&2; done";
    begin(&daemon, "e", script);
    let stalled: Vec<_> = (0..20).map(|_| stall(&daemon, "e")).collect();
    let (early, late) = (0..180).partition::<Vec<usize>, _>(|number| number % 3 > 0);
    let heard: Vec<Heard> = thread::scope(|scope| {
        let follow = |number: usize| {
            let events = Events::follow(&daemon, "e", 0);
            let address = &daemon.addresses()[0];
            // One in nine breaks off somewhere in the middle, and resumes.
            let breaks = number.is_multiple_of(9).then_some(number * 1200);
            let builder = thread::Builder::new().stack_size(256 << 10);
            let reading = move || read(address, events, breaks);
            builder.spawn_scoped(scope, reading).expect("a thread")
        };
        let mut readers: Vec<_> = early.into_iter().map(follow).collect();
        go(&daemon, "e");
        readers.extend(late.into_iter().map(follow));
        let joined = readers.into_iter().map(|reader| reader.join());
        joined
            .map(|told| told.expect("it reads to the end"))
            .collect()
    });
    let first = &heard[0];
    first.is_whole();
    assert_eq!(first.bytes.len(), 2 * HALF);
    let expected = noise(HALF / 16).repeat(16);
    for stream in [crate::events::Stream::Stdout, crate::events::Stream::Stderr] {
        assert!(first.of(stream) == expected, "{stream:?} differs");
    }
    assert!(heard.iter().all(|told| told == first), "they differ");
    // Whoever has not read until now was only late.
    for connection in stalled.into_iter().take(3) {
        assert!(Events::answered(connection, 0).rest() == *first);
    }
}

fn followers_that_do_not_read_cost_a_bounded_amount(driver: Driver) {
    let daemon = wide(driver);
    let growth = |id: &str, followers: usize| {
        let before = resident(&daemon);
        begin(&daemon, id, "read go; head -c 4194304 /dev/zero");
        let stalled: Vec<_> = (0..followers).map(|_| stall(&daemon, id)).collect();
        go(&daemon, id);
        Events::follow(&daemon, id, 0).rest().is_whole();
        // As many again come when all is there to be sent.
        let behind: Vec<_> = (0..followers).map(|_| stall(&daemon, id)).collect();
        comes_to_rest(&daemon);
        let grown = resident(&daemon).saturating_sub(before);
        drop((stalled, behind));
        grown
    };
    growth("warm", 1);
    let (alone, crowded) = (growth("alone", 0), growth("crowded", 50));
    // Each may hold what it is about to send, and no more: far less than the 4 MiB that it has not read.
    let bound = alone + 16 * 1024;
    assert!(
        crowded < bound,
        "{alone} KiB alone, {crowded} KiB with them"
    );
}

/// A daemon that can replay all that is written here, with a second listener whose sockets hold little.
fn wide(driver: Driver) -> Daemon {
    let setup = Setup::new(driver).flag("--stream-buffer-bytes", (8 << 20).to_string());
    let socket = format!("unix://{}", setup.path("socket").display());
    setup.listen("tcp://127.0.0.1:0").listen(socket).ready()
}

/// Starts a script that waits for [`go`].
#[track_caller]
fn begin(daemon: &Daemon, id: &str, script: &str) {
    daemon.begin(
        id,
        &json!({"shell": true, "command": [script], "stdin": true}),
    );
}

#[track_caller]
fn go(daemon: &Daemon, id: &str) {
    let request = Request::post(format!("/v1/exec/{id}/stdin")).bearer();
    daemon
        .call(&request.json(&json!({"data_b64": "Z28K"})))
        .is(200);
}

/// A follower that asks, and reads nothing: a Unix socket takes some 200 KB of what is sent to it.
#[track_caller]
fn stall(daemon: &Daemon, id: &str) -> Connection {
    let mut connection = daemon.connect_to(1);
    connection.send(Events::request(id, 0).bytes());
    connection
}

/// Reads to the end, over a second connection from about `breaks` bytes on.
fn read(address: &Address, mut events: Events, breaks: Option<usize>) -> Heard {
    let Some(breaks) = breaks else {
        return events.rest();
    };
    let mut heard = Heard::default();
    events.hear_until(&mut heard, |heard| heard.bytes.len() >= breaks);
    let connection = address.connect().expect("the daemon accepts connections");
    let mut again = Events::over(connection, "e", events.cursor());
    drop(events);
    again.hear_until(&mut heard, |_| false);
    heard
}

fn resident(daemon: &Daemon) -> u64 {
    let text = process::status(daemon.pid(), "VmRSS");
    let number = text.trim_end_matches(" kB").parse();
    number.expect("kibibytes")
}

/// Waits until the daemon has done all that it can do now.
#[track_caller]
fn comes_to_rest(daemon: &Daemon) {
    let mut last = (None, 0);
    wait_until("the daemon rests", || {
        let stat = process::stat(daemon.pid()).expect("it runs");
        let used = Some((stat[11].clone(), stat[12].clone()));
        last = if used == last.0 {
            (used, last.1 + 1)
        } else {
            (used, 0)
        };
        last.1 == 50
    });
}
