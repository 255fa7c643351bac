//! The command lines of `ringd tunnel` and `ringd keygen`: what is refused, and how it is told.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::carrier::{GUEST, HOST, Plan, finished, private_file, url};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::TOKEN;
use crate::scratch::Scratch;
use crate::service::Service;

both![
    tokens_come_from_files_and_from_the_environment,
    a_taken_address_is_told,
];

fn ringd(words: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringd"));
    command
        .args(words)
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finished(command.spawn().expect("it starts"))
}

/// Checks that a command line ends with 2 and a sentence that says this.
#[track_caller]
fn is_unusable(words: &[&str], why: &str) {
    let output = ringd(words, &[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
    assert!(
        told.starts_with("ringd: ") && told.contains(why),
        "{words:?}: {told}"
    );
    assert_eq!(output.stdout, b"", "{words:?}");
}

#[test]
fn a_bad_command_line_is_told() {
    let good = [
        "tunnel",
        "--url",
        "http://h:1",
        "--port",
        "5432",
        "--local",
        "127.0.0.1:0",
        "--token",
        "t",
    ];
    let with = |more: &[&'static str]| [&good[..], more].concat();
    let without = |name: &str| {
        let at = good
            .iter()
            .position(|word| *word == name)
            .expect("it is there");
        [&good[..at], &good[at + 2..]].concat()
    };
    let changed = |name: &str, value: &'static str| {
        let mut words = good.to_vec();
        let at = good
            .iter()
            .position(|word| *word == name)
            .expect("it is there");
        words[at + 1] = value;
        words
    };
    for (words, why) in [
        (vec!["tunnel"], "--port is missing"),
        (vec!["tunnel", "5432"], "\"5432\" is not an option"),
        (without("--url"), "--url is missing"),
        (without("--port"), "--port is missing"),
        (without("--local"), "--local is missing"),
        (without("--token"), "RINGD_TOKEN"),
        (with(&["--colour", "red"]), "--colour is not an option"),
        (with(&["--port", "1"]), "more than once"),
        (with(&["--driver"]), "needs a value"),
        (with(&["--driver", "fast"]), "--driver"),
        (with(&["--verify=yes"]), "takes no value"),
        (with(&["--unix", "/x"]), "exclude each other"),
        (with(&["--token-file", "/x"]), "exclude each other"),
        (changed("--url", "https://h:1"), "TLS proxy"),
        (changed("--url", "h:1"), "--url"),
        (changed("--port", "0"), "--port"),
        (changed("--port", "http"), "--port"),
        (changed("--local", "5432"), "--local"),
        (changed("--token", ""), "token is empty"),
        (changed("--token", "a\nb"), "control character"),
        (with(&["--verify"]), "--verify needs --host-key-file"),
        (
            with(&["--verify", "--host-key-file", "/x"]),
            "--verify needs --guest-key",
        ),
        (
            with(&["--verify", "--host-key-file", "/x", "--guest-key", "short"]),
            "--guest-key",
        ),
        (
            with(&[
                "--verify",
                "--host-key-file",
                "/nowhere/x",
                "--guest-key",
                GUEST[1],
            ]),
            "/nowhere/x",
        ),
        // Half a wish for safety is never a tunnel without it.
        (with(&["--host-key-file", "/x"]), "--verify"),
        (with(&["--guest-key", GUEST[1]]), "--verify"),
        (with(&["--protocol", "1"]), "--verify"),
        (vec!["keygen"], "keygen"),
        (vec!["keygen", "--what", "x"], "keygen"),
        (vec!["keygen", "a", "b"], "keygen"),
    ] {
        is_unusable(&words, why);
    }
}

#[test]
fn a_private_key_must_be_private_and_a_key() {
    let scratch = Scratch::new();
    let path = scratch.path().join("host.key");
    let shown = path.display().to_string();
    let words = [
        "tunnel",
        "--url",
        "http://h:1",
        "--port",
        "1",
        "--local",
        "-",
        "--token",
        "t",
        "--verify",
        "--host-key-file",
        &shown,
        "--guest-key",
        GUEST[1],
    ];
    private_file(&path, HOST[0]);
    let read = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("it is ours");
    };
    for mode in [0o644, 0o640, 0o604] {
        read(mode);
        is_unusable(&words, "can be read by others");
    }
    read(0o600);
    for text in ["", "not base64", &HOST[0][..40]] {
        std::fs::write(&path, text).expect("there is room");
        is_unusable(&words, "holds no key");
    }
}

#[test]
fn keys_are_made_once_and_shown() {
    let scratch = Scratch::new();
    let path = scratch.path().join("host.key");
    let shown = path.display().to_string();
    let made = ringd(&["keygen", &shown], &[]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let public = String::from_utf8(made.stdout).expect("a line of text");
    assert_eq!(public.trim_end().len(), 44, "{public:?}");
    let mode = std::fs::metadata(&path)
        .expect("it was made")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    let again = ringd(&["keygen", &shown], &[]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(told.contains("is there already"), "{told}");
    let seen = ringd(&["keygen", "--public", &shown], &[]);
    assert_eq!(String::from_utf8_lossy(&seen.stdout), public);
    let other = scratch.path().join("other.key");
    let other = ringd(&["keygen", &other.display().to_string()], &[]);
    assert_ne!(String::from_utf8_lossy(&other.stdout), public);
}

#[test]
fn an_output_that_takes_nothing_is_told() {
    let scratch = Scratch::new();
    let path = scratch.path().join("host.key");
    let shown = path.display().to_string();
    let listening = "tunnel --url http://h:1 --port 1 --token t --local 127.0.0.1:0";
    let listening: Vec<&str> = listening.split(' ').collect();
    let again = format!("`ringd keygen --public {shown}` prints it");
    for (words, why) in [
        (&["keygen", &shown][..], again.as_str()),
        (&listening, "standard output does not take"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringd"));
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(File::create("/dev/full").expect("every Linux has it"))
            .stderr(Stdio::piped());
        let output = finished(command.spawn().expect("it starts"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.contains(why), "{words:?}: {told}");
    }
    assert!(path.exists(), "the key is kept");
}

#[test]
fn the_public_half_is_the_contracts() {
    let scratch = Scratch::new();
    for [private, public] in [GUEST, HOST] {
        let path = scratch.path().join(&public[..3]);
        private_file(&path, private);
        let shown = ringd(&["keygen", "--public", &path.display().to_string()], &[]);
        assert_eq!(String::from_utf8_lossy(&shown.stdout).trim_end(), public);
    }
}

#[test]
fn the_help_lists_every_option() {
    let output = ringd(&["help"], &[]);
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "ringd tunnel",
        "ringd keygen",
        "--url",
        "--port",
        "--unix",
        "--local",
        "--token-file",
        "--verify",
        "--host-key-file",
        "--guest-key",
        "--protocol",
        "TLS",
    ] {
        assert!(help.contains(word), "{word} is missing:\n{help}");
    }
}

fn tokens_come_from_files_and_from_the_environment(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::answer_at_the_end();
    let (url, port) = (url(&daemon), service.port().to_string());
    let scratch = Scratch::new();
    let path = scratch.path().join("token");
    private_file(&path, TOKEN);
    let path = path.display().to_string();
    let words = [
        "tunnel",
        "--driver",
        driver.flag(),
        "--url",
        &url,
        "--port",
        &port,
        "--local",
        "-",
    ];
    let from_file = ringd(&[&words[..], &["--token-file", &path]].concat(), &[]);
    let from_environment = ringd(&words, &[("RINGD_TOKEN", TOKEN)]);
    for output in [from_file, from_environment] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"0 bytes:");
    }
}

fn a_taken_address_is_told(driver: Driver) {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let plan = Plan::blank(driver)
        .option("--url", "http://h:1")
        .option("--token", "t");
    let output = plan
        .option("--port", "1")
        .option("--local", &address)
        .run(b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&address) && told.contains("in use"), "{told}");
}
