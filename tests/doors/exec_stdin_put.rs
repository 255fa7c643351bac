//! Standard input as a streamed body: offsets, retries, back-pressure.

use serde_json::json;

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::reply::Reply;
use crate::request::Request;
use crate::scratch::noise;

both![
    a_body_is_written_and_counted,
    any_content_type_is_taken,
    sixty_four_mebibytes_arrive_whole,
    sixty_four_mebibytes_pass_through_cat,
    an_offset_is_told_by_get_and_head,
    bytes_of_the_json_route_count_too,
    a_retried_chunk_is_not_written_twice,
    an_offset_behind_missing_bytes_is_refused,
    chunks_cut_and_repeated_anywhere_arrive_once,
    a_retried_end_is_answered_again,
    bytes_after_the_end_are_refused,
    bytes_are_written_as_they_arrive,
    a_child_that_does_not_read_costs_the_time_limit,
    a_write_behind_one_that_lasts_is_told_so,
    a_client_that_breaks_off_leaves_what_arrived,
    a_child_that_ends_cuts_the_body_off,
    a_body_that_was_cut_off_ends_the_connection,
    a_child_that_closed_its_stdin_is_told_of,
    a_body_over_the_limit_is_refused,
    what_cannot_be_written_to_is_refused_in_order,
    a_flow_does_not_upset_what_is_pipelined_behind_it,
];

/// Starts a script with a standard input under the id `e`.
fn begin(daemon: &Daemon, script: &str) {
    daemon.begin(
        "e",
        &json!({"shell": true, "command": [script], "stdin": true}),
    );
}

fn put(query: &str) -> Request {
    Request::put(format!("/v1/exec/e/stdin?{query}")).bearer()
}

/// Checks an answer that tells the state of the standard input.
#[track_caller]
fn tells(reply: Reply, offset: usize, eof: bool) {
    let reply = reply.is(200);
    let expected = format!(r#"{{"exec_id":"e","offset":{offset},"eof":{eof}}}"#);
    assert_eq!(reply.text(), expected);
    assert_eq!(
        reply.field("stdin-offset"),
        Some(offset.to_string().as_str())
    );
}

/// Checks a refusal that tells where to go on.
#[track_caller]
fn refuses(reply: Reply, status: u16, slug: &str, offset: usize) {
    let reply = reply.refuses(status, slug);
    assert_eq!(
        reply.field("stdin-offset"),
        Some(offset.to_string().as_str())
    );
}

/// What GET says is the next offset.
#[track_caller]
fn next(daemon: &Daemon) -> usize {
    let offset = daemon.get("/v1/exec/e/stdin").is(200).json()["offset"].as_u64();
    usize::try_from(offset.expect("a number")).expect("64 bits")
}

/// Sends a large body while health is asked for, and checks that it is answered meanwhile.
#[track_caller]
fn send_large(daemon: &Daemon, request: &Request) -> Reply {
    let mut connection = daemon.connect();
    let sending = connection.send_aside(request.bytes());
    while !sending.is_finished() {
        daemon.health();
    }
    sending
        .join()
        .expect("it does not panic")
        .expect("all of it is taken");
    connection.reply()
}

fn a_body_is_written_and_counted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    tells(daemon.call(&put("").body("hello ")), 6, false);
    tells(daemon.call(&put("").chunks(["wo", "rld"])), 11, false);
    tells(daemon.call(&put("eof=0").body("")), 11, false);
    tells(daemon.call(&put("eof=1").body("!")), 12, true);
    assert_eq!(daemon.exited("e")["stdout"], "hello world!");
}

fn any_content_type_is_taken(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    for (media, bytes) in [
        ("application/json", "{"),
        ("text/plain", "}"),
        ("nonsense", "\0\n"),
    ] {
        let request = put("").field("content-type", media).body(bytes);
        daemon.call(&request).is(200);
    }
    daemon.call(&put("eof=true")).is(200);
    assert_eq!(daemon.exited("e")["stdout"], "{}\0\n");
}

fn sixty_four_mebibytes_arrive_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(64 << 20);
    std::fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let expected = daemon.output(&json!({"command": ["sha256sum", "f"]}));
    begin(&daemon, "sha256sum");
    let reply = send_large(&daemon, &put("offset=0&eof=1").body(content));
    tells(reply, 64 << 20, true);
    let digest = daemon.exited("e")["stdout"]
        .as_str()
        .expect("a string")
        .to_owned();
    assert_eq!(digest.split(' ').next(), expected.split(' ').next());
}

fn sixty_four_mebibytes_pass_through_cat(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(64 << 20);
    begin(&daemon, "cat | tee copy");
    let chunks = content.chunks(100_000).map(<[u8]>::to_vec);
    let reply = send_large(&daemon, &put("eof=1").chunks(chunks));
    tells(reply, 64 << 20, true);
    let outcome = daemon.exited("e");
    assert_eq!(
        (&outcome["exit_code"], &outcome["truncated"]),
        (&json!(0), &json!(true))
    );
    assert!(std::fs::read(daemon.path("copy")).expect("it was written") == content);
    let stream = daemon.get("/v1/exec/e/stream?offset=67108864").text();
    assert!(stream.contains("\"offset\":67108864"), "{stream}");
}

fn an_offset_is_told_by_get_and_head(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat >/dev/null");
    tells(daemon.get("/v1/exec/e/stdin"), 0, false);
    daemon.call(&put("").body("12345")).is(200);
    tells(daemon.get("/v1/exec/e/stdin"), 5, false);
    let head = Request::new("HEAD", "/v1/exec/e/stdin").bearer();
    let reply = daemon.call(&head).is(200);
    assert_eq!(reply.field("stdin-offset"), Some("5"));
    daemon.call(&put("eof=1")).is(200);
    daemon.exited("e");
    // Also when nothing can be written any more: that is when a client wants to know.
    tells(daemon.get("/v1/exec/e/stdin"), 5, true);
    let reply = daemon.call(&Request::new("DELETE", "/v1/exec/e/stdin").bearer());
    assert_eq!(reply.bare(405).field("allow"), Some("GET,HEAD,POST,PUT"));
}

fn bytes_of_the_json_route_count_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    let write = |body| Request::post("/v1/exec/e/stdin").bearer().json(&body);
    let reply = daemon.call(&write(json!({"data_b64": "YWJj"}))).is(200);
    assert_eq!(reply.text(), r#"{"exec_id":"e","written":3,"eof":false}"#);
    assert_eq!(next(&daemon), 3);
    tells(daemon.call(&put("offset=1").body("bcde")), 5, false);
    daemon
        .call(&write(json!({"data_b64": "Zg==", "signal": "eof"})))
        .is(200);
    tells(daemon.get("/v1/exec/e/stdin"), 6, true);
    tells(daemon.call(&put("offset=5&eof=1").body("f")), 6, true);
    assert_eq!(daemon.exited("e")["stdout"], "abcdef");
}

fn a_retried_chunk_is_not_written_twice(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    for _ in 0..3 {
        tells(daemon.call(&put("offset=0").body("abc")), 3, false);
    }
    tells(daemon.call(&put("offset=0").body("a")), 3, false);
    tells(daemon.call(&put("offset=2").body("cd")), 4, false);
    tells(daemon.call(&put("offset=4").body("e")), 5, false);
    daemon.call(&put("eof=1")).is(200);
    assert_eq!(daemon.exited("e")["stdout"], "abcde");
}

fn an_offset_behind_missing_bytes_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    daemon.call(&put("").body("abc")).is(200);
    for offset in ["4", "1000", "18446744073709551615"] {
        let reply = daemon.call(&put(&format!("offset={offset}&eof=1")).body("x"));
        assert!(reply.text().contains('3'), "{reply:?}");
        refuses(reply, 409, "stdin_offset", 3);
    }
    tells(daemon.call(&put("offset=3&eof=1").body("d")), 4, true);
    assert_eq!(daemon.exited("e")["stdout"], "abcd");
}

fn chunks_cut_and_repeated_anywhere_arrive_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(600_000);
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("64 bits")
    };
    begin(&daemon, "cat > copy");
    let mut connection = daemon.connect();
    let mut aborted = 0;
    loop {
        let known = next(&daemon);
        if known == content.len() {
            break;
        }
        let from = known - random(known.min(50_000) + 1);
        let to = content.len().min(from + random(60_000));
        let mut request = put(&format!("offset={from}"));
        request = match random(2) {
            0 => request.body(&content[from..to]),
            _ => request.chunks(
                content[from..to]
                    .chunks(1 + random(20_000))
                    .map(<[u8]>::to_vec),
            ),
        };
        if random(3) == 0 {
            // A client that crashes in the middle of the body.
            let bytes = request.bytes();
            let mut broken = daemon.connect();
            broken.send(&bytes[..bytes.len() - random(bytes.len() / 2)]);
            broken.reset();
            aborted += 1;
            continue;
        }
        let reply = connection.call(&request).is(200).json();
        let offset = reply["offset"].as_u64().expect("a number");
        assert!(offset >= to as u64, "{reply}");
    }
    assert!(aborted > 0);
    tells(
        connection.call(&put(&format!("offset={}&eof=1", content.len()))),
        content.len(),
        true,
    );
    daemon.exited("e");
    assert!(std::fs::read(daemon.path("copy")).expect("it was written") == content);
}

fn a_retried_end_is_answered_again(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    for _ in 0..2 {
        tells(daemon.call(&put("offset=0&eof=1").body("abc")), 3, true);
    }
    daemon.exited("e");
    tells(daemon.call(&put("offset=0&eof=1").body("abc")), 3, true);
    tells(daemon.call(&put("offset=3&eof=1").chunks([""; 0])), 3, true);
    tells(daemon.call(&put("eof=1")), 3, true);
    assert_eq!(daemon.exited("e")["stdout"], "abc");
}

fn bytes_after_the_end_are_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    daemon.call(&put("eof=1").body("abc")).is(200);
    refuses(
        daemon.call(&put("offset=3&eof=1").body("d")),
        410,
        "stdin_closed",
        3,
    );
    refuses(daemon.call(&put("eof=1").body("d")), 410, "stdin_closed", 3);
    refuses(daemon.call(&put("").body("d")), 410, "stdin_closed", 3);
    refuses(daemon.call(&put("")), 410, "stdin_closed", 3);
    assert_eq!(daemon.exited("e")["stdout"], "abc");
}

fn bytes_are_written_as_they_arrive(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    // One body of a length that a file upload would wait for, and one of chunks.
    let head = put("").field("content-length", "100000000").head();
    let mut long = daemon.connect();
    long.send(head);
    for (sent, shown) in [("one", "one"), (" two", "one two")] {
        long.send(sent);
        wait_until("the child has it", || {
            daemon.get("/v1/exec/e?stdout_offset=0").json()["stdout"] == shown
        });
    }
    assert_eq!(next(&daemon), 7);
    drop(long);
    let mut chunked = daemon.connect();
    chunked.send(put("").field("transfer-encoding", "chunked").head());
    chunked.send("6\r\n three\r\n");
    wait_until("the child has it", || {
        daemon.get("/v1/exec/e?stdout_offset=7").json()["stdout"] == " three"
    });
    chunked.send("0\r\n\r\n");
    tells(chunked.reply(), 13, false);
}

fn a_child_that_does_not_read_costs_the_time_limit(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stdin-write-timeout", "0.2")
        .ready();
    begin(&daemon, "until [ -e go ]; do sleep 0.01; done; cat > copy");
    let content = noise(3_000_000);
    let mut connection = daemon.connect();
    let sending = connection.send_aside(put("offset=0").body(content.clone()).bytes());
    let reply = connection.reply();
    // The rest of the body may find nobody.
    let _ = sending.join().expect("it does not panic");
    let taken = next(&daemon);
    assert!(taken > 0 && taken < content.len());
    refuses(reply, 408, "stdin_write_timeout", taken);
    refuses(
        daemon.call(&put("").body("x")),
        408,
        "stdin_write_timeout",
        taken,
    );
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    let rest = put(&format!("offset={taken}&eof=1")).body(&content[taken..]);
    tells(daemon.call(&rest), content.len(), true);
    daemon.exited("e");
    assert!(std::fs::read(daemon.path("copy")).expect("it was written") == content);
}

fn a_write_behind_one_that_lasts_is_told_so(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stdin-write-timeout", "0.2")
        .ready();
    begin(&daemon, "cat");
    let mut lasting = begun(&daemon, "12345");
    refuses(
        daemon.call(&put("").body("x")),
        408,
        "stdin_write_timeout",
        5,
    );
    let write = Request::post("/v1/exec/e/stdin").bearer();
    let reply = daemon.call(&write.json(&json!({"data_b64": "eA=="})));
    reply.refuses(408, "stdin_write_timeout");
    lasting.send("1\r\n6\r\n0\r\n\r\n");
    tells(lasting.reply(), 6, false);
    daemon.call(&put("eof=1").body("7")).is(200);
    assert_eq!(daemon.exited("e")["stdout"], "1234567");
}

/// A chunked body that has begun with these bytes, which were taken.
#[track_caller]
fn begun(daemon: &Daemon, bytes: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.send(put("").field("transfer-encoding", "chunked").head());
    connection.send(format!("{:x}\r\n{bytes}\r\n", bytes.len()));
    wait_until("it is taken", || next(daemon) == bytes.len());
    connection
}

fn a_client_that_breaks_off_leaves_what_arrived(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    begun(&daemon, "12345").reset();
    tells(daemon.call(&put("offset=5").body("6")), 6, false);
    let mut half = daemon.connect();
    half.send(put("eof=1").field("content-length", "10").head());
    half.send("789");
    half.finish();
    wait_until("it is taken", || next(&daemon) == 9);
    half.reply().explains(400);
    tells(daemon.call(&put("offset=6&eof=1").body("789a")), 10, true);
    assert_eq!(daemon.exited("e")["stdout"], "123456789a");
}

fn a_child_that_ends_cuts_the_body_off(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "read line; echo got $line");
    let mut lasting = begun(&daemon, "x\n");
    refuses(lasting.reply(), 410, "stdin_closed", 2);
    lasting.is_closed();
    assert_eq!(daemon.exited("e")["stdout"], "got x\n");
    tells(daemon.get("/v1/exec/e/stdin"), 2, false);
    refuses(daemon.call(&put("eof=1")), 410, "stdin_closed", 2);
}

fn a_body_that_was_cut_off_ends_the_connection(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "read line; echo got $line");
    let mut connection = daemon.connect();
    connection.send(put("").field("content-length", "100").head());
    connection.send("x\n");
    let reply = connection.reply();
    // So short a rest would be read away, were it known how much of it was read before.
    assert_eq!(reply.field("connection"), Some("close"));
    refuses(reply, 410, "stdin_closed", 2);
}

fn a_child_that_closed_its_stdin_is_told_of(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "exec </dev/null; echo ready; sleep 1000");
    wait_until("it is closed", || {
        daemon.get("/v1/exec/e?stdout_offset=0").json()["stdout"] == "ready\n"
    });
    refuses(daemon.call(&put("").body("x")), 410, "stdin_closed", 0);
    refuses(daemon.call(&put("eof=1")), 410, "stdin_closed", 0);
}

fn a_body_over_the_limit_is_refused(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-body-bytes", "1000")
        .flag("--max-stdin-write-bytes", "10")
        .ready();
    begin(&daemon, "cat >/dev/null");
    tells(daemon.call(&put("").body(noise(1000))), 1000, false);
    daemon.call(&put("").body(noise(1001))).explains(413);
    assert_eq!(next(&daemon), 1000);
    daemon
        .call(&put("").chunks([noise(600), noise(600)]))
        .explains(413);
}

fn what_cannot_be_written_to_is_refused_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("plain", &json!({"command": ["sleep", "1000"]}));
    for query in [
        "offset=",
        "offset=-1",
        "offset=x",
        "offset=1&offset=1",
        "eof=",
        "eof=2",
        "eof=yes",
        "eof=1&eof=1",
    ] {
        let request = Request::put(format!("/v1/exec/none/stdin?{query}")).bearer();
        let reply = daemon
            .call(&request.body("x"))
            .refuses(400, "malformed_request");
        let name = query.split('=').next().expect("a name");
        assert!(reply.text().contains(name), "{reply:?}");
    }
    for (id, status, slug) in [
        ("none", 404, "unknown_exec"),
        ("plain", 409, "stdin_not_requested"),
    ] {
        let target = format!("/v1/exec/{id}/stdin");
        daemon.put(&*target, "x").refuses(status, slug);
        daemon.get(&*target).refuses(status, slug);
    }
}

fn a_flow_does_not_upset_what_is_pipelined_behind_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    begin(&daemon, "cat");
    let mut connection = daemon.connect();
    let mut bytes = put("").body("abc").bytes();
    bytes.extend(put("offset=1").chunks(["bc", "d"]).bytes());
    bytes.extend(put("offset=9").body("never").bytes());
    bytes.extend(put("eof=1").body("").bytes());
    connection.send(bytes);
    tells(connection.reply(), 3, false);
    tells(connection.reply(), 4, false);
    refuses(connection.reply(), 409, "stdin_offset", 4);
    tells(connection.reply(), 4, true);
    assert_eq!(daemon.exited("e")["stdout"], "abcd");
}
