//! Every family of metrics: the document lists them, promtool takes them, and what the process tells is true.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{self, wait_until};
use crate::request::{Request, file_at};
use crate::scrape::Scrape;

both![
    the_protocol_lists_every_family,
    promtool_finds_nothing_to_say,
    the_driver_and_its_rings_are_told,
    jobs_of_the_pool_are_counted,
    the_process_is_told_as_the_kernel_knows_it,
    log_lines_that_are_dropped_are_counted,
];

/// A family as the protocol describes it: its type, and the names of its labels.
type Described = (String, BTreeSet<String>);

/// The rows of the table in the section on metrics.
fn described() -> BTreeMap<String, Described> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/PROTOCOL.md");
    let text = std::fs::read_to_string(path).expect("the protocol");
    let section = text
        .split("\n## GET /v1/metrics\n")
        .nth(1)
        .expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.strip_suffix('`')?.to_owned();
        let kind = cells.next()?.to_owned();
        let labels = cells.next()?.split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_matches('`').to_owned());
        Some((name, (kind, labels.collect())))
    });
    rows.filter(|(name, _)| name.starts_with("ringd_") || name.starts_with("process_"))
        .collect()
}

fn the_protocol_lists_every_family(driver: Driver) {
    let daemon = Daemon::ready(driver);
    busy(&daemon);
    let scrape = Scrape::of(&daemon);
    let mut found: BTreeMap<String, Described> = BTreeMap::new();
    for (name, kind) in &scrape.types {
        let suffixes: &[&str] = match kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let mut labels = BTreeSet::new();
        for suffix in suffixes {
            let samples: Vec<_> = scrape.samples(&format!("{name}{suffix}")).collect();
            let is_ring = name.starts_with("ringd_ring_") && driver == Driver::Epoll;
            assert!(
                !samples.is_empty() || is_ring,
                "{name}{suffix} has no sample"
            );
            labels.extend(samples.iter().flat_map(|one| one.labels.keys().cloned()));
        }
        labels.remove("le");
        if labels.is_empty() && name.starts_with("ringd_ring_") {
            labels.insert("ring".into());
        }
        found.insert(name.clone(), (kind.clone(), labels));
    }
    assert_eq!(found, described());
}

fn promtool_finds_nothing_to_say(driver: Driver) {
    let daemon = Daemon::ready(driver);
    busy(&daemon);
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/promtool/promtool");
    let promtool = match installed.exists() {
        true => installed,
        false => "promtool".into(),
    };
    let check = |text: &str| {
        let mut child = Command::new(&promtool)
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool, which tests/run.sh installs");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(text.as_bytes()).expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    assert_eq!(check(&Scrape::of(&daemon).text), (true, String::new()));
    // It does find what is wrong.
    let (passes, said) = check("# TYPE a counter\na 1\n");
    assert!(
        !passes && said.contains("a counter metrics should have \"_total\""),
        "{said}"
    );
}

fn the_driver_and_its_rings_are_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let scrape = Scrape::of(&daemon);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        scrape.value("ringd_build_info", &[("version", version)]),
        1.0
    );
    let name = match driver {
        Driver::Epoll => "epoll",
        _ => "io_uring",
    };
    assert_eq!(scrape.value("ringd_driver_info", &[("driver", name)]), 1.0);
    let passed = |scrape: &Scrape, ring: &str| {
        ["submissions", "completions"]
            .map(|what| scrape.find(&format!("ringd_ring_{what}_total"), &[("ring", ring)]))
    };
    if driver == Driver::Epoll {
        assert_eq!(passed(&scrape, "main"), [None, None]);
        assert_eq!(passed(&scrape, "files"), [None, None]);
        return;
    }
    assert_eq!(passed(&scrape, "files"), [Some(0.0), Some(0.0)]);
    if !is_told_of_rings() {
        eprintln!("a kernel before 5.17 tells nothing of the main ring");
        return;
    }
    let [submitted, completed] = passed(&scrape, "main");
    daemon.health();
    let [more, done] = passed(&Scrape::of(&daemon), "main");
    assert!(submitted.is_some() && more > submitted, "{more:?}");
    assert!(completed.is_some() && done > completed, "{done:?}");
}

/// True when `/proc/PID/fdinfo` has the counters of a ring.
fn is_told_of_rings() -> bool {
    let ring = io_uring::IoUring::new(2).expect("this machine allows rings");
    let path = format!("/proc/self/fdinfo/{}", ring.as_raw_fd());
    let told = std::fs::read_to_string(path).expect("proc is mounted");
    told.contains("\nSqHead:") && told.contains("\nCqTail:")
}

fn jobs_of_the_pool_are_counted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let jobs = || Scrape::of(&daemon).value("ringd_pool_jobs_total", &[("lane", "processes")]);
    let before = jobs();
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    daemon.get("/v1/procs").is(200);
    assert!(jobs() > before);
    let scrape = Scrape::of(&daemon);
    let threads = |state: &str| {
        let labels = [("lane", "processes"), ("state", state)];
        scrape.value("ringd_pool_threads", &labels)
    };
    // A thread that has had no work for some seconds ends.
    assert!(threads("busy") + threads("idle") <= 4.0);
    let refused = scrape.value("ringd_pool_jobs_refused_total", &[("lane", "processes")]);
    assert_eq!(refused, 0.0);
}

fn the_process_is_told_as_the_kernel_knows_it(driver: Driver) {
    let seconds = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|now| now.as_secs_f64())
    };
    let before = seconds().expect("after 1970");
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let scrape = Request::get("/v1/metrics").bearer();
    // The first one may open what is opened once.
    connection.call(&scrape).is(200);
    let scrape = Scrape::parse(&connection.call(&scrape).is(200).text());
    let value = |name: &str| scrape.value(&format!("process_{name}"), &[]);
    assert_eq!(value("open_fds"), daemon.descriptors() as f64);
    let started = value("start_time_seconds");
    assert!(
        started >= before && started <= seconds().expect("after 1970"),
        "{started}"
    );
    let kibibytes = |name: &str| {
        let text = process::status(daemon.pid(), name);
        let number: f64 = text.trim_end_matches(" kB").parse().expect("a number");
        number * 1024.0
    };
    let (resident, whole) = (kibibytes("VmRSS"), kibibytes("VmSize"));
    // The kernel adds up what its processors have counted, sooner or later.
    let told = value("resident_memory_bytes");
    assert!(
        told > resident / 2.0 && told < resident * 2.0,
        "{told} {resident}"
    );
    let told = value("virtual_memory_bytes");
    assert!(told > whole / 2.0 && told < whole * 2.0, "{told} {whole}");
    assert!(value("threads") >= 1.0 && value("cpu_seconds_total") > 0.0);
    assert!(value("max_fds") > value("open_fds"));
    let disk = daemon.health()["disk"]["available_bytes"].as_f64();
    let told = scrape.value("ringd_disk_available_bytes", &[]);
    // Others write to the same disk meanwhile.
    assert!(
        disk.is_some_and(|disk| told > disk / 2.0 && told / 2.0 < disk),
        "{told}"
    );
    assert_eq!(scrape.value("ringd_disk_reserve_bytes", &[]), 268_435_456.0);
}

fn log_lines_that_are_dropped_are_counted(driver: Driver) {
    assert_eq!(dropped(&Daemon::ready(driver)), 0.0);
    // Standard error is a pipe that is full and stays so.
    let wrapper = "mkfifo full; exec 3<>full; head -c 65536 /dev/zero >&3; exec \"$@\" 2>full";
    let setup = Setup::new(driver).under(&["/bin/sh", "-c", wrapper, "sh"]);
    let daemon = setup.flag("--log", "trace").ready();
    let mut connection = daemon.connect();
    wait_until("the log is full", || {
        for _ in 0..100 {
            connection
                .call(&Request::get("/v1/exec/none").bearer())
                .is(404);
        }
        dropped(&daemon) > 0.0
    });
}

fn dropped(daemon: &Daemon) -> f64 {
    Scrape::of(daemon).value("ringd_log_lines_dropped_total", &[])
}

/// A little of everything.
#[track_caller]
fn busy(daemon: &Daemon) {
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon.exited("e");
    daemon.put(file_at(daemon.path("f")), "x").is(204);
    daemon.get(file_at(daemon.path("f"))).is(200);
    daemon.get("/v1/nope").is(404);
    let mut refused = daemon.connect();
    refused.send("NONSENSE\r\n\r\n");
    refused.reply().is(400);
}
