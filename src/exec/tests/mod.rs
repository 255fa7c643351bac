//! Scenes with real processes, each in a process of its own, on both drivers.
//!
//! A scene needs its process for itself: it reaps every child and is the parent of orphans. So a test runs the test
//! binary again with only itself in it, where it runs the scene.

use std::collections::BTreeMap;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::error::Kind;
use crate::exec::together::both;
use crate::ring::{self, Choice, Frame, child, clock, process};

mod ending;
mod frozen;
mod life;
mod output;
mod stdin;

const DRIVER: &str = "RINGD_SCENE_DRIVER";
const DONE: &str = "the scene is over";
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(60);

/// Runs `scene` alone under both drivers; `name` is the path of the test below this module.
fn alone(name: &str, scene: impl AsyncFnOnce(Rc<Execs>)) {
    alone_with(name, |_| (), scene);
}

/// As [`alone`], with other limits than the patient ones of the scenes.
fn alone_with(name: &str, change: impl FnOnce(&mut Limits), scene: impl AsyncFnOnce(Rc<Execs>)) {
    if let Ok(driver) = std::env::var(DRIVER) {
        let driver: Choice = driver.parse().expect("set below");
        let mut limits = Limits {
            max_output_bytes: 1 << 20,
            output_linger: LONG,
            exec_ttl: LONG,
            replay_bytes: 1 << 20,
            spill_bytes: 0,
            max_spill_bytes: 1 << 30,
            spill_dir: std::env::temp_dir(),
            disk_reserve: 0,
            max_execs: 10_000,
            max_output_memory: 1 << 30,
            kill_grace: LONG,
            stdin_write_timeout: LONG,
            max_stdin_write_bytes: 1 << 20,
            oom_score: None,
            descriptors: None,
        };
        change(&mut limits);
        let code = ring::start(driver, async {
            process::become_subreaper();
            // SIGCHLD would go to the main thread, where the test harness does not block it: so it never comes.
            ring::spawn("reaper", async {
                loop {
                    clock::sleep(Duration::from_millis(1)).await;
                    child::reap();
                }
            });
            let scene = scene(Rc::new(Execs::new(limits)));
            match clock::within(Duration::from_secs(30), scene).await {
                Some(()) => 0,
                None => panic!("the scene hangs"),
            }
        });
        println!("{DONE}");
        std::process::exit(code.expect("a driver runs"));
    }
    for driver in ["auto", "epoll"] {
        let binary = std::env::current_exe().expect("we run from a file");
        let output = Command::new(binary)
            .args(["--exact", &format!("exec::tests::{name}")])
            .args(["--test-threads=1", "--nocapture"])
            .env(DRIVER, driver)
            .output()
            .expect("the test binary runs again");
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let is_over = output.status.success() && said.contains(DONE);
        assert!(is_over, "under {driver}: {said}{error}");
    }
}

fn launch(id: &str, script: &str) -> Launch {
    let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    Launch {
        id: id.into(),
        command: vec![script.into()],
        shell: Shell::Default,
        cwd: None,
        env: BTreeMap::from([path]),
        user: None,
        group: None,
        timeout: None,
        stdin: false,
        terminal: None,
        reap_group_on_exit: false,
        inherit_image_env: false,
        allowance: Allowance::default(),
    }
}

async fn start(execs: &Rc<Execs>, launch: Launch) -> Rc<Exec> {
    let id = launch.id.clone();
    let started = execs.start(launch, &Surroundings::default()).await;
    started.expect("it starts");
    execs.look(&id).expect("it is registered")
}

/// Runs a script to its end.
async fn run(execs: &Rc<Execs>, script: &str) -> Report {
    let exec = start(execs, launch("run", script)).await;
    exec.finished().await;
    let report = execs.ack("run").expect("it has ended");
    execs.sweep(clock::now() + LONG);
    report
}

/// All that a follower is told, as binary frames, output joined per stream.
async fn follow(execs: &Execs, id: &str, offset: u64) -> (Vec<String>, String, String) {
    let mut follower = execs.follow(id, offset).expect("it is registered");
    let (mut events, mut texts) = (Vec::new(), [String::new(), String::new()]);
    loop {
        match follower.look() {
            Next::Nothing => follower.changed().await,
            Next::Gap { from, to } => events.push(format!("gap {from}..{to}")),
            Next::Output => read(&mut follower, &mut texts).await,
            Next::Exit(outcome) => {
                events.push(format!("exit at {}", outcome.total));
                break;
            }
        }
    }
    let [stdout, stderr] = texts;
    (events, stdout, stderr)
}

/// Adds the output that is there to what is known of each stream.
async fn read(follower: &mut Follower, texts: &mut [String; 2]) {
    let take = |frames: &[Frame<'_>]| {
        for frame in frames {
            let stream = usize::from(frame.head[1]) - 1;
            texts[stream] += &String::from_utf8_lossy(frame.body);
        }
        Ok(frames.len())
    };
    follower.frames(take).await.expect("it takes everything");
}

/// Waits until the exec has written `text` to its standard output.
async fn wait_for(execs: &Execs, id: &str, text: &str) {
    let mut follower = execs.follow(id, 0).expect("it is registered");
    let mut texts = [String::new(), String::new()];
    while !texts[0].contains(text) {
        match follower.look() {
            Next::Nothing => follower.changed().await,
            Next::Output => read(&mut follower, &mut texts).await,
            other => panic!("{other:?} before {text}"),
        }
    }
}

fn kind<T>(result: crate::error::Result<T>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("proc is there")
        .count()
}

/// Waits until no more descriptors are open than `before`: the ring closes them a moment after they are dropped.
async fn settle(before: usize) {
    while descriptors() > before {
        clock::sleep(Duration::from_millis(1)).await;
    }
}

fn children() -> usize {
    let me = i32::try_from(std::process::id()).expect("pids are small");
    let all = scan::processes();
    all.iter().filter(|process| process.parent == me).count()
}
