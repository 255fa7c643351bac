//! What a child is given: environment, directory, identity, descriptors, signals (contract section 4.2).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{self, is_root, stat, status, status_line};

both![
    a_script_is_its_elements_joined_by_newlines,
    a_shell_may_be_named,
    the_environment_is_launch_then_request_and_nothing_else,
    environment_keys_are_passed_as_they_are,
    the_image_environment_is_inherited_on_request,
    a_program_is_looked_up_in_the_childs_own_path,
    the_working_directory_is_the_daemons_unless_given,
    a_relative_program_is_found_from_the_new_directory,
    ids_are_set_and_supplementary_groups_dropped,
    only_a_group_keeps_the_rest,
    a_user_by_name_brings_group_and_home,
    digits_that_are_no_name_are_an_id,
    a_user_without_rights_to_the_directory_is_a_failed_spawn,
    a_child_leads_a_group_of_its_own_in_the_daemons_session,
    a_child_starts_with_default_signals,
    a_child_inherits_umask_and_limits,
    a_child_has_no_descriptor_but_the_standard_three,
    a_child_does_not_inherit_the_protection_from_oom,
];

fn a_script_is_its_elements_joined_by_newlines(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        (json!(["echo one", "echo two"]), "one\ntwo\n"),
        (json!(["echo $0 $#"]), "/bin/sh 0\n"),
        (json!(["echo a \\", "b"]), "a b\n"),
        (json!(["cat <<X", "here", "X"]), "here\n"),
        (json!([]), ""),
    ];
    for (command, printed) in rows {
        let outcome = daemon.exec(&json!({"command": command, "shell": true}));
        assert_eq!(outcome["stdout"], printed, "{outcome}");
    }
    // Without a shell nothing is expanded.
    let outcome = daemon.exec(&json!({"command": ["echo", "$HOME", "*", "a  b"]}));
    assert_eq!(outcome["stdout"], "$HOME * a  b\n");
}

fn a_shell_may_be_named(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for shell in [json!("/bin/sh"), json!("sh"), json!(true)] {
        let outcome = daemon.exec(&json!({"command": ["echo", "  one"], "shell": shell}));
        assert_eq!(outcome["exit_code"], 127, "{outcome}");
        assert_eq!(outcome["stdout"], "\n", "{outcome}");
    }
    let outcome = daemon.exec(&json!({"command": ["echo", "one"], "shell": false}));
    assert_eq!(outcome["stdout"], "one\n");
}

fn the_environment_is_launch_then_request_and_nothing_else(driver: Driver) {
    let daemon = Setup::new(driver)
        .env("LEAKED", "yes")
        .env("AGENTD_LOG", "info")
        .ready_with(&json!({"LAUNCH": "yes", "EMPTY": "", "SHARED": "launch"}));
    assert_eq!(
        environment(&daemon, json!({})),
        ["EMPTY=", "LAUNCH=yes", "SHARED=launch"]
    );
    let asked = json!({"env": {"SHARED": "request", "Z": "1"}});
    assert_eq!(
        environment(&daemon, asked),
        ["EMPTY=", "LAUNCH=yes", "SHARED=request", "Z=1"]
    );
    // One exec's environment is not the next one's.
    assert_eq!(
        environment(&daemon, json!({})),
        ["EMPTY=", "LAUNCH=yes", "SHARED=launch"]
    );
}

fn environment_keys_are_passed_as_they_are(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = "v".repeat(100_000);
    let asked = json!({"env": {"A=B": "c", "": "d", "with space": "e", "ü": "ö\nx", "LONG": long}});
    let mut found = environment(&daemon, asked);
    found.sort_by_key(String::len);
    for expected in ["=d", "A=B=c", "with space=e", "ü=ö", "x"] {
        assert!(
            found.iter().any(|line| line == expected),
            "{expected}: {:?}",
            &found[..5]
        );
    }
    assert!(
        found
            .iter()
            .any(|line| line.len() == "LONG=".len() + 100_000)
    );
}

fn the_image_environment_is_inherited_on_request(driver: Driver) {
    let daemon = Setup::new(driver)
        .env("IMAGE", "yes")
        .env("SHARED", "image")
        .env("AGENTD_LOG", "info")
        .env("RINGD_KILL_GRACE", "9")
        .ready_with(&json!({"LAUNCH": "yes", "SHARED": "launch"}));
    let found = environment(&daemon, json!({"inherit_image_env": true}));
    let found: Vec<&String> = found
        .iter()
        .filter(|line| !line.starts_with("TMPDIR="))
        .collect();
    assert_eq!(found, ["IMAGE=yes", "LAUNCH=yes", "SHARED=launch"]);
    assert_eq!(
        environment(&daemon, json!({"inherit_image_env": false})),
        ["LAUNCH=yes", "SHARED=launch"]
    );
}

fn a_program_is_looked_up_in_the_childs_own_path(driver: Driver) {
    let setup = Setup::new(driver);
    for name in ["launch", "request"] {
        let program = setup.path(&format!("{name}/hello"));
        fs::create_dir(setup.path(name)).expect("the scratch directory is ours");
        fs::write(&program, format!("#!/bin/sh\necho {name}\n"))
            .expect("the scratch directory is ours");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    }
    let (launch, request) = (setup.path("launch"), setup.path("request"));
    let (launch, request) = (
        launch.to_str().expect("ASCII"),
        request.to_str().expect("ASCII"),
    );
    let daemon = setup
        .env("PATH", request)
        .ready_with(&json!({"PATH": launch}));
    assert_eq!(daemon.output(&json!({"command": ["hello"]})), "launch\n");
    let asked = json!({"command": ["hello"], "env": {"PATH": format!("/nonexistent:{request}")}});
    assert_eq!(daemon.output(&asked), "request\n");
    daemon
        .ask(&json!({"exec_id": "x", "command": ["ls"]}))
        .refuses(500, "spawn_failed");
    // Without any PATH the usual directories are searched, the daemon's own PATH is not.
    let daemon = Setup::new(driver).env("PATH", "/nonexistent").ready();
    assert_eq!(
        daemon.output(&json!({"command": ["ls", "/dev/null"]})),
        "/dev/null\n"
    );
}

fn the_working_directory_is_the_daemons_unless_given(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("sub")).expect("the scratch directory is ours");
    let here = daemon.path("");
    let here = here.to_str().expect("ASCII").trim_end_matches('/');
    let parent = here.trim_end_matches("/work");
    for (cwd, printed) in [
        (json!(null), here.to_owned()),
        (json!("/"), "/".to_owned()),
        (json!("sub"), format!("{here}/sub")),
        (json!(".."), parent.to_owned()),
        (json!(format!("{here}/sub")), format!("{here}/sub")),
    ] {
        let found = daemon.output(&json!({"command": ["pwd"], "cwd": cwd}));
        assert_eq!(found.trim_end(), printed, "{cwd}");
    }
}

fn a_relative_program_is_found_from_the_new_directory(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("sub")).expect("the scratch directory is ours");
    fs::write(daemon.path("sub/a.sh"), "#!/bin/sh\necho found\n")
        .expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("sub/a.sh"), fs::Permissions::from_mode(0o755)).expect("ours");
    let found = daemon.output(&json!({"command": ["./a.sh"], "cwd": "sub"}));
    assert_eq!(found, "found\n");
    daemon
        .ask(&json!({"exec_id": "x", "command": ["./a.sh"]}))
        .refuses(500, "spawn_failed");
}

fn ids_are_set_and_supplementary_groups_dropped(driver: Driver) {
    if !is_root("running as another user") {
        return;
    }
    let daemon = with_groups(driver);
    let rows = [
        (json!({"user": 1234, "group": 5678}), "1234 5678", ""),
        (json!({"user": 1234}), "1234 0", ""),
        (json!({"user": 0}), "0 0", ""),
        (json!({"user": "nobody", "group": 5678}), "65534 5678", ""),
    ];
    for (who, ids, groups) in rows {
        assert_eq!(
            identity(&daemon, &who),
            (ids.to_owned(), groups.to_owned()),
            "{who}"
        );
    }
}

fn only_a_group_keeps_the_rest(driver: Driver) {
    if !is_root("running as another group") {
        return;
    }
    let daemon = with_groups(driver);
    assert_eq!(
        identity(&daemon, &json!({})),
        ("0 0".to_owned(), "7 8".to_owned())
    );
    assert_eq!(
        identity(&daemon, &json!({"group": 5678})),
        ("0 5678".to_owned(), "7 8".to_owned())
    );
}

fn a_user_by_name_brings_group_and_home(driver: Driver) {
    if !is_root("running as a named user") {
        return;
    }
    let row = fs::read_to_string("/etc/passwd").expect("a user database");
    let row = row
        .lines()
        .find(|line| line.starts_with("daemon:"))
        .expect("the user daemon exists");
    let row: Vec<&str> = row.split(':').collect();
    let (uid, gid, home) = (row[2], row[3], row[5]);
    let daemon = Daemon::ready(driver);
    let (ids, _) = identity(&daemon, &json!({"user": "daemon"}));
    assert_eq!(ids, format!("{uid} {gid}"));
    let found = environment(&daemon, json!({"user": "daemon"}));
    assert_eq!(
        found,
        [
            format!("HOME={home}"),
            "LOGNAME=daemon".to_owned(),
            "USER=daemon".to_owned()
        ]
    );
    // By number there is no group, but the rest is the same.
    let number: u32 = uid.parse().expect("a number");
    let (ids, _) = identity(&daemon, &json!({"user": number}));
    assert_eq!(ids, format!("{uid} 0"));
    assert_eq!(environment(&daemon, json!({"user": number})), found);
    // What the request says is stronger.
    let found = environment(&daemon, json!({"user": "daemon", "env": {"HOME": "/else"}}));
    assert!(found.contains(&"HOME=/else".to_owned()), "{found:?}");
    let daemon = Setup::new(driver).ready_with(&json!({"HOME": "/launch"}));
    let found = environment(&daemon, json!({"user": "daemon"}));
    assert!(found.contains(&"HOME=/launch".to_owned()), "{found:?}");
}

fn digits_that_are_no_name_are_an_id(driver: Driver) {
    if !is_root("running as another user") {
        return;
    }
    let daemon = Daemon::ready(driver);
    let (ids, _) = identity(&daemon, &json!({"user": "4321", "group": "8765"}));
    assert_eq!(ids, "4321 8765");
}

fn a_user_without_rights_to_the_directory_is_a_failed_spawn(driver: Driver) {
    if !is_root("running as another user") {
        return;
    }
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("mine")).expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("mine"), fs::Permissions::from_mode(0o700)).expect("ours");
    let request = json!({"exec_id": "x", "command": ["true"], "user": 1234, "cwd": "mine"});
    let reply = daemon.ask(&request);
    // Whether the directory is entered before or after the ids are set, the program is looked up after.
    assert!(reply.status == 500 || reply.status == 200, "{reply:?}");
    fs::write(daemon.path("mine/p"), "#!/bin/sh\n").expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("mine/p"), fs::Permissions::from_mode(0o700)).expect("ours");
    let request =
        json!({"exec_id": "y", "command": [daemon.path("mine/p").to_str()], "user": 1234});
    daemon.ask(&request).refuses(500, "spawn_failed");
}

fn a_child_leads_a_group_of_its_own_in_the_daemons_session(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let line = daemon.output(&json!({"command": ["cat", "/proc/self/stat"]}));
    let pid = line.split(' ').next().expect("a pid");
    let (_, fields) = line.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (parent, group, session) = (fields[1], fields[2], fields[3]);
    assert_eq!(parent, daemon.pid().to_string());
    assert_eq!(group, pid);
    let ours = stat(daemon.pid()).expect("it runs");
    assert_eq!(session, ours[3]);
}

fn a_child_starts_with_default_signals(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let text = daemon.output(&json!({"command": ["cat", "/proc/self/status"]}));
    assert_eq!(
        u64::from_str_radix(&status_line(&text, "SigBlk"), 16),
        Ok(0)
    );
    let ignored = u64::from_str_radix(&status_line(&text, "SigIgn"), 16).expect("a mask");
    // SIGINT, SIGPIPE, SIGTERM and SIGCHLD: daemons change them and children need them.
    for number in [2, 13, 15, 17] {
        assert_eq!(
            ignored & (1 << (number - 1)),
            0,
            "signal {number}: {ignored:x}"
        );
    }
    let outcome = daemon.script("yes | head -n 1");
    assert_eq!(outcome["stdout"], "y\n");
    assert_eq!(outcome["stderr"], "");
}

fn a_child_inherits_umask_and_limits(driver: Driver) {
    let wrapper = [
        "/bin/sh",
        "-c",
        "umask 027; ulimit -c 0; ulimit -n 777; exec \"$@\"",
        "sh",
    ];
    let daemon = Setup::new(driver).under(&wrapper).ready();
    assert_eq!(status(daemon.pid(), "Umask"), "0027");
    let outcome = daemon.script("umask; ulimit -n");
    assert_eq!(outcome["stdout"], "0027\n777\n", "{outcome}");
}

fn a_child_has_no_descriptor_but_the_standard_three(driver: Driver) {
    // The daemon itself inherits a descriptor that nobody closed for it.
    let wrapper = ["/bin/sh", "-c", "exec 7</dev/null; exec \"$@\"", "sh"];
    let daemon = Setup::new(driver).under(&wrapper).ready();
    let mut busy: Vec<_> = (0..5).map(|_| daemon.connect()).collect();
    for connection in &mut busy {
        connection.is_usable();
    }
    daemon.begin("other", &json!({"command": ["sleep", "1000"]}));
    // The directory that ls reads is its fourth descriptor.
    let listed = daemon.output(&json!({"command": ["ls", "-l", "/proc/self/fd"]}));
    let targets: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .map(|pair| pair.1)
        .collect();
    assert_eq!(targets.len(), 4, "{listed}");
    assert_eq!(targets[0], "/dev/null", "{listed}");
    assert!(
        targets[1].starts_with("pipe:") && targets[2].starts_with("pipe:"),
        "{listed}"
    );
    assert_ne!(targets[1], targets[2], "{listed}");
    let outcome = daemon.script("cat; readlink /proc/self/fd/0");
    assert_eq!(outcome["stdout"], "/dev/null\n");
    let asked = json!({"command": ["readlink", "/proc/self/fd/0"], "stdin": true});
    let printed = daemon.output(&asked);
    assert!(printed.starts_with("pipe:"), "{printed}");
}

fn a_child_does_not_inherit_the_protection_from_oom(driver: Driver) {
    let before = fs::read_to_string("/proc/self/oom_score_adj").expect("proc is mounted");
    let daemon = Daemon::ready(driver);
    let childs = daemon.output(&json!({"command": ["cat", "/proc/self/oom_score_adj"]}));
    assert_eq!(childs, before);
    if may_protect_itself() {
        let own =
            fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.pid())).expect("it runs");
        let own: i32 = own.trim().parse().expect("a number");
        assert!(own < 0, "{own}");
    }
}

/// True when this machine lets its root lower an OOM score (CAP_SYS_RESOURCE, bit 24).
pub(crate) fn may_protect_itself() -> bool {
    let own = i32::try_from(std::process::id()).expect("pids are small");
    let held = u64::from_str_radix(&status(own, "CapEff"), 16).expect("a mask");
    let may = held & (1 << 24) != 0;
    if !may {
        eprintln!("no CAP_SYS_RESOURCE here: the daemon's own OOM score is not checked");
    }
    may
}

/// The lines of `env`, sorted, with the fields of `asked` in the request.
#[track_caller]
fn environment(daemon: &Daemon, mut asked: Value) -> Vec<String> {
    asked["command"] = json!(["/usr/bin/env"]);
    let mut lines: Vec<String> = daemon.output(&asked).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Effective uid and gid, and the supplementary groups, of a child.
#[track_caller]
fn identity(daemon: &Daemon, who: &Value) -> (String, String) {
    let mut asked = who.clone();
    asked["command"] = json!(["/bin/cat", "/proc/self/status"]);
    asked["cwd"] = json!("/");
    let text = daemon.output(&asked);
    let ids: Vec<String> = ["Uid", "Gid"]
        .iter()
        .map(|name| status_line(&text, name))
        .collect();
    for id in &ids {
        let all: Vec<&str> = id.split_whitespace().collect();
        assert!(
            all.iter().all(|one| *one == all[0]),
            "real, effective and saved differ: {id}"
        );
    }
    let first = |id: &str| id.split_whitespace().next().unwrap_or_default().to_owned();
    (
        format!("{} {}", first(&ids[0]), first(&ids[1])),
        status_line(&text, "Groups"),
    )
}

/// A daemon that has two supplementary groups itself.
fn with_groups(driver: Driver) -> Daemon {
    let daemon = Setup::new(driver)
        .under(&["setpriv", "--groups", "7,8"])
        .ready();
    assert_eq!(process::status(daemon.pid(), "Groups"), "7 8");
    daemon
}
