//! The launch: the token, and the environment of all execs. It happens once.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Json;
use serde::Deserialize;

use super::{Failure, Shared};

/// What the run hook brings, once it has come.
pub(super) struct Once(OnceLock<Launch>);

#[derive(Deserialize)]
struct Launch {
    agent_token: String,
    #[serde(default)]
    env: HashMap<String, String>,
}

impl Once {
    /// With a token the launch has already happened.
    pub(super) fn with_token(token: Option<String>) -> Self {
        Self(token.map_or_else(OnceLock::new, |agent_token| {
            OnceLock::from(Launch {
                agent_token,
                env: HashMap::new(),
            })
        }))
    }

    pub(super) fn has_happened(&self) -> bool {
        self.0.get().is_some()
    }

    /// The environment that execs get below their own.
    pub(super) fn env(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.get().into_iter().flat_map(|launch| &launch.env)
    }

    /// 503 before the launch, 401 for a token that is not ours.
    pub(super) fn admits(&self, credential: Option<&HeaderValue>) -> Result<(), StatusCode> {
        let launch = self.0.get().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let token = credential.and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        });
        match token {
            Some(token) if token == launch.agent_token.as_bytes() => Ok(()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Envelope {
    #[serde(rename = "runHookPayload")]
    payload: String,
}

/// The same token again is fine, another one is a conflict.
pub(super) async fn run(
    State(app): Shared,
    Json(envelope): Json<Envelope>,
) -> Result<StatusCode, Failure> {
    let bad = |text: String| Failure::told(StatusCode::BAD_REQUEST, text);
    let launch: Launch = serde_json::from_str(&envelope.payload)
        .map_err(|error| bad(format!("runHookPayload is not a launch: {error}")))?;
    if launch.agent_token.is_empty() {
        return Err(bad("agent_token is empty".to_owned()));
    }
    let token = launch.agent_token.clone();
    let installed = app.launch.0.get_or_init(|| launch);
    if installed.agent_token != token {
        return Ok(StatusCode::CONFLICT);
    }
    Ok(StatusCode::OK)
}
