//! Downloading a tree that changes meanwhile: what was planned, or an end that is seen (D15).

use std::fs;

use crate::archive::entries;
use crate::client::Connection;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, tar_at};
use crate::scratch::{noise, tree};

both![
    a_file_that_grows_is_cut_at_its_planned_size,
    a_file_that_vanishes_ends_the_connection_and_is_logged,
    a_file_that_shrinks_ends_the_connection_and_is_logged,
    a_reader_that_leaves_costs_nothing,
];

const LARGE: usize = 32 << 20;
/// Three headers, the data of both files in whole blocks, and the end.
const PLANNED: usize = 3 * 512 + LARGE + 1024 + 1024;

fn a_file_that_grows_is_cut_at_its_planned_size(driver: Driver) {
    let daemon = changing(driver);
    let mut connection = begin(&daemon);
    fs::write(daemon.path("t/z-last"), noise(5000)).expect("the scratch directory is ours");
    let body = connection.take(PLANNED).expect("the planned length");
    connection.is_usable();
    let packed = entries(&body);
    let last = packed.last().expect("two files");
    assert_eq!((last.name.as_str(), last.data.len()), ("z-last", 1000));
}

fn a_file_that_vanishes_ends_the_connection_and_is_logged(driver: Driver) {
    let daemon = changing(driver);
    let mut connection = begin(&daemon);
    fs::remove_file(daemon.path("t/z-last")).expect("the scratch directory is ours");
    is_cut_and_logged(&daemon, &mut connection);
}

fn a_file_that_shrinks_ends_the_connection_and_is_logged(driver: Driver) {
    let daemon = changing(driver);
    let mut connection = begin(&daemon);
    fs::write(daemon.path("t/z-last"), "short").expect("the scratch directory is ours");
    is_cut_and_logged(&daemon, &mut connection);
}

fn a_reader_that_leaves_costs_nothing(driver: Driver) {
    let daemon = changing(driver);
    let before = daemon.at_rest();
    for round in 0..6 {
        let mut connection = begin(&daemon);
        connection.take(100_000).expect("the beginning");
        if round % 2 == 0 {
            connection.reset();
        }
    }
    daemon.holds_at_most(before);
    assert!(tree(&daemon.temporary()).is_empty());
}

/// A daemon and a tree whose first file is larger than all buffers between it and a client that does not read.
fn changing(driver: Driver) -> Daemon {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    fs::write(daemon.path("t/a"), vec![b'a'; LARGE]).expect("the scratch directory is ours");
    fs::write(daemon.path("t/z-last"), noise(1000)).expect("the scratch directory is ours");
    daemon
}

/// Asks for the tree and reads the head of the answer, so that the walk is over.
#[track_caller]
fn begin(daemon: &Daemon) -> Connection {
    let mut connection = daemon.connect();
    connection.send(Request::get(tar_at(daemon.path("t"))).bearer().bytes());
    assert_eq!(connection.head().expect("a response").status, 200);
    connection
}

#[track_caller]
fn is_cut_and_logged(daemon: &Daemon, connection: &mut Connection) {
    let (body, _) = connection.rest();
    assert!(body.len() < PLANNED, "{} bytes came", body.len());
    wait_until("the log names the file", || {
        daemon.stderr().iter().any(|line| line.contains("z-last"))
    });
    daemon.health();
}
