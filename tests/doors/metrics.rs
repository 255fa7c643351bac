//! What is counted: requests, bytes, execs, and who may ask.

use std::collections::BTreeSet;

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::events::{Event, Events};
use crate::process::wait_until;
use crate::request::{Request, TOKEN, file_at};
use crate::resumable;
use crate::scrape::Scrape;
use crate::scratch::noise;
use crate::watcher::Watcher;
use crate::websocket::{Guest, WebSocket, echo};

both![
    requests_are_counted_by_route_and_status,
    a_request_that_is_refused_is_counted_on_its_route,
    a_head_that_is_refused_has_a_place_of_its_own,
    a_client_that_leaves_is_counted_without_a_status,
    a_scrape_counts_itself_when_it_is_over,
    times_are_sorted_into_buckets,
    bodies_are_counted_to_the_byte,
    bytes_of_a_tunnel_are_counted_as_its_own_and_as_the_networks,
    execs_are_counted_by_phase,
    what_becomes_of_starts_is_counted,
    hundreds_of_followers_are_counted_while_they_follow,
    gaps_and_output_on_disk_are_counted,
    uploads_and_watches_are_counted_while_they_last,
    connections_that_cannot_be_taken_are_counted,
    a_scrape_asks_for_the_token,
    a_scrape_is_open_where_the_operator_says_so,
    whoever_likes_open_metrics_gets_them,
];

fn requests_are_counted_by_route_and_status(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for _ in 0..3 {
        daemon.health();
    }
    daemon.call(&Request::new("HEAD", "/v1/health")).is(200);
    daemon.call(&Request::post("/v1/health")).is(405);
    daemon.get("/v1/exec/secret-name").is(404);
    daemon.get("/v1/secret-path").is(404);
    daemon
        .call(&Request::new("FROB", "/v1/secret-path"))
        .is(404);
    let scrape = Scrape::of(&daemon);
    for (route, method, code, count) in [
        ("/v1/health", "GET", "200", 4.0),
        ("wrong_method", "any", "405", 1.0),
        ("/v1/exec/{id}", "GET", "404", 1.0),
        ("unmatched", "any", "404", 2.0),
        ("/aws/lambda-microvms/runtime/v1/run", "POST", "200", 1.0),
    ] {
        assert_eq!(scrape.requests(route, method, code), count, "{route}");
    }
    let all = scrape.samples("ringd_http_requests_total").count();
    assert_eq!(all, 5, "{}", scrape.text);
    for name in ["secret", "FROB", "HEAD"] {
        assert!(!scrape.text.contains(name), "{}", scrape.text);
    }
}

fn a_request_that_is_refused_is_counted_on_its_route(driver: Driver) {
    let daemon = Daemon::start(driver);
    let poll = Request::get("/v1/exec/x");
    daemon.call(&poll).bare(503);
    daemon.bootstrap(TOKEN, &json!({})).is(200);
    daemon.call(&poll).bare(401);
    daemon
        .call(&poll.field("authorization", "Bearer wrong"))
        .bare(401);
    // Of a path that exists, by a method that it does not have, not even that is told without the token.
    daemon.call(&Request::put("/v1/exec/x")).bare(401);
    daemon.call(&Request::get("/v1/metrics")).bare(401);
    let scrape = Scrape::of(&daemon);
    for (route, method, code, count) in [
        ("/v1/exec/{id}", "GET", "503", 1.0),
        ("/v1/exec/{id}", "GET", "401", 2.0),
        ("wrong_method", "any", "401", 1.0),
        ("/v1/metrics", "GET", "401", 1.0),
    ] {
        assert_eq!(scrape.requests(route, method, code), count, "{route}");
    }
}

fn a_head_that_is_refused_has_a_place_of_its_own(driver: Driver) {
    let daemon = Setup::new(driver).flag("--head-timeout", "0.2").ready();
    for head in [
        "NONSENSE\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)),
        "GET / HTTP/1.1\r\nhalf".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut connection = daemon.connect();
        connection.send(head);
        connection.rest();
    }
    let scrape = Scrape::of(&daemon);
    for code in ["400", "414", "431", "408", "none"] {
        assert_eq!(scrape.requests("refused", "any", code), 1.0, "{code}");
    }
    assert_eq!(scrape.samples("ringd_http_requests_total").count(), 6);
}

fn a_client_that_leaves_is_counted_without_a_status(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    let mut connection = daemon.connect();
    connection.send(Request::get("/v1/exec/e?wait=1000").bearer().bytes());
    let labels = [("route", "/v1/exec/{id}"), ("method", "GET")];
    let in_flight = |scrape: &Scrape| scrape.find("ringd_http_requests_in_flight", &labels);
    wait_until("the poll is under way", || {
        in_flight(&Scrape::of(&daemon)) == Some(1.0)
    });
    connection.reset();
    wait_until("nobody waits any more", || {
        in_flight(&Scrape::of(&daemon)) == Some(0.0)
    });
    let scrape = Scrape::of(&daemon);
    assert_eq!(scrape.requests("/v1/exec/{id}", "GET", "none"), 1.0);
}

fn a_scrape_counts_itself_when_it_is_over(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let labels = [("route", "/v1/metrics"), ("method", "GET")];
    for before in [0.0, 1.0, 2.0] {
        let scrape = Scrape::of(&daemon);
        assert_eq!(scrape.requests("/v1/metrics", "GET", "200"), before);
        let count = scrape.find("ringd_http_request_duration_seconds_count", &labels);
        assert_eq!(count.unwrap_or(0.0), before);
        assert_eq!(scrape.value("ringd_http_requests_in_flight", &labels), 1.0);
        // What the scrape itself asks of the pool is not among what waits.
        for lane in ["files", "processes"] {
            let waiting = scrape.value("ringd_pool_jobs_waiting", &[("lane", lane)]);
            assert_eq!(waiting, 0.0, "{lane}");
        }
    }
}

fn times_are_sorted_into_buckets(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    daemon.get("/v1/exec/e").is(200);
    daemon.get("/v1/exec/e?wait=0.3").is(200);
    daemon.get("/v1/exec/e?wait=1.1").is(200);
    let scrape = Scrape::of(&daemon);
    let labels = [("route", "/v1/exec/{id}"), ("method", "GET")];
    let up_to = |bound: &str| {
        let labels = [labels[0], labels[1], ("le", bound)];
        scrape.value("ringd_http_request_duration_seconds_bucket", &labels)
    };
    let bounds = [
        "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1",
        "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "+Inf",
    ];
    assert!(bounds.map(up_to).is_sorted(), "{}", scrape.text);
    // A wait is never shorter than it was asked for.
    assert!(
        up_to("0.25") <= 1.0 && up_to("1.0") <= 2.0,
        "{}",
        scrape.text
    );
    assert_eq!(up_to("+Inf"), 3.0);
    let value = |suffix: &str| {
        let name = format!("ringd_http_request_duration_seconds_{suffix}");
        scrape.value(&name, &labels)
    };
    assert_eq!(value("count"), 3.0);
    assert!(value("sum") >= 1.4, "{}", scrape.text);
    let of_route = scrape.samples("ringd_http_request_duration_seconds_bucket");
    let of_route = of_route.filter(|one| one.labels["route"] == "/v1/exec/{id}");
    assert_eq!(of_route.count(), bounds.len());
}

fn bodies_are_counted_to_the_byte(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let scrape = || {
        let reply = daemon.get("/v1/metrics").is(200);
        (Scrape::parse(&reply.text()), reply.body.len())
    };
    let moved = |scrape: &Scrape, family: &str| {
        ["received", "sent"].map(|way| scrape.value(family, &[("direction", way)]))
    };
    let large = noise(3 << 20);
    let (first, its_own) = scrape();
    daemon.put(file_at(daemon.path("f")), large.clone()).is(204);
    // One that has arrived with its head is taken another way.
    daemon.put(file_at(daemon.path("h")), "small").is(204);
    let chunks = [vec![b'a'; 10], vec![b'b'; 7000]];
    let chunked = Request::put(file_at(daemon.path("g"))).bearer();
    daemon.call(&chunked.chunks(chunks)).is(204);
    assert_eq!(daemon.get(file_at(daemon.path("f"))).is(200).body, large);
    assert_eq!(
        daemon.get(file_at(daemon.path("g"))).is(200).body.len(),
        7010
    );
    daemon
        .call(&Request::new("HEAD", file_at(daemon.path("g"))).bearer())
        .is(200);
    let health = daemon.call(&Request::get("/v1/health")).body.len();
    daemon.get("/v1/nope").bare(404);
    let (second, _) = scrape();
    let grown = |family| {
        let (before, after) = (moved(&first, family), moved(&second, family));
        [after[0] - before[0], after[1] - before[1]]
    };
    let received = large.len() + "small".len() + 7010;
    let sent = its_own + large.len() + 7010 + health;
    assert_eq!(
        grown("ringd_http_body_bytes_total"),
        [received as f64, sent as f64]
    );
    // Heads come on top: some thousand bytes for ten of them, far from one body more.
    let [all_in, all_out] = grown("ringd_network_bytes_total");
    let within = |all: f64, bodies: usize| all > bodies as f64 && all < bodies as f64 + 8192.0;
    assert!(
        within(all_in, received) && within(all_out, sent),
        "{all_in} {all_out}"
    );
    assert_eq!(moved(&second, "ringd_tunnel_bytes_total"), [0.0, 0.0]);
}

fn bytes_of_a_tunnel_are_counted_as_its_own_and_as_the_networks(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    let bytes = noise(300_000);
    socket.send(&bytes);
    assert!(socket.take(bytes.len()) == bytes);
    let scrape = Scrape::of(&daemon);
    for direction in ["received", "sent"] {
        let moved = |family| scrape.value(family, &[("direction", direction)]);
        assert_eq!(
            moved("ringd_tunnel_bytes_total"),
            bytes.len() as f64,
            "{direction}"
        );
        assert!(
            moved("ringd_network_bytes_total") > bytes.len() as f64,
            "{direction}"
        );
    }
}

#[track_caller]
fn phases(daemon: &Daemon) -> [f64; 3] {
    let scrape = Scrape::of(daemon);
    ["running", "exited", "acked"].map(|phase| scrape.value("ringd_execs", &[("phase", phase)]))
}

fn execs_are_counted_by_phase(driver: Driver) {
    let daemon = Daemon::ready(driver);
    assert_eq!(phases(&daemon), [0.0, 0.0, 0.0]);
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    daemon.begin("b", &json!({"command": ["true"]}));
    daemon.exited("b");
    assert_eq!(phases(&daemon), [1.0, 1.0, 0.0]);
    daemon.post("/v1/exec/b/ack").is(200);
    assert_eq!(phases(&daemon), [1.0, 0.0, 1.0]);
    daemon.post("/v1/exec/a/kill").is(200);
    daemon.exited("a");
    assert_eq!(phases(&daemon), [0.0, 1.0, 1.0]);
}

fn what_becomes_of_starts_is_counted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    // The same start again starts nothing.
    daemon.begin("a", &json!({"command": ["sleep", "1000"]}));
    daemon.begin(
        "b",
        &json!({"command": ["sleep", "1000"], "timeout_sec": 0.1}),
    );
    daemon.exited("b");
    daemon.exec(&json!({"shell": true, "command": ["printf 12345; printf 678 >&2"]}));
    let absent = json!({"exec_id": "c", "command": ["/no/such"]});
    daemon.ask(&absent).is(500);
    daemon.ask(&absent).is(500);
    daemon.post("/v1/exec/a/kill").is(200);
    daemon.exited("a");
    daemon.post("/v1/exec/a/kill").is(200);
    let scrape = Scrape::of(&daemon);
    for (name, count) in [
        ("starts", 3.0),
        ("start_failures", 2.0),
        ("timeouts", 1.0),
        ("kills", 1.0),
        ("output_bytes", 8.0),
        ("gaps", 0.0),
    ] {
        let name = format!("ringd_exec_{name}_total");
        assert_eq!(scrape.value(&name, &[]), count, "{name}");
    }
}

fn hundreds_of_followers_are_counted_while_they_follow(driver: Driver) {
    const FOLLOWERS: usize = 200;
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["cat"], "stdin": true}));
    let mut all: Vec<Events> = (0..FOLLOWERS)
        .map(|_| Events::follow(&daemon, "e", 0))
        .collect();
    let stream = [("route", "/v1/exec/{id}/stream"), ("method", "GET")];
    let scrape = Scrape::of(&daemon);
    assert_eq!(scrape.value("ringd_exec_followers", &[]), FOLLOWERS as f64);
    assert_eq!(
        scrape.value("ringd_http_requests_in_flight", &stream),
        FOLLOWERS as f64
    );
    assert_eq!(scrape.requests(stream[0].1, "GET", "200"), 0.0);
    // The one that scrapes has a connection too.
    let connections = scrape.value("ringd_connections", &[]);
    assert_eq!(connections, FOLLOWERS as f64 + 1.0);
    assert!(scrape.value("ringd_connections_accepted_total", &[]) > FOLLOWERS as f64);

    let text = json!({"data_b64": "c3RvcA==", "signal": "eof"});
    daemon
        .call(&Request::post("/v1/exec/e/stdin").bearer().json(&text))
        .is(200);
    for follower in &mut all {
        follower.rest().is_whole();
    }
    assert!(Scrape::of(&daemon).value("ringd_exec_output_memory_bytes", &[]) > 0.0);
    drop(all);
    let scrape = Scrape::of(&daemon);
    assert_eq!(scrape.value("ringd_exec_followers", &[]), 0.0);
    assert_eq!(scrape.value("ringd_http_requests_in_flight", &stream), 0.0);
    assert_eq!(scrape.requests(stream[0].1, "GET", "200"), FOLLOWERS as f64);
}

fn gaps_and_output_on_disk_are_counted(driver: Driver) {
    let bounds = |spill: &str| {
        Setup::new(driver)
            .flag("--stream-buffer-bytes", "65536")
            .flag("--stream-spill-bytes", spill)
            .ready()
    };
    let daemon = bounds("0");
    daemon.begin(
        "e",
        &json!({"command": ["head", "-c", "1000000", "/dev/zero"]}),
    );
    daemon.exited("e");
    let mut events = Events::follow(&daemon, "e", 0);
    assert!(matches!(events.next(), Some(Event::Gap { from: 0, .. })));
    events.rest();
    let scrape = Scrape::of(&daemon);
    assert_eq!(scrape.value("ringd_exec_gaps_total", &[]), 1.0);
    assert_eq!(scrape.value("ringd_exec_spill_bytes", &[]), 0.0);

    let daemon = bounds("10000000");
    daemon.begin(
        "e",
        &json!({"command": ["head", "-c", "1000000", "/dev/zero"]}),
    );
    daemon.exited("e");
    Events::follow(&daemon, "e", 0).rest().is_whole();
    let scrape = Scrape::of(&daemon);
    assert_eq!(scrape.value("ringd_exec_gaps_total", &[]), 0.0);
    assert!(scrape.value("ringd_exec_spill_bytes", &[]) > 500_000.0);
}

fn uploads_and_watches_are_counted_while_they_last(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let now = || {
        let scrape = Scrape::of(&daemon);
        ["transfers", "uploads", "watches"].map(|name| scrape.value(&format!("ringd_{name}"), &[]))
    };
    assert_eq!(now(), [0.0, 0.0, 0.0]);
    let location = resumable::begin(&daemon, "u", Some(10));
    let mut uploading = daemon.connect();
    uploading.send(
        Request::put(file_at(daemon.path("f")))
            .bearer()
            .body([0; 100])
            .head(),
    );
    let watcher = Watcher::start(&daemon, daemon.path(""), "");
    wait_until("the upload is under way", || now() == [1.0, 1.0, 1.0]);
    uploading.send([0; 100]);
    uploading.reply().is(204);
    daemon
        .call(&Request::new("DELETE", &*location).bearer())
        .is(204);
    drop(watcher);
    wait_until("the watch has ended", || now() == [0.0, 0.0, 0.0]);
}

fn connections_that_cannot_be_taken_are_counted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut first = daemon.connect();
    let mut errors = || {
        let reply = first.call(&Request::get("/v1/metrics").bearer()).is(200);
        Scrape::parse(&reply.text()).value("ringd_accept_errors_total", &[])
    };
    assert_eq!(errors(), 0.0);
    // From here on there is none left for the scrape either, which then tells what it can.
    daemon.limit_descriptors(daemon.descriptors());
    let late: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    wait_until("a connection cannot be taken", || errors() > 0.0);
    daemon.limit_descriptors(1024);
    drop(late);
}

fn a_scrape_asks_for_the_token(driver: Driver) {
    let daemon = Daemon::start(driver);
    let scrape = Request::get("/v1/metrics");
    daemon.call(&scrape).bare(503);
    daemon.bootstrap(TOKEN, &json!({})).is(200);
    daemon.call(&scrape).bare(401);
    daemon.call(&scrape.bearer()).is(200);
}

fn a_scrape_is_open_where_the_operator_says_so(driver: Driver) {
    let scrape = Request::get("/v1/metrics");
    let alone = Setup::new(driver).switch("--metrics-open");
    let spelled = Setup::new(driver).switch("--metrics-open=on");
    let variable = Setup::new(driver).env("RINGD_METRICS_OPEN", "1");
    for setup in [alone, spelled, variable] {
        let daemon = setup.start();
        daemon.call(&scrape).is(200);
        daemon.bootstrap(TOKEN, &json!({})).is(200);
        daemon.call(&scrape).is(200);
        daemon
            .call(&scrape.clone().field("authorization", "Bearer wrong"))
            .is(200);
        // That one only.
        daemon.call(&Request::get("/v1/procs")).bare(401);
        let allow = daemon.call(&Request::post("/v1/metrics")).bare(405);
        assert_eq!(allow.field("allow"), Some("GET,HEAD"));
    }
    let closed = Setup::new(driver).switch("--metrics-open=false").ready();
    closed.call(&scrape).bare(401);
    let refusal = Setup::new(driver)
        .switch("--metrics-open=perhaps")
        .refused();
    assert_eq!(refusal.code, Some(2));
    assert!(
        refusal.stderr.contains("--metrics-open: \"perhaps\""),
        "{refusal:?}"
    );
}

fn whoever_likes_open_metrics_gets_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let open = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let reply = daemon.call(&Request::get("/v1/metrics").bearer().field("accept", open));
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.field("content-type"), Some(media));
    assert_eq!(reply.field("vary"), Some("accept"));
    let text = reply.is(200).text();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert!(
        text.contains("# TYPE ringd_build info\nringd_build_info{"),
        "{text}"
    );
    assert!(text.contains("# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total "));

    // The samples are those of the other format.
    let names = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').expect("a value").0.to_owned())
            .collect()
    };
    let plain = Scrape::of(&daemon).text;
    let (plain, open) = (names(&plain), names(&text));
    assert!(open.is_subset(&plain), "{:?}", open.difference(&plain));
}
