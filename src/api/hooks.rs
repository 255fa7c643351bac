//! The platform's lifecycle hooks; `run` is the one-shot bootstrap.

use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::body;
use super::contract::{Contract, Shape, Success};
use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::app::App;
use crate::boot::{Identity, Installed, Launch};
use crate::error::{Error, Kind, Result};
use crate::hooks::Invocation;
use crate::ring;

macro_rules! hook {
    ($name:literal, $about:literal, $run:expr) => {
        Row {
            name: concat!("hook.", $name),
            method: Method::Post,
            path: concat!("/aws/lambda-microvms/runtime/v1/", $name),
            access: Access::Platform,
            form: Form::Text,
            about: $about,
            errors: &[],
            contract: Contract {
                successes: &[(Success::Whole, "acknowledged")],
                ..Contract::NONE
            },
            run: $run,
        }
    };
}

/// The rows of this room.
pub static ROWS: &[Row] = &[
    hook!(
        "ready",
        "the image build asks whether the daemon runs",
        |app, _| -> Run { Box::pin(acknowledge(app, "ready")) }
    ),
    hook!(
        "validate",
        "the image build asks whether the snapshot is usable",
        |app, _| -> Run { Box::pin(acknowledge(app, "validate")) }
    ),
    Row {
        errors: &[
            (
                Kind::Malformed,
                "no envelope, which is answered without a word; or a wrong payload, whose field is named",
            ),
            (
                Kind::TokenTaken,
                "another token is installed; nothing changes",
            ),
        ],
        contract: Contract {
            request: &[Shape::json::<Envelope>()],
            successes: &[(
                Success::Whole,
                "installed; or the same token again, and then nothing changes",
            )],
            ..Contract::NONE
        },
        ..hook!(
            "run",
            "installs the token, the launch environment and the identity, once",
            |app, call| -> Run { Box::pin(run(app, call)) }
        )
    },
    hook!("suspend", "the guest is about to be frozen", |app,
                                                         _|
     -> Run {
        Box::pin(suspend(app))
    }),
    hook!("resume", "the guest was thawed", |app, _| -> Run {
        Box::pin(resume(app))
    }),
    hook!(
        "terminate",
        "the guest is about to end: requests under way finish, then the daemon leaves",
        |app, _| -> Run { Box::pin(terminate(app)) }
    ),
];

#[expect(
    clippy::unused_async,
    reason = "a row answers with a future, though this one has nothing to wait for"
)]
async fn acknowledge(app: Rc<App>, hook: &'static str) -> Result<Answer> {
    observe(&app, hook);
    Ok(Answer::Empty)
}

async fn suspend(app: Rc<App>) -> Result<Answer> {
    let invocation = observe(&app, "suspend");
    to_its_end(async move {
        handle(&app, invocation).await;
        app.hooks.before_freeze();
    })
    .await
}

async fn resume(app: Rc<App>) -> Result<Answer> {
    let invocation = observe(&app, "resume");
    if !app.boot.is_done() {
        tracing::warn!("resumed without an installed token");
    }
    app.hooks.after_freeze();
    to_its_end(async move { handle(&app, invocation).await }).await
}

async fn terminate(app: Rc<App>) -> Result<Answer> {
    let invocation = observe(&app, "terminate");
    to_its_end(async move {
        handle(&app, invocation).await;
        if app.config.terminate_drains {
            app.connections.start_draining();
        }
    })
    .await
}

/// Does what a hook brings about, also when the platform does not wait for its answer, which is always the same.
async fn to_its_end(work: impl Future<Output = ()> + 'static) -> Result<Answer> {
    ring::detached("hook", work).await;
    Ok(Answer::Empty)
}

fn observe(app: &App, hook: &'static str) -> Invocation {
    tracing::info!(hook, "hook invoked");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    app.hooks
        .record(hook, now.map_or(0, |since| since.as_secs()))
}

/// Runs the handler of a hook, with the image's environment below the launch environment, as every exec may have it.
async fn handle(app: &App, invocation: Invocation) {
    // Made for a handler that is about to run: hooks take no token, and thousands may wait.
    let environment = || {
        let image = app.image_environment.iter();
        let image = image.map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        let launch = app.boot.environment();
        let launch = launch
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        let own = [(&b"AGENTD_HOOK"[..], invocation.hook.as_bytes())];
        let layers = image.chain(launch).chain(own);
        let copied = layers.map(|(key, value)| (key.to_vec(), value.to_vec()));
        copied.collect()
    };
    app.hooks.handle(invocation, environment).await;
}

/// What the platform wraps the launch payload in.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RunHookEnvelope")]
struct Envelope {
    /// A JSON object as a string: `agent_token`, and optionally `env` (an object of strings), `identity_seed` and
    /// `identity_host_public_key` (base64 of 32 bytes each, both or neither).
    #[serde(rename = "runHookPayload", default)]
    payload: Option<String>,
}

async fn run(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let invocation = observe(&app, "run");
    let is_json = body::is_json(call.fields.first("content-type"));
    let bytes = body::read(&mut *call.body, MOST_BYTES).await;
    let bytes = bytes.map_err(|error| match error.kind() {
        Kind::TooLarge => Kind::Malformed.bare(),
        _ => error,
    })?;
    let envelope = is_json.then(|| serde_json::from_slice::<Envelope>(&bytes).ok());
    let payload = envelope.flatten().and_then(|envelope| envelope.payload);
    let launch = parse(&payload.ok_or_else(|| Kind::Malformed.bare())?)?;
    match app.boot.install(launch) {
        Installed::Now => {
            tracing::info!("bootstrapped");
            let launched = Launched(Rc::clone(&app));
            to_its_end(async move {
                if app.repairs_identity() {
                    app.identity.run().await;
                }
                handle(&app, invocation).await;
                drop(launched);
            })
            .await
        }
        Installed::Before => {
            app.launched.wait().await;
            Ok(Answer::Empty)
        }
        Installed::Refused => Err(Kind::TokenTaken.bare()),
    }
}

/// Says that the launch is over, however it ended.
struct Launched(Rc<App>);

impl Drop for Launched {
    fn drop(&mut self) {
        self.0.launched.set(());
    }
}

/// The bodies of open routes are small (contract, section 2).
const MOST_BYTES: u64 = 2 * 1024 * 1024;

/// Reads the payload. The sentences name keys and shapes, never a value: the value beside a mistake is a secret.
fn parse(payload: &str) -> Result<Launch> {
    let payload: Map<String, Value> = serde_json::from_str(payload)
        .map_err(|_| told("runHookPayload is not a JSON object".into()))?;
    let token = match payload.get("agent_token") {
        Some(Value::String(token)) if token.is_empty() => {
            return Err(told("agent_token is empty".into()));
        }
        Some(Value::String(token)) => token.clone(),
        _ => return Err(told("runHookPayload has no agent_token string".into())),
    };
    Ok(Launch {
        token,
        environment: environment(payload.get("env"))?,
        identity: identity(&payload)?,
    })
}

fn environment(env: Option<&Value>) -> Result<Vec<(String, String)>> {
    let pairs = match env {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(pairs)) => pairs,
        Some(_) => return Err(told("env is not an object of strings".into())),
    };
    let pair = |(key, value): (&String, &Value)| match value {
        Value::String(value) => Ok((key.clone(), value.clone())),
        _ => Err(told(format!("env[{key:?}] is not a string"))),
    };
    pairs.iter().map(pair).collect()
}

/// Both halves or neither.
fn identity(payload: &Map<String, Value>) -> Result<Option<Identity>> {
    const SEED: &str = "identity_seed";
    const HOST: &str = "identity_host_public_key";
    let half = |key: &str| match payload.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => key_material(key, value).map(Some),
    };
    match (half(SEED)?, half(HOST)?) {
        (None, None) => Ok(None),
        (Some(seed), Some(host_public_key)) => Ok(Some(Identity {
            seed,
            host_public_key,
        })),
        (None, Some(_)) => Err(told(format!("{HOST} is given without {SEED}"))),
        (Some(_), None) => Err(told(format!("{SEED} is given without {HOST}"))),
    }
}

fn key_material(key: &str, value: &Value) -> Result<[u8; 32]> {
    let text = value
        .as_str()
        .ok_or_else(|| told(format!("{key} is not a string")))?;
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| told(format!("{key} is not base64")))?;
    let bytes: [u8; 32] = bytes
        .try_into()
        .map_err(|_| told(format!("{key} is not 32 bytes")))?;
    if bytes == [0; 32] {
        return Err(told(format!("{key} is all zero")));
    }
    Ok(bytes)
}

fn told(sentence: String) -> Error {
    Kind::Malformed.told(sentence)
}
