//! What a command has used, as its result and the end of its stream tell it.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::execs::{USAGE, quiet_success, without_usage};
use crate::reply::keys;

both![
    a_result_ends_with_the_usage,
    an_ack_tells_the_same_usage,
    a_stream_ends_with_the_usage,
    processor_time_is_counted_for_descendants_that_were_waited_for,
    peak_memory_is_in_bytes,
    waiting_is_counted_as_a_voluntary_switch,
    wall_time_covers_the_whole_exec,
];

fn a_result_ends_with_the_usage(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon.exited("e");
    let text = daemon.poll("e").is(200).text();
    assert_eq!(keys(&text).last().map(String::as_str), Some("usage"));
    assert_eq!(without_usage(&text), quiet_success("e"));
}

fn an_ack_tells_the_same_usage(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    let polled = daemon.exited("e");
    let acked = daemon.post("/v1/exec/e/ack").is(200).json();
    assert_eq!(acked["usage"], polled["usage"]);
    assert_eq!(
        daemon.poll("e").text(),
        r#"{"exec_id":"e","phase":"acked"}"#
    );
}

fn a_stream_ends_with_the_usage(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo hi");
    let stream = daemon.get("/v1/exec/e/stream").is(200).text();
    let (_, exit) = stream
        .split_once("event: exit\ndata: ")
        .expect("an exit event");
    let exit = exit.trim_end();
    assert_eq!(
        without_usage(exit),
        r#"{"exit_code":0,"signal":null,"timed_out":false,"truncated":false,"writers_may_be_alive":false,"offset":3}"#
    );
    let exit: Value = serde_json::from_str(exit).expect("JSON");
    assert_eq!(exit["usage"], daemon.exited("e")["usage"]);
}

fn processor_time_is_counted_for_descendants_that_were_waited_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Builtins only, so that all is user time of one process: some tens of milliseconds at least.
    let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let own = daemon.script(burn);
    let below = daemon.script(&format!("sh -c '{burn}'; true"));
    for outcome in [own, below] {
        assert!(number(&outcome, "user_seconds") > 0.0, "{outcome}");
    }
}

fn peak_memory_is_in_bytes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let small = daemon.script("true");
    // The tool keeps a line of this many bytes in memory.
    let large = daemon.script("head -c 50000000 /dev/zero | tr '\\0' x | sort | wc -c");
    assert_eq!(large["exit_code"], 0, "{large}");
    let peak = number(&large, "peak_resident_bytes");
    assert!(peak > 50_000_000.0 && peak < 5e9, "{large}");
    let peak = number(&small, "peak_resident_bytes");
    assert!(peak > 100_000.0 && peak < 40_000_000.0, "{small}");
}

fn waiting_is_counted_as_a_voluntary_switch(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outcome = daemon.script("for i in 1 2 3 4 5; do sleep 0.01; done");
    assert!(number(&outcome, "voluntary_switches") >= 5.0, "{outcome}");
}

fn wall_time_covers_the_whole_exec(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outcome = daemon.exec(&json!({"command": ["sleep", "0.2"]}));
    assert!(number(&outcome, "wall_seconds") >= 0.2, "{outcome}");
    assert_eq!(keys(&outcome["usage"].to_string()).len(), USAGE.len());
}

#[track_caller]
fn number(outcome: &Value, name: &str) -> f64 {
    let value = outcome["usage"][name].as_f64();
    value.unwrap_or_else(|| panic!("no {name} in {outcome}"))
}
