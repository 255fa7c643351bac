//! Running commands through the daemon.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::process::wait_until;
use crate::reply::{Reply, keys};
use crate::request::{Request, escaped};

/// A result or an exit event as it was before it told the usage, which is checked and taken out.
#[track_caller]
pub(crate) fn without_usage(text: &str) -> String {
    let mark = ",\"usage\":";
    let (before, rest) = text
        .split_once(mark)
        .unwrap_or_else(|| panic!("no usage in {text}"));
    let end = rest.find('}').expect("an object") + 1;
    let (usage, after) = rest.split_at(end);
    assert_eq!(keys(usage), USAGE);
    let usage: Value = serde_json::from_str(usage).expect("JSON");
    for (name, value) in usage.as_object().expect("an object") {
        let is_right = value.is_u64() != name.ends_with("_seconds");
        assert!(is_right && value.as_f64() >= Some(0.0), "{name}: {value}");
    }
    format!("{before}{after}")
}

/// The fields of a usage, in order.
pub(crate) const USAGE: [&str; 8] = [
    "user_seconds",
    "system_seconds",
    "peak_resident_bytes",
    "block_reads",
    "block_writes",
    "voluntary_switches",
    "involuntary_switches",
    "wall_seconds",
];

/// The outcome of an exec that ended well and said nothing, without its usage.
pub(crate) fn quiet_success(id: &str) -> String {
    format!(
        "{{\"exec_id\":\"{id}\",\"phase\":\"exited\",\"exit_code\":0,\"signal\":null,\"timed_out\":false,\
         \"stdout\":\"\",\"stderr\":\"\",\"truncated\":false,\"writers_may_be_alive\":false}}"
    )
}

impl Daemon {
    /// Asks for an exec; the reply may be a refusal.
    #[track_caller]
    pub(crate) fn ask(&self, request: &Value) -> Reply {
        self.call(&Request::post("/v1/exec/start").bearer().json(request))
    }

    /// Starts an exec under `id`; `request` holds the other fields.
    #[track_caller]
    pub(crate) fn begin(&self, id: &str, request: &Value) {
        let reply = self.ask(&with_id(id, request)).is(200);
        assert_eq!(reply.json(), json!({"exec_id": id, "phase": "running"}));
    }

    /// Starts a shell script under `id`.
    #[track_caller]
    pub(crate) fn begin_script(&self, id: &str, script: &str) {
        self.begin(id, &json!({"shell": true, "command": [script]}));
    }

    /// What poll says of `id`.
    #[track_caller]
    pub(crate) fn poll(&self, id: &str) -> Reply {
        self.get(exec_at(id))
    }

    /// Waits for the end of `id`.
    #[track_caller]
    pub(crate) fn exited(&self, id: &str) -> Value {
        let mut connection = self.connect();
        let request = Request::get(exec_at(id)).bearer();
        let mut last = Value::Null;
        wait_until(&format!("{id} exits"), || {
            last = connection.call(&request).is(200).json();
            last["phase"] == "exited"
        });
        last
    }

    /// Runs an exec to its end.
    #[track_caller]
    pub(crate) fn exec(&self, request: &Value) -> Value {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let id = format!(
            "run-{}",
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        self.begin(&id, request);
        self.exited(&id)
    }

    /// Runs a shell script to its end.
    #[track_caller]
    pub(crate) fn script(&self, script: &str) -> Value {
        self.exec(&json!({"shell": true, "command": [script]}))
    }

    /// Runs a program to a successful end and returns what it printed.
    #[track_caller]
    pub(crate) fn output(&self, request: &Value) -> String {
        let outcome = self.exec(request);
        assert_eq!(outcome["exit_code"], 0, "{outcome}");
        outcome["stdout"].as_str().expect("a string").to_owned()
    }

    /// Waits until a child has written its pid to a file below the working directory.
    #[track_caller]
    pub(crate) fn pid_in(&self, name: &str) -> i32 {
        let path = self.path(name);
        let mut pid = 0;
        wait_until(&format!("{name} holds a pid"), || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // The line is whole once its end is there.
            pid = if text.ends_with('\n') {
                text.trim().parse().unwrap_or(0)
            } else {
                0
            };
            pid > 0
        });
        pid
    }
}

/// The target of an exec; what follows the id is added by the caller.
pub(crate) fn exec_at(id: &str) -> String {
    format!("/v1/exec/{}", escaped(id.as_bytes()).replace('/', "%2F"))
}

fn with_id(id: &str, request: &Value) -> Value {
    let mut whole = request.clone();
    whole["exec_id"] = id.into();
    whole
}
