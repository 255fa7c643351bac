//! `ringd tunnel`: connections of this machine, or standard input and output, to a port inside a guest.

mod dial;
mod ending;
mod frames;
mod incoming;
mod options;
mod relay;
mod stdio;
mod upgrade;
mod url;

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

pub(super) use options::OPTIONS;

use self::ending::Ending;
use self::options::{Local, Options};
use self::relay::Relay;
use super::{USAGE, serve};
use crate::config::Address;
use crate::log;
use crate::ring::clock::{sleep, within};
use crate::ring::notify::Event;
use crate::ring::signals::{Signal, Signals};
use crate::ring::socket::Socket;
use crate::ring::{self, pool, process, spawn};

/// Carries connections until it is told to stop. Exit status: 0 in order, 1 when a tunnel or listener cannot be had,
/// 2 for bad usage.
pub(super) fn run(arguments: &[String]) -> ExitCode {
    if arguments
        .iter()
        .any(|word| word == "--help" || word == "-h")
    {
        return match say(options::help().trim_end()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                failed(&why);
                ExitCode::FAILURE
            }
        };
    }
    let options = match Options::read(arguments, |name| std::env::var(name).ok()) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("ringd: tunnel: {why}");
            return ExitCode::from(USAGE);
        }
    };
    process::fill_standard_descriptors();
    let _ = process::raise_descriptor_limit();
    log::start("error");
    let outcome = ring::start(options.driver, carry(options));
    let code = outcome.unwrap_or_else(|error| {
        eprintln!("ringd: the driver cannot be started: {error}");
        1
    });
    log::flush();
    // The runtime is not torn down: operations may be in flight whose buffers it would free.
    std::process::exit(code)
}

/// The client's life, on the ring; answers the exit status.
async fn carry(options: Options) -> i32 {
    let stopped = Rc::new(Event::default());
    match Signals::open() {
        Ok(signals) => spawn("signals", obey(signals, Rc::clone(&stopped))),
        Err(error) => return failed(&format!("signals cannot be received: {error}")),
    }
    match &options.local {
        Local::Standard => standard(&options, &stopped).await,
        Local::Listen(address) => {
            let address = address.clone();
            listen(&address, Rc::new(options), &stopped).await
        }
    }
}

/// Says when to stop; a second signal leaves at once.
async fn obey(signals: Signals, stopped: Rc<Event>) {
    while let Ok(signal) = signals.next().await {
        if signal == Signal::Stop {
            if stopped.count() > 0 {
                std::process::exit(1);
            }
            stopped.happen();
        }
    }
}

/// One tunnel for standard input and output.
async fn standard(options: &Options, stopped: &Event) -> i32 {
    let unreadable = |error| format!("standard input cannot be read: {error}");
    let (near, failure, written) = match stdio::joined() {
        Ok(joined) => joined,
        Err(error) => return failed(&unreadable(error)),
    };
    // Dropped half-way, a tunnel ends without a farewell: nobody takes what was sent for the whole.
    let ended = monoio::select! {
        ended = tunnel(near, options, stopped) => ended,
        error = failure => Err(unreadable(error)),
    };
    let Err(why) = ended else {
        let has_written = monoio::select! {
            has_written = written => has_written,
            () = stopped.after(0) => return failed(STOPPED),
        };
        return match has_written {
            true => 0,
            false => failed("standard output does not take what came"),
        };
    };
    // What came before it failed is of use to whoever looks for the reason.
    within(FAREWELL, written).await;
    failed(&why)
}

/// One tunnel for each connection that is accepted at `address`.
async fn listen(address: &Address, options: Rc<Options>, stopped: &Rc<Event>) -> i32 {
    let listener = match serve::open(address, PRIVATE) {
        Ok(listener) => listener,
        Err(error) => return failed(&format!("cannot listen on {address}: {error}")),
    };
    if let Err(why) = say(format_args!("listening {}", listener.name())) {
        return failed(&why);
    }
    let running = Rc::new(Running::default());
    loop {
        let accepted = monoio::select! {
            accepted = listener.accept() => accepted,
            () = stopped.after(0) => break,
        };
        match accepted {
            Ok(near) => {
                let entry = Entry::of(&running);
                let (options, stopped) = (Rc::clone(&options), Rc::clone(stopped));
                spawn("tunnel", async move {
                    if let Err(why) = tunnel(near, &options, &stopped).await {
                        pool::detach(move || eprintln!("ringd: tunnel: {why}"));
                    }
                    drop(entry);
                });
            }
            Err(error) => {
                pool::detach(move || eprintln!("ringd: tunnel: accept failed: {error}"));
                sleep(BREATH).await;
            }
        }
        while running.count.get() >= MOST_TUNNELS && stopped.count() == 0 {
            monoio::select! {
                () = running.ended.next() => {}
                () = stopped.after(0) => {}
            }
        }
    }
    drop(listener);
    let all_ended = async {
        while running.count.get() > 0 {
            running.ended.next().await;
        }
    };
    within(FAREWELL, all_ended).await;
    0
}

/// Carries one connection to its end.
///
/// # Errors
/// A sentence for the user when it did not end as both sides wished.
async fn tunnel(near: OwnedFd, options: &Options, stopped: &Event) -> Result<(), String> {
    let local = Socket::new(near, Duration::MAX)
        .map_err(|error| format!("the local connection cannot be used: {error}"))?;
    let opened = monoio::select! {
        opened = dial::open(options) => opened,
        () = stopped.after(0) => Err(STOPPED.into()),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(why) => {
            local.reset_on_close();
            return Err(why);
        }
    };
    let relay = Relay::new(local, opened.remote, opened.session);
    let ending = monoio::select! {
        ending = relay.run(opened.incoming) => Some(ending),
        () = stopped.after(0) => None,
    };
    match ending {
        Some(Ending::Whole | Ending::Abandoned) => Ok(()),
        Some(Ending::Broken(why)) => Err(why),
        None => {
            relay.leave().await;
            Err(STOPPED.into())
        }
    }
}

/// The tunnels of this process.
#[derive(Default)]
struct Running {
    count: Cell<usize>,
    ended: Event,
}

/// One of them, counted for as long as it lives.
struct Entry(Rc<Running>);

impl Entry {
    fn of(running: &Rc<Running>) -> Self {
        running.count.set(running.count.get() + 1);
        Self(Rc::clone(running))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.ended.happen();
    }
}

/// Says a line on standard output.
///
/// # Errors
/// A sentence for the user: it does not take it.
fn say(line: impl Display) -> Result<(), String> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| format!("standard output does not take a line: {error}"))
}

fn failed(why: &str) -> i32 {
    eprintln!("ringd: tunnel: {why}");
    1
}

const STOPPED: &str = "told to stop";
/// The permissions of a Unix socket that we listen on.
const PRIVATE: u32 = 0o600;
/// Connections that are carried at once; further ones wait in the listener's backlog.
const MOST_TUNNELS: usize = 1024;
/// How long a failed accept waits before the next.
const BREATH: Duration = Duration::from_millis(50);
/// How long tunnels have to say that they leave.
const FAREWELL: Duration = Duration::from_secs(2);
