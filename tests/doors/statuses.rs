//! Every status that is published for a route is provoked, and is then what is published.
//!
//! A status has a case in one of the tables, or is one that the door has for all routes alike. A published status
//! without a case fails, and so does a case whose status is not published.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::documented::{judge, name_of, routes, slug};
use crate::driver::Driver;
use crate::process::is_root;
use crate::reply::Reply;
use crate::request::{Request, TOKEN, file_at, tar_at, with_path};
use crate::resumable::{begin, creation, patch};
use crate::websocket::upgrade;

both![
    every_status_of_the_daemon_and_its_hooks,
    every_published_key_is_understood,
];

/// A route, a status, its slug, and how to get it.
pub(crate) type Case = (&'static str, u16, &'static str, fn(&World) -> Reply);

/// Daemons in the states that cases need, each started when the first case needs it.
pub(crate) struct World {
    pub(crate) driver: Driver,
    /// One with the token, and nothing changed.
    pub(crate) daemon: Daemon,
    fresh: OnceCell<Daemon>,
    hasty: OnceCell<Daemon>,
    poor: OnceCell<Daemon>,
    servant: OnceCell<Daemon>,
}

impl World {
    fn new(driver: Driver) -> Self {
        Self {
            driver,
            daemon: Daemon::ready(driver),
            fresh: OnceCell::new(),
            hasty: OnceCell::new(),
            poor: OnceCell::new(),
            servant: OnceCell::new(),
        }
    }

    /// A daemon of a case's own.
    pub(crate) fn setup(&self) -> Setup {
        Setup::new(self.driver)
    }

    /// One without a token.
    fn fresh(&self) -> &Daemon {
        self.fresh.get_or_init(|| self.setup().start())
    }

    /// One that waits for nobody.
    pub(crate) fn hasty(&self) -> &Daemon {
        let start = || {
            let setup = self.setup().flag("--body-timeout", "0.2");
            setup.flag("--stdin-write-timeout", "0.2").ready()
        };
        self.hasty.get_or_init(start)
    }

    /// One for which every disk is too full.
    pub(crate) fn poor(&self) -> &Daemon {
        let all = u64::MAX.to_string();
        self.poor
            .get_or_init(|| self.setup().flag("--disk-reserve-bytes", all).ready())
    }

    /// One that runs as nobody, with a directory `mine` where it may do anything, `theirs` where it may do nothing, and
    /// `shown` where it may look. Needs root.
    pub(crate) fn servant(&self) -> &Daemon {
        let start = || {
            use std::os::unix::fs::{PermissionsExt, chown};
            let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
            let setup = self.setup().under(&[&["setpriv"][..], &user].concat());
            for (name, mode) in [
                ("", 0o755),
                ("mine", 0o777),
                ("shown", 0o755),
                ("theirs", 0o700),
            ] {
                let path = setup.path(name);
                std::fs::create_dir_all(&path).expect("the scratch directory is ours");
                let mode = PermissionsExt::from_mode(mode);
                std::fs::set_permissions(&path, mode).expect("the directory is ours");
            }
            let file = setup.path("shown/f");
            std::fs::write(file, "text").expect("the directory is ours");
            let own = setup.path("mine/f");
            std::fs::write(&own, "text").expect("the directory is ours");
            chown(own, Some(65534), Some(65534)).expect("we are root");
            setup.ready()
        };
        self.servant.get_or_init(start)
    }
}

/// Provokes every status of the routes that `is_mine` takes. The second table is for root.
#[track_caller]
pub(crate) fn walk(driver: Driver, is_mine: fn(&str) -> bool, cases: &[Case], as_root: &[Case]) {
    let world = World::new(driver);
    let may_be_others = is_root("what daemons of other users answer");
    let mut unused: BTreeSet<_> = cases.iter().chain(as_root).map(key).collect();
    let mut wrong = Vec::new();
    for (route, status) in published(is_mine) {
        let (name, code) = (name_of(route), number(&status["code"]));
        let slug = status["error"].as_str().expect("a text");
        let wanted = (name.as_str(), code, slug);
        unused.retain(|one| *one != wanted);
        let found = |table: &[Case]| {
            table
                .iter()
                .find(|case| key(case) == wanted)
                .map(|case| case.3)
        };
        let reply = match (found(cases), found(as_root)) {
            (Some(provoke), _) => Some(provoke(&world)),
            (_, Some(_)) if !may_be_others => continue,
            (_, Some(provoke)) => Some(provoke(&world)),
            (None, None) => of_every_route(&world, route, code, slug),
        };
        match reply {
            None => wrong.push(format!("{wanted:?} has no case")),
            Some(reply) => {
                if let Err(why) = is(&reply, route, code, slug) {
                    wrong.push(format!("{wanted:?}: {why}: {reply:?}"));
                }
            }
        }
    }
    wrong.extend(
        unused
            .iter()
            .map(|case| format!("{case:?} is not published")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn key(case: &Case) -> (&'static str, u16, &'static str) {
    (case.0, case.1, case.2)
}

fn number(value: &Value) -> u16 {
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
    number.expect("a number of three digits")
}

fn published(is_mine: fn(&str) -> bool) -> Vec<(&'static Value, &'static Value)> {
    let mine = routes().filter(|route| is_mine(route["path"].as_str().expect("a text")));
    let statuses = |route: &'static Value| {
        let all = route["statuses"].as_array().into_iter().flatten();
        all.map(move |status| (route, status))
    };
    mine.flat_map(statuses).collect()
}

fn is(reply: &Reply, route: &Value, code: u16, expected: &str) -> Result<(), String> {
    let told = (reply.status, slug(reply));
    if told != (code, expected.to_owned()) {
        return Err(format!("it is {told:?}"));
    }
    judge(route, reply)
}

/// What the door answers on every route that has it published.
fn of_every_route(world: &World, route: &Value, code: u16, slug: &str) -> Option<Reply> {
    if !slug.is_empty() {
        return None;
    }
    let path = route["path"].as_str().expect("a text");
    let reads = !route["request"].is_null();
    let bare = |id: &str| {
        let method = route["method"].as_str().expect("a text");
        Request::new(method, path.replace("{id}", id))
    };
    Some(match code {
        401 => world.daemon.call(&bare("x")),
        503 => world.fresh().call(&bare("x").bearer()),
        413 => {
            let mut connection = world.daemon.connect();
            let request = bare("x").bearer().field("content-length", "536870913");
            connection.send(request.head());
            connection.reply()
        }
        400 if reads => {
            let request = asking(&world.daemon, route).body("{         ");
            let mut connection = world.daemon.connect();
            connection.send(request.head());
            connection.send("{");
            connection.finish();
            connection.reply()
        }
        400 if path.contains("{id}") => world.daemon.call(&bare("%ff").bearer()),
        408 if reads => {
            let request = asking(world.hasty(), route).body("{         ");
            let mut connection = world.hasty().connect();
            connection.send(request.head());
            connection.reply()
        }
        _ => return None,
    })
}

/// The head of the answer, where the connection is no HTTP any more behind it.
fn head_of(daemon: &Daemon, request: &Request) -> Reply {
    let mut connection = daemon.connect();
    connection.send(request.bytes());
    connection.head().expect("a response")
}

/// A request that the route takes.
fn asking(daemon: &Daemon, route: &Value) -> Request {
    let path = |name: &str| daemon.path(name);
    std::fs::write(path("f"), "text").expect("the scratch directory is ours");
    std::fs::create_dir_all(path("t/sub")).expect("the scratch directory is ours");
    let post = |target: &str, body: &Value| Request::post(target).json(body);
    let request = match &*name_of(route) {
        "POST /aws/lambda-microvms/runtime/v1/run" => {
            let payload = json!({"agent_token": TOKEN}).to_string();
            post(
                route["path"].as_str().expect("a text"),
                &json!({"runHookPayload": payload}),
            )
        }
        "POST /v1/exec/start" => post(
            "/v1/exec/start",
            &json!({"exec_id": "s", "command": ["true"]}),
        ),
        "GET /v1/exec/{id}" => Request::get("/v1/exec/done"),
        "GET /v1/exec/{id}/stream" => Request::get("/v1/exec/done/stream"),
        "POST /v1/exec/{id}/stdin" => post("/v1/exec/reads/stdin", &json!({})),
        "PUT /v1/exec/{id}/stdin" => Request::put("/v1/exec/reads/stdin").body("x"),
        "POST /v1/exec/{id}/resize" => {
            post("/v1/exec/reads/resize", &json!({"cols": 1, "rows": 1}))
        }
        "POST /v1/exec/{id}/signal" => post("/v1/exec/reads/signal", &json!({"signal": "CONT"})),
        "GET /v1/procs" => Request::get("/v1/procs"),
        "GET /v1/tcp" => upgrade("/v1/tcp?port=1"),
        "GET /v1/fs/file" => Request::get(file_at(path("f"))),
        "PUT /v1/fs/file" => Request::put(file_at(path("written"))).body("text"),
        "GET /v1/fs/tar" => Request::get(tar_at(path("t"))),
        "POST /v1/fs/tar" => post("/v1/fs/tar", &json!({"path": path("t"), "names": ["."]})),
        "PUT /v1/fs/tar" => Request::put(tar_at(path("extracted"))).body(Vec::new()),
        "POST /v1/fs/manifest" => post("/v1/fs/manifest", &json!({"path": path("t")})),
        "GET /v1/fs/stat" => Request::get(with_path("/v1/fs/stat", path("f"))),
        "GET /v1/fs/list" => Request::get(with_path("/v1/fs/list", path("t"))),
        "GET /v1/fs/watch" => Request::get(with_path("/v1/fs/watch", path("t"))),
        "POST /v1/fs/mkdir" => Request::post(with_path("/v1/fs/mkdir", path("t")) + "&parents=1"),
        "POST /v1/fs/move" => post(
            "/v1/fs/move",
            &json!({"from": path("f"), "to": path("moved")}),
        ),
        "DELETE /v1/fs/path" => Request::new("DELETE", with_path("/v1/fs/path", path("absent"))),
        "POST /v1/uploads" => creation(daemon, "u", None),
        "PATCH /v1/uploads/{id}" => patch(&begin(daemon, "u", None), 0, "?0").body("x"),
        other => panic!("nobody knows how to ask {other}"),
    };
    if request.target().starts_with("/v1/exec/") {
        let done = json!({"exec_id": "done", "command": ["true"]});
        let reads = json!({"exec_id": "reads", "command": ["sleep", "1000"], "stdin": true});
        for exec in [done, reads] {
            daemon.ask(&exec).is(200);
        }
    }
    match request.is_bearer() {
        true => request,
        false => request.bearer(),
    }
}

fn every_status_of_the_daemon_and_its_hooks(driver: Driver) {
    let is_mine = |path: &str| {
        let rooms = ["/v1/exec", "/v1/procs", "/v1/fs", "/v1/uploads"];
        !rooms.iter().any(|room| path.starts_with(room))
    };
    walk(driver, is_mine, CASES, &[]);
}

const CASES: &[Case] = &[
    (READY, 200, "", |world| world.daemon.post(hook(READY))),
    (VALIDATE, 200, "", |world| world.daemon.post(hook(VALIDATE))),
    (SUSPEND, 200, "", |world| world.daemon.post(hook(SUSPEND))),
    (RESUME, 200, "", |world| world.daemon.post(hook(RESUME))),
    (TERMINATE, 200, "", |world| {
        world.setup().start().post(hook(TERMINATE))
    }),
    (RUN, 200, "", |world| {
        world.daemon.bootstrap(TOKEN, &json!({}))
    }),
    (RUN, 409, "", |world| {
        world.daemon.bootstrap("other", &json!({}))
    }),
    ("GET /v1/health", 200, "", |world| {
        world.daemon.call(&Request::get("/v1/health"))
    }),
    ("GET /v1/metrics", 200, "", |world| {
        world.daemon.get("/v1/metrics")
    }),
    ("GET /v1/tcp", 101, "", |world| {
        head_of(&world.daemon, &upgrade("/v1/tcp?port=0"))
    }),
    ("GET /v1/tcp", 400, "malformed_request", |world| {
        world.daemon.get("/v1/tcp?port=1")
    }),
    ("GET /v1/tcp", 403, "permission_denied", |world| {
        world.daemon.call(&upgrade("/v1/tcp?unix=/run/socket"))
    }),
    ("GET /v1/transfers", 200, "", |world| {
        let mut upload = world.daemon.connect();
        let put = Request::put(file_at(world.daemon.path("slow")))
            .bearer()
            .body("text");
        upload.send(put.head());
        world.daemon.get("/v1/transfers")
    }),
    (SCHEMA, 200, "", |world| {
        world.daemon.call(&Request::get("/v1/schema"))
    }),
    (SCHEMA, 304, "", |world| {
        let request = Request::get("/v1/schema").field("if-none-match", "*");
        world.daemon.call(&request)
    }),
    (SCHEMA, 412, "precondition_failed", |world| {
        let request = Request::get("/v1/schema").field("if-match", "\"x\"");
        world.daemon.call(&request)
    }),
    (OPENAPI, 200, "", |world| {
        world.daemon.call(&Request::get("/v1/openapi.json"))
    }),
    (OPENAPI, 304, "", |world| {
        let request = Request::get("/v1/openapi.json").field("if-none-match", "*");
        world.daemon.call(&request)
    }),
    (OPENAPI, 412, "precondition_failed", |world| {
        let request = Request::get("/v1/openapi.json").field("if-match", "\"x\"");
        world.daemon.call(&request)
    }),
];

const READY: &str = "POST /aws/lambda-microvms/runtime/v1/ready";
const VALIDATE: &str = "POST /aws/lambda-microvms/runtime/v1/validate";
const SUSPEND: &str = "POST /aws/lambda-microvms/runtime/v1/suspend";
const RESUME: &str = "POST /aws/lambda-microvms/runtime/v1/resume";
const TERMINATE: &str = "POST /aws/lambda-microvms/runtime/v1/terminate";
const RUN: &str = "POST /aws/lambda-microvms/runtime/v1/run";
const SCHEMA: &str = "GET /v1/schema";
const OPENAPI: &str = "GET /v1/openapi.json";

fn hook(name: &str) -> &str {
    name.trim_start_matches("POST ")
}

/// The other half of a check that is in every debug build: it panics where a key is read that is not published.
fn every_published_key_is_understood(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let document = daemon
        .call(&Request::get("/v1/openapi.json"))
        .is(200)
        .json();
    let mut wrong = Vec::new();
    for route in routes().filter(|route| !route["query"].is_null()) {
        let (path, method) = (&route["path"], route["method"].as_str().expect("a text"));
        let path = path.as_str().expect("a text");
        let operation = &document["paths"][path][method.to_lowercase()];
        for key in operation["parameters"].as_array().into_iter().flatten() {
            let name = key["name"].as_str().expect("a text");
            // Archives bring their modes; the key is theirs because it is the reference's.
            if key["in"] != "query" || (path, name) == ("/v1/fs/tar", "mode") {
                continue;
            }
            let mut request = asking(&daemon, route);
            if (method, path) == ("PUT", "/v1/fs/file") {
                // Only an upload that goes on asks for every key.
                request = request.field("upload-complete", "?0");
            }
            // A key that is read once may stand once, and one that is a list takes no pattern of 2000 bytes.
            request = match key["schema"]["type"] == "array" {
                true => request.key(name, &"x".repeat(2000)),
                false => request.key(name, "1").key(name, "1"),
            };
            let mut connection = daemon.connect();
            connection.send(request.bytes());
            let head = connection.head().expect("a response");
            if head.status != 400 {
                wrong.push(format!(
                    "{method} {path} does not read {name}: {}",
                    head.status
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
