//! The bodies that are under way, for whoever asks how far they are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// The list: one entry for each body that is being received; connections bound it.
#[derive(Default)]
pub struct Transfers {
    open: RefCell<BTreeMap<u64, Rc<Transfer>>>,
    last: Cell<u64>,
}

/// A body that is being received.
pub struct Transfer {
    /// The operation that it belongs to, by the name of its row.
    pub operation: &'static str,
    /// Where it goes.
    pub path: PathBuf,
    /// Bytes that have come, as they came over the wire.
    pub received: Cell<u64>,
    /// Bytes that it will have, when the sender has said so.
    pub total: Option<u64>,
    /// When it began.
    pub since: Instant,
}

/// A place in the list; dropping it takes the body off.
pub struct Place {
    list: Rc<Transfers>,
    id: u64,
    /// What the list tells.
    pub transfer: Rc<Transfer>,
}

impl Transfers {
    /// Enters a body.
    pub fn enter(
        self: &Rc<Self>,
        operation: &'static str,
        path: &Path,
        total: Option<u64>,
    ) -> Place {
        let id = self.last.get() + 1;
        self.last.set(id);
        let transfer = Rc::new(Transfer {
            operation,
            path: path.to_owned(),
            received: Cell::new(0),
            total,
            since: Instant::now(),
        });
        self.open.borrow_mut().insert(id, Rc::clone(&transfer));
        Place {
            list: Rc::clone(self),
            id,
            transfer,
        }
    }

    /// How many are under way.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// What is under way now, oldest first, each with its id.
    pub fn list(&self) -> Vec<(u64, Rc<Transfer>)> {
        let open = self.open.borrow();
        open.iter().map(|(id, it)| (*id, Rc::clone(it))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.list.open.borrow_mut().remove(&self.id);
    }
}
