//! `ringd serve`: reads the configuration, opens the doors, and leaves in order.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use super::USAGE;
use super::supervisor::Reports;
use crate::app::App;
use crate::config::{Address, Config, Ignored, SETTINGS, Setting, Unusable};
use crate::doors;
use crate::log;
use crate::ring::cgroup::Subtree;
use crate::ring::clock::{self, Deadline, sleep, until};
use crate::ring::listener::Listener;
use crate::ring::notify::Event;
use crate::ring::signals::{Signal, Signals};
use crate::ring::{self, child, process, spawn};

/// Serves until the daemon is told to stop. Exit status: 0 after a drain, 1 when it cannot serve, 2 for bad usage.
pub(super) fn run(arguments: &[String]) -> ExitCode {
    let (flags, prints) = match flags(arguments) {
        Ok(parsed) => parsed,
        Err(why) => return unusable(&why),
    };
    let (config, ignored) = match Config::read(&flags, |name| std::env::var(name).ok()) {
        Ok(read) => read,
        Err(Unusable(why)) => return unusable(&why),
    };
    if prints {
        print!("{}", config.printed());
        return ExitCode::SUCCESS;
    }
    process::fill_standard_descriptors();
    process::return_large_blocks();
    log::start(&config.log);
    for Ignored(why) in ignored {
        tracing::warn!("{why}");
    }
    let outcome = ring::start(config.driver, serve(config));
    let code = outcome.unwrap_or_else(|error| {
        eprintln!("ringd: the driver cannot be started: {error}");
        1
    });
    log::flush();
    // The runtime is not torn down: operations may be in flight whose buffers it would free.
    std::process::exit(code)
}

pub(super) fn unusable(why: &str) -> ExitCode {
    eprintln!("ringd: {why}");
    ExitCode::from(USAGE)
}

/// Splits `--name value`, `--name=value` and `--switch`; the second half tells whether `--print-config` is there.
pub(super) fn flags(arguments: &[String]) -> Result<(Vec<(String, String)>, bool), String> {
    let mut flags = Vec::new();
    let mut prints = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(name) = argument.strip_prefix("--") else {
            return Err(format!("{argument:?} is not an option"));
        };
        if name == "print-config" {
            prints = true;
        } else if let Some((name, value)) = name.split_once('=') {
            flags.push((name.into(), value.into()));
        } else if is_switch(name) {
            flags.push((name.into(), "true".into()));
        } else {
            let value = rest
                .next()
                .ok_or_else(|| format!("--{name} needs a value"))?;
            flags.push((name.into(), value.clone()));
        }
    }
    Ok((flags, prints))
}

fn is_switch(name: &str) -> bool {
    let mut known = SETTINGS.iter().filter(|setting| setting.name == name);
    known.any(Setting::is_switch)
}

/// The daemon's life, on the ring; answers the exit status.
async fn serve(config: Config) -> i32 {
    let signals = match Signals::open() {
        Ok(signals) => signals,
        Err(error) => return failed("signals cannot be received", &error),
    };
    process::become_subreaper();
    let subtree = match Subtree::open(&config.cgroup) {
        Ok(subtree) => subtree,
        Err(error) => return failed(&format!("--cgroup {}", config.cgroup), &error),
    };
    let app = Rc::new(App::new(config, subtree));
    let mut listeners = Vec::new();
    for address in &app.config.listen {
        match open_in_time(address, app.config.unix_mode).await {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                app.execs.close();
                return failed(&format!("cannot listen on {address}"), &error);
            }
        }
    }
    announce(&app, &listeners);
    let ready = ready(&listeners);
    let closed = Rc::new(Event::default());
    let doors = listeners.len() as u64;
    for listener in listeners {
        let (app, closed) = (Rc::clone(&app), Rc::clone(&closed));
        spawn("listener", async move {
            doors::http::serve(listener, app).await;
            closed.happen();
        });
    }
    spawn("housekeeping", keep_house(Rc::clone(&app)));
    let stopped = Rc::new(Event::default());
    spawn(
        "signals",
        obey(signals, Rc::clone(&app), Rc::clone(&stopped)),
    );
    let reports = Rc::new(Reports::to(app.config.supervisor.notify.as_ref()));
    reports.send(&ready).await;
    if let Some(span) = app.config.supervisor.watchdog {
        let reports = Rc::clone(&reports);
        spawn("watchdog", async move { reports.live(span).await });
    }
    app.connections.drain.after(0).await;
    tracing::info!(connections = app.connections.count(), "draining");
    let deadline = Deadline::after(app.config.drain_timeout);
    reports.send("STOPPING=1\nSTATUS=draining").await;
    let shut = async {
        while closed.count() < doors {
            closed.next().await;
        }
    };
    drain(&app, shut, deadline, &stopped).await;
    app.hooks.close();
    app.uploads.close().await;
    app.execs.close();
    0
}

/// Opens an address; one that is taken is tried again for a while, since the kernel lets go of the listener of a daemon
/// that was on io_uring a moment after its process has ended.
async fn open_in_time(address: &Address, unix_mode: u32) -> std::io::Result<Listener> {
    let deadline = Deadline::after(LETTING_GO);
    loop {
        match open(address, unix_mode) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && !deadline.has_passed() => {
                sleep(AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// How long an address may be taken.
const LETTING_GO: Duration = Duration::from_millis(500);
/// How often it is tried meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

/// Listens on one address; `unix_mode` is for the file of a Unix socket.
///
/// # Errors
/// What the kernel says.
pub(super) fn open(address: &Address, unix_mode: u32) -> std::io::Result<Listener> {
    match address {
        Address::Tcp(address) => Listener::tcp(*address),
        Address::Unix(path) => Listener::unix(path, unix_mode),
        Address::Vsock { cid, port } => Listener::vsock(*cid, *port),
        Address::Fd(number) => Listener::inherited(*number),
    }
}

/// Says where we listen: a line each on standard output for whoever has started us, and in the log.
fn announce(app: &App, listeners: &[Listener]) {
    let mut out = std::io::stdout().lock();
    for listener in listeners {
        let address = listener.name();
        let socket = app.config.supervisor.name_of(address);
        tracing::info!(address, socket, "listening");
        // Standard output may be closed: then nobody wants to know.
        let _ = writeln!(out, "listening {address}");
    }
    let _ = out.flush();
    if let Some(driver) = ring::running() {
        tracing::info!(driver = driver.name(), why = driver.why, "serving");
    }
}

/// The report that we serve.
fn ready(listeners: &[Listener]) -> String {
    let addresses: Vec<&str> = listeners.iter().map(Listener::name).collect();
    let driver = ring::running().map_or("no driver", |driver| driver.name());
    format!(
        "READY=1\nSTATUS=listening on {}, with {driver}",
        addresses.join(", ")
    )
}

/// Reaps on SIGCHLD; drains on the first SIGTERM or SIGINT and leaves at once on the second.
async fn obey(signals: Signals, app: Rc<App>, stopped: Rc<Event>) {
    while let Ok(signal) = signals.next().await {
        match signal {
            Signal::Child => child::reap(),
            Signal::Stop => {
                stopped.happen();
                app.connections.start_draining();
            }
        }
    }
}

/// Waits until the doors are shut and every connection has ended, the deadline has passed, or a second signal says to
/// hurry.
async fn drain(app: &App, shut: impl Future<Output = ()>, deadline: Deadline, stopped: &Event) {
    let hurried = stopped.count().max(1);
    let all_ended = async {
        shut.await;
        while app.connections.count() > 0 {
            app.connections.ended.next().await;
        }
    };
    let in_time = until(deadline, async {
        monoio::select! {
            () = all_ended => {}
            () = stopped.after(hurried) => {}
        }
    });
    if in_time.await.is_none() {
        let connections = app.connections.count();
        tracing::warn!(connections, "the drain timed out; leaving");
    }
}

/// Once a second: collects execs that were acknowledged and uploads that are idle, and tries again to write a log that was held up.
async fn keep_house(app: Rc<App>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        app.execs.sweep(clock::now());
        app.uploads.sweep(clock::now());
        log::flush();
    }
}

fn failed(what: &str, error: &std::io::Error) -> i32 {
    tracing::error!(%error, "{what}");
    log::flush();
    eprintln!("ringd: {what}: {error}");
    1
}
