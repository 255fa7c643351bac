//! The state of the daemon: what the operations share, on one thread.

pub mod coding;
pub mod traffic;
pub mod transfers;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::rc::Rc;
use std::time::SystemTime;

use crate::boot::Boot;
use crate::config::Config;
use crate::exec::{self, Execs};
use crate::fs::resumable::{self, Uploads};
use crate::fs::watch::Allowance;
use crate::health::Gauge;
use crate::hooks::Hooks;
use crate::ring::cgroup::Subtree;
use crate::ring::notify::Event;
use crate::ring::process;
use traffic::Traffic;
use transfers::Transfers;

/// Everything that lives as long as the daemon.
pub struct App {
    /// The settings in force.
    pub config: Config,
    /// The bootstrap.
    pub boot: Boot,
    /// The platform's hooks so far.
    pub hooks: Hooks,
    /// The execs.
    pub execs: Rc<Execs>,
    /// Uploads that are not complete.
    pub uploads: Uploads,
    /// The environment the daemon was started with, less its own settings.
    pub image_environment: Rc<Vec<(OsString, OsString)>>,
    /// The last look at the disk.
    pub disk: Rc<Gauge>,
    /// How much may be watched.
    pub watches: Allowance,
    /// The connections of every door, and whether they are asked to end.
    pub connections: Connections,
    /// What content codings may take.
    pub coding_memory: Rc<coding::Memory>,
    /// Bodies under way.
    pub transfers: Rc<Transfers>,
    /// What the doors have served.
    pub traffic: Rc<Traffic>,
    /// When the daemon started, as the clock said then.
    pub started_at: SystemTime,
}

impl App {
    /// The daemon's state at its start, under `config`, with execs in cgroups below `subtree` if there is one; reads
    /// the environment for the last time.
    pub fn new(config: Config, subtree: Option<Subtree>) -> Self {
        let limits = &config.limits;
        let execs = Execs::new(exec::Limits {
            max_output_bytes: limits.max_output_bytes,
            output_linger: limits.output_linger,
            exec_ttl: limits.exec_ttl,
            replay_bytes: limits.stream_buffer_bytes,
            spill_bytes: limits.stream_spill_bytes,
            max_spill_bytes: limits.max_spill_bytes,
            spill_dir: limits.spool_dir.clone(),
            disk_reserve: limits.disk_reserve_bytes,
            max_execs: limits.max_execs,
            max_output_memory: limits.max_output_memory,
            kill_grace: limits.kill_grace,
            stdin_write_timeout: limits.stdin_write_timeout,
            max_stdin_write_bytes: limits.max_stdin_write_bytes,
            oom_score: process::protect_from_oom(),
            descriptors: process::raise_descriptor_limit(),
        });
        let uploads = Uploads::new(resumable::Limits {
            uploads: limits.max_uploads,
            ttl: limits.upload_ttl,
        });
        let is_ours = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("RINGD_") || name.starts_with("AGENTD_")
        };
        let image = std::env::vars_os().filter(|(name, _)| !is_ours(name));
        Self {
            boot: Boot::default(),
            hooks: Hooks::default(),
            execs: Rc::new(execs.within(subtree)),
            uploads,
            image_environment: Rc::new(image.collect()),
            disk: Rc::default(),
            watches: Allowance::new(config.limits.max_watches),
            connections: Connections::default(),
            coding_memory: coding::Memory::new(config.limits.max_coding_memory),
            transfers: Rc::default(),
            traffic: Rc::default(),
            started_at: SystemTime::now(),
            config,
        }
    }
}

/// Open connections: counted, and told when the daemon wants to leave.
#[derive(Default)]
pub struct Connections {
    open: RefCell<HashMap<u64, Rc<Event>>>,
    last: Cell<u64>,
    draining: Cell<bool>,
    /// Happens when draining starts.
    pub drain: Event,
    /// Happens each time a connection ends.
    pub ended: Event,
}

/// A connection's entry; dropping it says that the connection has ended.
pub struct Entry {
    app: Rc<App>,
    number: u64,
    told: Rc<Event>,
}

impl Connections {
    /// Connections that are open now.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Connections that were taken since the start.
    pub fn taken(&self) -> u64 {
        self.last.get()
    }

    /// True once no further request shall be taken.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Asks every door to stop: listeners close, idle connections end, the others end after their request.
    pub fn start_draining(&self) {
        if self.draining.replace(true) {
            return;
        }
        self.drain.happen();
        for told in self.open.borrow().values() {
            told.happen();
        }
    }
}

impl Entry {
    /// Enters a connection.
    pub fn new(app: &Rc<App>) -> Self {
        let connections = &app.connections;
        let number = connections.last.get() + 1;
        connections.last.set(number);
        let told = Rc::new(Event::default());
        let entry = Rc::clone(&told);
        connections.open.borrow_mut().insert(number, entry);
        Self {
            app: Rc::clone(app),
            number,
            told,
        }
    }

    /// The daemon this connection belongs to.
    pub fn app(&self) -> &Rc<App> {
        &self.app
    }

    /// Waits until draining starts; at once when it has.
    pub async fn told_to_end(&self) {
        if !self.app.connections.is_draining() {
            self.told.next().await;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let connections = &self.app.connections;
        connections.open.borrow_mut().remove(&self.number);
        connections.ended.happen();
    }
}
