//! Every family of metrics, and where its values come from. `docs/PROTOCOL.md` lists them.

use std::time::{Duration, UNIX_EPOCH};

use crate::api::system::VERSION;
use crate::api::{self, Method};
use crate::app::App;
use crate::app::traffic::{At, BOUNDS, Place};
use crate::health::Disk;
use crate::ring::pool::{Lane, Load};
use crate::ring::process::Usage;
use crate::ring::{self, rings};
use crate::wire::prometheus::{Document, Type};

/// What had to be asked for.
pub(super) struct Seen {
    pub(super) pool: [(Lane, Load); 2],
    pub(super) process: Usage,
    pub(super) disk: Option<Disk>,
}

/// Writes all of them.
pub(super) fn write(app: &App, seen: &Seen, to: &mut Document) {
    identity(to);
    requests(app, to);
    connections(app, to);
    execs(app, to);
    files(app, seen, to);
    rings(to);
    pool(seen, to);
    process(app, &seen.process, to);
}

fn identity(to: &mut Document) {
    to.family(Type::Info, "ringd_build", "The version of ringd.")
        .sample(&[("version", VERSION)], 1);
    let mut driver = to.family(
        Type::Info,
        "ringd_driver",
        "What the daemon waits with: io_uring or epoll.",
    );
    if let Some(running) = ring::running() {
        driver.sample(&[("driver", running.name())], 1);
    }
}

/// A place of the counters, with its labels.
struct Labelled<'a> {
    route: &'static str,
    method: &'static str,
    place: &'a Place,
}

/// The places that were asked for at least once.
fn places(app: &App) -> Vec<Labelled<'_>> {
    let special = [
        (At::Refused, "refused"),
        (At::Unmatched, "unmatched"),
        (At::WrongMethod, "wrong_method"),
    ];
    let special = special.into_iter().map(|(at, route)| (at, route, "any"));
    let rows = api::rows().enumerate().map(|(number, row)| {
        let method = match row.method {
            Method::Get => "GET",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        };
        (At::Operation(number), row.path, method)
    });
    let all = special.chain(rows).map(|(at, route, method)| Labelled {
        route,
        method,
        place: app.traffic.place(at),
    });
    all.filter(|one| one.place.was_entered()).collect()
}

fn requests(app: &App, to: &mut Document) {
    let places = places(app);
    let mut requests = to.family(
        Type::Counter,
        "ringd_http_requests",
        "Requests that are over, by route and status; the code none stands for no answer.",
    );
    for one in &places {
        for (status, count) in one.place.answers() {
            let code = match status {
                0 => "none".to_owned(),
                status => status.to_string(),
            };
            let labels = [
                ("route", one.route),
                ("method", one.method),
                ("code", code.as_str()),
            ];
            requests.sample(&labels, count);
        }
    }
    let mut under_way = to.family(
        Type::Gauge,
        "ringd_http_requests_in_flight",
        "Requests whose head was understood and whose answer is not over.",
    );
    for one in &places {
        let labels = [("route", one.route), ("method", one.method)];
        under_way.sample(&labels, one.place.under_way());
    }
    let mut took = to.family(
        Type::Histogram,
        "ringd_http_request_duration_seconds",
        "Time from the whole head to the last byte of the answer handed to the kernel.",
    );
    let bounds = BOUNDS.map(|bound| bound.as_secs_f64());
    for one in &places {
        // Heads that were refused have no beginning to count from.
        if one.place.buckets().any(|count| count > 0) {
            let labels = [("route", one.route), ("method", one.method)];
            let sum = one.place.spent().as_secs_f64();
            took.histogram(&labels, &bounds, one.place.buckets(), sum);
        }
    }
}

fn connections(app: &App, to: &mut Document) {
    let traffic = &app.traffic;
    let all = [
        (
            "ringd_network_bytes",
            "Bytes on all connections, heads and framing too.",
            &*traffic.network,
        ),
        (
            "ringd_http_body_bytes",
            "Bytes of request and response bodies.",
            &traffic.bodies,
        ),
        (
            "ringd_tunnel_bytes",
            "Bytes that tunnels have relayed, as their clients see them.",
            &*traffic.tunnels,
        ),
    ];
    for (name, help, tally) in all {
        to.family(Type::Counter, name, help)
            .sample(&[("direction", "received")], tally.received())
            .sample(&[("direction", "sent")], tally.sent());
    }
    gauge(
        to,
        "ringd_connections",
        "Open connections.",
        app.connections.count() as u64,
    );
    counter(
        to,
        "ringd_connections_accepted",
        "Connections that were taken.",
        app.connections.taken(),
    );
    counter(
        to,
        "ringd_accept_errors",
        "Connections that could not be taken.",
        traffic.accept_errors(),
    );
}

fn execs(app: &App, to: &mut Document) {
    let counts = app.execs.counts();
    to.family(
        Type::Gauge,
        "ringd_execs",
        "Execs that are registered, by phase.",
    )
    .sample(&[("phase", "running")], counts.running)
    .sample(&[("phase", "exited")], counts.exited)
    .sample(&[("phase", "acked")], counts.acked);
    for (name, help, value) in [
        (
            "ringd_exec_starts",
            "Execs that were started.",
            counts.starts,
        ),
        (
            "ringd_exec_start_failures",
            "Starts that came to nothing, be it that they were refused.",
            counts.start_failures,
        ),
        (
            "ringd_exec_timeouts",
            "Execs that their time limit has ended.",
            counts.timeouts,
        ),
        (
            "ringd_exec_kills",
            "Kills that have found somebody to end.",
            counts.kills,
        ),
        (
            "ringd_exec_output_bytes",
            "Bytes of output that were read from execs.",
            counts.output_bytes,
        ),
        (
            "ringd_exec_gaps",
            "Gaps that followers were told of: output that is no longer held.",
            counts.gaps,
        ),
    ] {
        counter(to, name, help, value);
    }
    for (name, help, value) in [
        (
            "ringd_exec_followers",
            "Output streams that are attached.",
            counts.followers as u64,
        ),
        (
            "ringd_exec_output_memory_bytes",
            "Memory that kept output takes.",
            counts.memory,
        ),
        (
            "ringd_exec_spill_bytes",
            "Disk that kept output takes.",
            counts.spilled,
        ),
    ] {
        gauge(to, name, help, value);
    }
}

fn files(app: &App, seen: &Seen, to: &mut Document) {
    for (name, help, value) in [
        (
            "ringd_transfers",
            "Bodies of uploads that are being received.",
            app.transfers.count() as u64,
        ),
        (
            "ringd_uploads",
            "Uploads in several requests that are not complete.",
            app.uploads.count() as u64,
        ),
        (
            "ringd_watches",
            "Directories and files that are watched.",
            app.watches.used() as u64,
        ),
        (
            "ringd_coding_memory_bytes",
            "Memory that zstd and gzip take.",
            app.coding_memory.taken(),
        ),
        (
            "ringd_disk_reserve_bytes",
            "Free space below which writes are refused.",
            app.config.limits.disk_reserve_bytes,
        ),
    ] {
        gauge(to, name, help, value);
    }
    let mut available = to.family(
        Type::Gauge,
        "ringd_disk_available_bytes",
        "Free space where the daemon works.",
    );
    if let Some(disk) = seen.disk {
        available.sample(&[], disk.available_bytes);
    }
}

fn rings(to: &mut Document) {
    let operations = rings::operations();
    let mut submissions = to.family(
        Type::Counter,
        "ringd_ring_submissions",
        "Operations that the kernel has taken from a ring.",
    );
    for one in &operations {
        submissions.sample(&[("ring", one.ring)], one.submissions);
    }
    let mut completions = to.family(
        Type::Counter,
        "ringd_ring_completions",
        "Operations that the kernel has completed on a ring.",
    );
    for one in &operations {
        completions.sample(&[("ring", one.ring)], one.completions);
    }
}

fn pool(seen: &Seen, to: &mut Document) {
    let mut threads = to.family(
        Type::Gauge,
        "ringd_pool_threads",
        "Helper threads of the blocking pool, by lane.",
    );
    for (lane, load) in &seen.pool {
        let lane = ("lane", lane.name());
        threads
            .sample(&[lane, ("state", "busy")], load.busy)
            .sample(&[lane, ("state", "idle")], load.idle);
    }
    let mut waiting = to.family(
        Type::Gauge,
        "ringd_pool_jobs_waiting",
        "Jobs of the blocking pool that wait for a thread.",
    );
    for (lane, load) in &seen.pool {
        waiting.sample(&[("lane", lane.name())], load.waiting);
    }
    let mut jobs = to.family(
        Type::Counter,
        "ringd_pool_jobs",
        "Jobs that the blocking pool has taken.",
    );
    for (lane, load) in &seen.pool {
        jobs.sample(&[("lane", lane.name())], load.jobs);
    }
    let mut refused = to.family(
        Type::Counter,
        "ringd_pool_jobs_refused",
        "Jobs that the blocking pool has not taken.",
    );
    for (lane, load) in &seen.pool {
        refused.sample(&[("lane", lane.name())], load.refused);
    }
}

fn process(app: &App, usage: &Usage, to: &mut Document) {
    counter(
        to,
        "ringd_log_lines_dropped",
        "Log lines that standard error did not take in time.",
        crate::log::dropped(),
    );
    to.family(
        Type::Counter,
        "process_cpu_seconds",
        "Processor time of the daemon, in user and system mode.",
    )
    .sample(&[], usage.cpu.as_secs_f64());
    let started = app.started_at.duration_since(UNIX_EPOCH);
    to.family(
        Type::Gauge,
        "process_start_time_seconds",
        "When the daemon started, in seconds since 1970, as the clock said then.",
    )
    .sample(&[], started.unwrap_or(Duration::ZERO).as_secs_f64());
    let memory = usage.memory;
    for (name, help, value) in [
        ("process_open_fds", "Open descriptors.", usage.descriptors),
        (
            "process_max_fds",
            "Descriptors that may be open.",
            usage.most_descriptors,
        ),
        (
            "process_resident_memory_bytes",
            "Memory in use.",
            memory.map(|memory| memory.resident_bytes),
        ),
        (
            "process_virtual_memory_bytes",
            "Address space.",
            memory.map(|memory| memory.virtual_bytes),
        ),
        (
            "process_threads",
            "Threads, those of the pool too.",
            memory.map(|memory| memory.threads),
        ),
    ] {
        let mut family = to.family(Type::Gauge, name, help);
        if let Some(value) = value {
            family.sample(&[], value);
        }
    }
}

fn counter(to: &mut Document, name: &'static str, help: &str, value: u64) {
    to.family(Type::Counter, name, help).sample(&[], value);
}

fn gauge(to: &mut Document, name: &'static str, help: &str, value: u64) {
    to.family(Type::Gauge, name, help).sample(&[], value);
}
