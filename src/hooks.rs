//! The platform's lifecycle hooks: what was invoked, the programs of the image that run then, and the clocks around a
//! freeze.

mod clocks;
mod handler;
mod output;
mod queue;
mod record;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use handler::Outcome;
pub use record::{Observation, REMEMBERED};

use clocks::Clocks;
use handler::Handlers;
use record::Record;

/// The hooks of one daemon.
pub struct Hooks {
    record: Record,
    handlers: Handlers,
    clocks: Clocks,
}

/// How handlers are run.
pub struct Settings {
    /// The directory that holds one program per hook, of its name; absolute.
    pub dir: PathBuf,
    /// How long an invocation may take, from its arrival to the end of its handler.
    pub budget: Duration,
    /// The OOM score adjustment that children get back.
    pub oom_score: Option<i32>,
    /// The soft limit on descriptors that children get back.
    pub descriptors: Option<u64>,
}

/// One invocation of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The name of the hook.
    pub hook: &'static str,
    /// Where it stands in the record; `None` when it came too late to be remembered.
    slot: Option<usize>,
}

/// The variables of a handler.
pub type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

impl Hooks {
    /// No hook has been invoked yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            record: Record::default(),
            handlers: Handlers::new(settings),
            clocks: Clocks::default(),
        }
    }

    /// Records an invocation at a second of the guest's clock, before it is judged.
    pub fn record(&self, hook: &'static str, fired_at: u64) -> Invocation {
        let slot = self.record.add(hook, fired_at);
        Invocation { hook, slot }
    }

    /// Runs the handler of the hook, if the image has one, to its end or until the budget is gone.
    ///
    /// To be run to its end: whoever drops it leaves a process without a bound.
    pub async fn handle(&self, invocation: Invocation, environment: impl FnOnce() -> Environment) {
        let hook = invocation.hook;
        let Some(outcome) = self.handlers.run(hook, environment).await else {
            return;
        };
        let (code, signal, timed_out) = (outcome.exit_code, outcome.signal, outcome.timed_out);
        let (ms, error) = (outcome.duration_ms, outcome.error.as_deref());
        if outcome.is_success() {
            tracing::info!(hook, ms, "a hook handler has succeeded");
        } else {
            tracing::warn!(
                hook,
                ms,
                code,
                signal,
                timed_out,
                error,
                "a hook handler has failed; the hook is answered as if it had not"
            );
        }
        self.record.settle(invocation.slot, outcome);
    }

    /// Remembers what the clocks say: the guest is about to be frozen.
    pub fn before_freeze(&self) {
        self.clocks.mark("suspend");
    }

    /// Tells the log what passed on each clock while the guest was frozen.
    pub fn after_freeze(&self) {
        self.clocks.tell();
        self.clocks.mark("resume");
    }

    /// What is remembered, earliest first.
    pub fn seen(&self) -> Vec<Observation> {
        self.record.seen()
    }

    /// How many invocations were not remembered.
    pub fn dropped(&self) -> u64 {
        self.record.dropped()
    }

    /// Ends the handler that runs: nobody is left to hold it to its budget.
    pub fn close(&self) {
        self.handlers.close();
    }
}
