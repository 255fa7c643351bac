//! Operations about the daemon itself.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Serialize;

use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::health::Disk;
use crate::hooks::Observation;

/// The rows of this room.
pub static ROWS: &[Row] = &[Row {
    name: "health",
    method: Method::Get,
    path: "/v1/health",
    access: Access::Open,
    form: Form::Json,
    about: "liveness, bootstrap state, free space and whether an exec is running",
    errors: &[],
    run: |app, call| -> Run { Box::pin(health(app, call)) },
}];

/// Our version, as every response tells it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The answer of `GET /v1/health`, in this key order.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Health {
    /// Our version.
    version: &'static str,
    /// True once a token is installed.
    bootstrapped: bool,
    /// Free space where the daemon works; null when it cannot be measured.
    disk: Option<Disk>,
    /// True when a step of the identity repair failed.
    identity_degraded: bool,
    /// True when the identity repair ran.
    identity_repaired: bool,
    /// True while an exec is running.
    busy: bool,
    /// Registered execs in any phase.
    execs: usize,
    /// Hook invocations, earliest first.
    hooks: Vec<Observation>,
    /// Hook invocations that were not remembered.
    hooks_dropped: u64,
    /// Steps of the identity repair; empty while none ran.
    identity_steps: [(); 0],
    /// Variables of the image environment that execs can inherit.
    image_env_keys: Option<usize>,
}

async fn health(app: Rc<App>, _call: Call) -> Result<Answer> {
    let disk = app.disk.read(app.config.limits.disk_reserve_bytes).await;
    let activity = app.execs.activity();
    let health = Health {
        version: VERSION,
        bootstrapped: app.boot.is_done(),
        disk,
        identity_degraded: false,
        identity_repaired: false,
        busy: activity.busy,
        execs: activity.execs,
        hooks: app.hooks.seen(),
        hooks_dropped: app.hooks.dropped(),
        identity_steps: [],
        image_env_keys: Some(app.image_environment.len()),
    };
    LAST.with_borrow_mut(|last| match last {
        Some((told, document)) if *told == health => Ok(Answer::Json(document.clone())),
        _ => {
            let document = serde_json::to_vec(&health)
                .map_err(|error| Kind::Internal.told("internal error").because(error))?;
            *last = Some((health, document.clone()));
            Ok(Answer::Json(document))
        }
    })
}

thread_local! {
    /// What was told last, and its text: who polls is mostly told the same again.
    static LAST: RefCell<Option<(Health, Vec<u8>)>> = const { RefCell::new(None) };
}
