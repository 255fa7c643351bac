//! The state of the daemon: what the operations share, on one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::rc::Rc;

use crate::boot::Boot;
use crate::config::Config;
use crate::exec::Execs;
use crate::health::Gauge;
use crate::hooks::Hooks;
use crate::ring::notify::Event;

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
    /// The environment the daemon was started with, less its own settings.
    pub image_environment: Rc<Vec<(OsString, OsString)>>,
    /// The last look at the disk.
    pub disk: Rc<Gauge>,
    /// The connections of every door, and whether they are asked to end.
    pub connections: Connections,
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
