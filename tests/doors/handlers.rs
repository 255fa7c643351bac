//! Programs of the image that run on a hook: contract section 3 (G2), D5 and D20.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_alive, wait_until};
use crate::reply::keys;
use crate::request::{Request, TOKEN};

both![
    a_handler_has_run_when_its_hook_is_answered,
    a_hook_without_a_handler_is_told_without_one,
    a_handler_gets_the_environment_of_image_and_launch,
    what_fails_is_told_and_the_hook_is_answered,
    a_handler_that_takes_too_long_is_killed_with_its_group,
    handlers_run_one_at_a_time,
    handlers_that_wait_are_bounded,
    the_handler_of_run_runs_once,
    a_run_that_is_retried_is_answered_after_the_handler,
    the_drain_begins_after_the_handler_of_terminate,
    a_handler_runs_to_its_end_when_nobody_waits_for_it,
    a_daemon_that_leaves_takes_its_handler_along,
    what_a_handler_says_is_logged_up_to_a_bound,
    a_hook_that_is_not_remembered_is_handled,
    a_background_process_does_not_hold_the_hook,
    the_directory_of_the_handlers_must_be_absolute,
    a_resume_tells_what_passed_on_each_clock,
];

const PREFIX: &str = "/aws/lambda-microvms/runtime/v1";

fn a_handler_has_run_when_its_hook_is_answered(driver: Driver) {
    let touching = |name: &str| format!("sleep 0.05; echo $AGENTD_HOOK > $WORK/{name}");
    let hooks = ["suspend", "resume"];
    let daemon = with(driver, &hooks.map(|hook| (hook, touching(hook)))).start();
    for (at, hook) in hooks.into_iter().enumerate() {
        fire(&daemon, hook);
        let said = fs::read_to_string(daemon.path(hook)).expect("the handler has run");
        assert_eq!(said.trim(), hook);
        let told = daemon.health()["hooks"][at].clone();
        assert_eq!(told["hook"], hook, "{told}");
        let handler = &told["handler"];
        assert_eq!(handler["exit_code"], 0, "{told}");
        assert_eq!(handler["signal"], Value::Null, "{told}");
        assert_eq!(handler["timed_out"], false, "{told}");
        assert!(handler["duration_ms"].as_u64() >= Some(50), "{told}");
        let expected = ["exit_code", "signal", "timed_out", "duration_ms"];
        assert_eq!(keys(&handler.to_string()).len(), expected.len(), "{told}");
    }
}

fn a_hook_without_a_handler_is_told_without_one(driver: Driver) {
    let daemon = with(driver, &[("ready", "touch $WORK/ran"), ("other", "true")]).start();
    for hook in ["ready", "validate", "suspend", "resume"] {
        fire(&daemon, hook);
    }
    let hooks = daemon.health()["hooks"].clone();
    for hook in hooks.as_array().expect("a list") {
        assert_eq!(keys(&hook.to_string()), ["fired_at", "hook"], "{hook}");
    }
    assert!(
        !daemon.path("ran").exists(),
        "the image build has no handlers"
    );
    let nowhere = Setup::new(driver)
        .flag("--hooks-dir", "/no/such/place")
        .ready();
    fire(&nowhere, "suspend");
    assert_eq!(handler_of(&nowhere, "suspend"), Value::Null);
}

fn a_handler_gets_the_environment_of_image_and_launch(driver: Driver) {
    let script = "env > $WORK/env; pwd > $WORK/cwd; cat > $WORK/stdin";
    let daemon = with(driver, &[("run", script)])
        .env("IMAGE", "from the image")
        .env("BOTH", "from the image")
        .env("AGENTD_LOG", "info")
        .env("RINGD_KILL_GRACE", "9")
        .ready_with(&json!({"BOTH": "from the launch", "AGENTD_HOOK": "no"}));
    let env = fs::read_to_string(daemon.path("env")).expect("the handler has run");
    let mut found: Vec<&str> = env.lines().collect();
    // What the shell adds.
    found.retain(|line| {
        !["PWD=", "OLDPWD=", "_=", "SHLVL="]
            .iter()
            .any(|name| line.starts_with(name))
    });
    found.retain(|line| {
        !["TMPDIR=", "WORK="]
            .iter()
            .any(|name| line.starts_with(name))
    });
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "AGENTD_HOOK=run",
            "BOTH=from the launch",
            "IMAGE=from the image"
        ]
    );
    assert!(!env.contains(TOKEN));
    let read = |name: &str| fs::read_to_string(daemon.path(name)).expect("the handler has run");
    assert_eq!((&*read("cwd"), &*read("stdin")), ("/\n", ""));
}

fn what_fails_is_told_and_the_hook_is_answered(driver: Driver) {
    let failing = [
        ("suspend", "exit 3"),
        ("resume", "kill -9 $$"),
        ("run", "true"),
    ];
    let daemon = with(driver, &failing).start();
    fire(&daemon, "suspend");
    assert_eq!(handler_of(&daemon, "suspend")["exit_code"], 3);
    fire(&daemon, "resume");
    let killed = handler_of(&daemon, "resume");
    assert_eq!(
        (&killed["exit_code"], &killed["signal"]),
        (&Value::Null, &json!(9))
    );
    fs::set_permissions(daemon.path("hooks/run"), fs::Permissions::from_mode(0o644)).expect("ours");
    daemon.bootstrap(TOKEN, &json!({})).bare(200);
    let unfit = handler_of(&daemon, "run");
    assert_eq!(unfit["error"], "it is not executable", "{unfit}");

    for (prepare, why) in [
        (no_program as fn(&Path), "cannot be started"),
        (a_directory, "not a regular file"),
        (no_interpreter, "cannot be started"),
    ] {
        let setup = with::<&str>(driver, &[]);
        prepare(&setup.path("hooks/suspend"));
        let daemon = setup.start();
        fire(&daemon, "suspend");
        let told = handler_of(&daemon, "suspend");
        assert!(
            told["error"]
                .as_str()
                .is_some_and(|error| error.contains(why)),
            "{told}"
        );
        assert_eq!(told["exit_code"], Value::Null, "{told}");
        daemon.logged("has failed", 1);
        daemon.health();
    }
    // A launch environment that no process can have.
    let daemon = with(driver, &[("run", "true")]).ready_with(&json!({"A": "nul \0 byte"}));
    let told = handler_of(&daemon, "run");
    assert!(
        told["error"]
            .as_str()
            .is_some_and(|error| error.contains("NUL")),
        "{told}"
    );
}

fn no_program(path: &Path) {
    program(path, "this is no program");
}

fn a_directory(path: &Path) {
    fs::create_dir(path).expect("the scratch directory is ours");
}

fn no_interpreter(path: &Path) {
    program(path, "#!/no/such/interpreter\n");
}

fn a_handler_that_takes_too_long_is_killed_with_its_group(driver: Driver) {
    let script = "sleep 1000 & echo $! > $WORK/below; echo $$ > $WORK/leader; wait";
    let daemon = with(driver, &[("suspend", script)])
        .flag("--hook-handler-timeout", "1")
        .start();
    fire(&daemon, "suspend");
    let told = handler_of(&daemon, "suspend");
    assert_eq!(told["timed_out"], true, "{told}");
    assert_eq!(told["signal"], 9, "{told}");
    for name in ["leader", "below"] {
        let pid = daemon.pid_in(name);
        wait_until("it is gone", || !is_alive(pid));
    }
}

fn handlers_run_one_at_a_time(driver: Driver) {
    let script = "mkdir $WORK/lock || touch $WORK/overlap; sleep 0.05; rmdir $WORK/lock; \
                  echo $AGENTD_HOOK >> $WORK/order";
    let daemon = with(driver, &[("suspend", script), ("resume", script)]).start();
    let mut callers: Vec<Connection> = ["suspend", "resume", "suspend", "resume"]
        .map(|hook| calling(&daemon, hook))
        .into();
    for caller in &mut callers {
        caller.reply().bare(200);
    }
    let order = fs::read_to_string(daemon.path("order")).expect("handlers have run");
    assert_eq!(order.lines().count(), 4);
    assert!(!daemon.path("overlap").exists());
}

fn handlers_that_wait_are_bounded(driver: Driver) {
    let daemon = with(
        driver,
        &[("suspend", &*blocked("held")), ("resume", "true")],
    )
    .start();
    let mut first = calling(&daemon, "suspend");
    wait_until("the first handler runs", || daemon.path("held").exists());
    let mut others: Vec<Connection> = (0..12).map(|_| calling(&daemon, "resume")).collect();
    let refused = || {
        let hooks = daemon.health()["hooks"].clone();
        let hooks = hooks.as_array().expect("a list").clone();
        let errors = hooks
            .iter()
            .filter_map(|hook| hook["handler"]["error"].as_str().map(String::from));
        errors
            .filter(|error| error == "8 others wait already")
            .count()
    };
    wait_until("those who find no room are answered", || refused() == 4);
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    for caller in others.iter_mut().chain([&mut first]) {
        caller.reply().bare(200);
    }
    assert_eq!(refused(), 4);
    fire(&daemon, "resume");
    assert_eq!(refused(), 4, "there is room again");
}

fn the_handler_of_run_runs_once(driver: Driver) {
    let daemon = with(driver, &[("run", "echo ran >> $WORK/ran")]).start();
    let ran = || fs::read_to_string(daemon.path("ran")).unwrap_or_default();
    daemon
        .call(&Request::post(format!("{PREFIX}/run")))
        .bare(400);
    assert_eq!(ran(), "", "a refused run has not run");
    daemon.bootstrap("a", &json!({})).bare(200);
    assert_eq!(ran(), "ran\n");
    daemon.bootstrap("b", &json!({})).is(409);
    daemon.bootstrap("a", &json!({})).bare(200);
    assert_eq!(ran(), "ran\n");
}

fn a_run_that_is_retried_is_answered_after_the_handler(driver: Driver) {
    let daemon = with(driver, &[("run", &*blocked("held"))]).start();
    let payload = json!({"agent_token": TOKEN}).to_string();
    let run = Request::post(format!("{PREFIX}/run")).json(&json!({"runHookPayload": payload}));
    let mut first = daemon.connect();
    first.send(run.bytes());
    wait_until("the handler runs", || daemon.path("held").exists());
    // The platform gives up and tries again.
    first.reset();
    let mut again = daemon.connect();
    again.send(run.bytes());
    // What has the token is served meanwhile.
    assert_eq!(daemon.script("echo served")["stdout"], "served\n");
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    again.reply().bare(200);
    assert!(daemon.path("done").exists());
}

fn the_drain_begins_after_the_handler_of_terminate(driver: Driver) {
    let mut daemon = with(driver, &[("terminate", &*blocked("held"))]).ready();
    let mut caller = calling(&daemon, "terminate");
    wait_until("the handler runs", || daemon.path("held").exists());
    assert_eq!(daemon.script("echo served")["stdout"], "served\n");
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    caller.reply().bare(200);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(daemon.path("done").exists());
}

fn a_handler_runs_to_its_end_when_nobody_waits_for_it(driver: Driver) {
    let mut daemon = with(driver, &[("terminate", &*blocked("held"))]).start();
    let caller = calling(&daemon, "terminate");
    wait_until("the handler runs", || daemon.path("held").exists());
    caller.reset();
    daemon.health();
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    assert_eq!(daemon.wait().code(), Some(0), "it drains all the same");
    assert!(daemon.path("done").exists());
}

fn a_daemon_that_leaves_takes_its_handler_along(driver: Driver) {
    let script = "echo $$ > $WORK/leader; exec sleep 1000";
    let mut daemon = with(driver, &[("suspend", script)])
        .flag("--drain-timeout", "0.1")
        .start();
    let caller = calling(&daemon, "suspend");
    let leader = daemon.pid_in("leader");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    wait_until("the handler is gone", || !is_alive(leader));
    drop(caller);
}

fn what_a_handler_says_is_logged_up_to_a_bound(driver: Driver) {
    let script = "echo hello; printf 'no end' >&2; \
                  if [ $AGENTD_HOOK = resume ]; then yes xxxxxxxxxxxxxxxxxxxx | head -c 3000000; fi";
    let daemon = with(driver, &[("suspend", script), ("resume", script)]).start();
    fire(&daemon, "suspend");
    let said = daemon.logged("a hook handler says", 2);
    let line = |stream: &str, line: &str| {
        let fields = said.iter().map(|line| &line["fields"]);
        let mut ours = fields.filter(|fields| fields["hook"] == "suspend");
        ours.any(|fields| fields["stream"] == stream && fields["line"] == line)
    };
    assert!(line("stdout", "hello"), "{said:?}");
    assert!(line("stderr", "no end"), "{said:?}");
    fire(&daemon, "resume");
    let told = handler_of(&daemon, "resume");
    assert_eq!(told["exit_code"], 0, "a flood holds nobody");
    daemon.logged("said more than is logged", 1);
    let flood = daemon.logged("xxxxx", 10).len();
    assert!(flood < 1000, "{flood} lines of a flood");
}

fn a_hook_that_is_not_remembered_is_handled(driver: Driver) {
    let daemon = with(driver, &[("suspend", "touch $WORK/ran")]).start();
    let mut connection = daemon.connect();
    for _ in 0..64 {
        connection
            .call(&Request::post(format!("{PREFIX}/ready")))
            .is(200);
    }
    fire(&daemon, "suspend");
    assert!(daemon.path("ran").exists());
    assert_eq!(daemon.health()["hooks_dropped"], 1);
}

fn a_background_process_does_not_hold_the_hook(driver: Driver) {
    let script = "sleep 1000 & echo $! > $WORK/left";
    let daemon = with(driver, &[("resume", script)])
        .flag("--hook-handler-timeout", "600")
        .start();
    fire(&daemon, "resume");
    let told = handler_of(&daemon, "resume");
    assert_eq!(
        (&told["exit_code"], &told["timed_out"]),
        (&json!(0), &json!(false))
    );
    let left = daemon.pid_in("left");
    assert!(is_alive(left), "it is the image's to end");
    crate::process::signal(left, Signal::KILL);
}

fn the_directory_of_the_handlers_must_be_absolute(driver: Driver) {
    let refusal = Setup::new(driver).flag("--hooks-dir", "hooks").refused();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    assert!(refusal.stderr.contains("--hooks-dir"), "{refusal:?}");
}

fn a_resume_tells_what_passed_on_each_clock(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fire(&daemon, "resume");
    fire(&daemon, "suspend");
    daemon.signal(Signal::STOP);
    let slept = Command::new("sleep").arg("4.2").status();
    assert!(slept.is_ok_and(|status| status.success()));
    daemon.signal(Signal::CONT);
    fire(&daemon, "resume");
    let told = daemon.logged("resumed:", 2);
    let [first, second] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(first["fields"]["since"], "start", "{first}");
    let fields = &second["fields"];
    assert_eq!(fields["since"], "suspend", "{second}");
    assert_eq!(second["level"], "WARN", "{second}");
    for clock in ["monotonic", "boottime", "realtime", "jump"] {
        let passed = fields[clock].as_f64().expect("seconds");
        assert!(passed > 2.0, "{clock}: {second}");
    }
    let ran = fields["ran"].as_f64().expect("seconds");
    assert!(ran < 4.0, "it stood still: {second}");
}

/// A daemon to be with these handlers, which know its working directory as `$WORK`.
fn with<S: AsRef<str>>(driver: Driver, handlers: &[(&str, S)]) -> Setup {
    let setup = Setup::new(driver);
    let dir = setup.path("hooks");
    fs::create_dir(&dir).expect("the scratch directory is ours");
    for (hook, script) in handlers {
        program(
            &dir.join(hook),
            &format!("#!/bin/sh\n{}\n", script.as_ref()),
        );
    }
    let work = setup.path("").display().to_string();
    setup
        .flag("--hooks-dir", dir.display().to_string())
        .env("WORK", work)
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("the scratch directory is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
}

/// A handler that says that it runs, and goes on when it is let go.
fn blocked(name: &str) -> String {
    format!("touch $WORK/{name}; until [ -e $WORK/go ]; do sleep 0.01; done; touch $WORK/done")
}

#[track_caller]
fn fire(daemon: &Daemon, hook: &str) {
    daemon
        .call(&Request::post(format!("{PREFIX}/{hook}")))
        .bare(200);
}

/// A connection on which the hook is called and not answered yet.
#[track_caller]
fn calling(daemon: &Daemon, hook: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.send(Request::post(format!("{PREFIX}/{hook}")).bytes());
    connection
}

/// What health tells of the handler of the last invocation of `hook`.
#[track_caller]
fn handler_of(daemon: &Daemon, hook: &str) -> Value {
    let hooks = daemon.health()["hooks"].clone();
    let list = hooks.as_array().expect("a list");
    let last = list.iter().rfind(|entry| entry["hook"] == hook);
    last.expect("it was invoked")["handler"].clone()
}
