//! Settings: where they come from, which one wins, what is said about a wrong one (contract section 1, D23, D24).

use std::collections::BTreeMap;

use crate::daemon::{Refusal, Setup};
use crate::driver::Driver;

both![
    the_defaults_are_those_of_the_contract,
    every_flag_is_also_a_variable,
    a_flag_wins_over_a_variable_and_ours_over_theirs,
    the_variables_of_the_reference_are_understood,
    a_wrong_flag_is_an_error_that_names_it,
    a_wrong_variable_of_ours_is_an_error_that_names_it,
    a_wrong_variable_of_theirs_is_a_warning_and_the_default,
    printing_the_settings_starts_nothing,
    no_setting_is_a_secret_that_is_printed,
];

/// A flag, a value that differs from its default, and how the value may be printed.
const FLAGS: [(&str, &str, &[&str]); 21] = [
    ("max-body-bytes", "12345", &["12345"]),
    ("max-output-bytes", "12345", &["12345"]),
    ("output-linger", "1.5", &["1.5"]),
    ("exec-ttl", "77", &["77"]),
    ("disk-reserve-bytes", "12345", &["12345"]),
    ("max-drain-bytes", "12345", &["12345"]),
    ("kill-grace", "2.5", &["2.5"]),
    ("max-tar-members", "12345", &["12345"]),
    ("max-tar-bytes", "12345", &["12345"]),
    ("drain-timeout", "3.5", &["3.5"]),
    ("terminate-hook", "ack", &["ack"]),
    ("head-timeout", "4.5", &["4.5"]),
    ("idle-timeout", "5.5", &["5.5"]),
    ("body-timeout", "6.5", &["6.5"]),
    ("max-head-bytes", "12345", &["12345"]),
    ("max-head-fields", "55", &["55"]),
    ("max-target-bytes", "1234", &["1234"]),
    ("max-connections", "55", &["55"]),
    ("unix-mode", "640", &["640", "0640", "0o640"]),
    ("spool-dir", "/var/tmp", &["/var/tmp"]),
    ("spool-memory-bytes", "12345", &["12345"]),
];

fn the_defaults_are_those_of_the_contract(driver: Driver) {
    let settings = printed(Setup::new(driver));
    let rows = [
        ("max-body-bytes", "536870912"),
        ("max-output-bytes", "8388608"),
        ("output-linger", "5"),
        ("exec-ttl", "900"),
        ("disk-reserve-bytes", "268435456"),
        ("max-drain-bytes", "65536"),
        ("kill-grace", "10"),
        ("max-tar-members", "100000"),
        ("max-tar-bytes", "8589934592"),
        ("drain-timeout", "30"),
        ("terminate-hook", "drain"),
        ("head-timeout", "30"),
        ("idle-timeout", "75"),
        ("max-head-bytes", "65536"),
        ("max-head-fields", "100"),
        ("max-target-bytes", "8192"),
    ];
    for (name, expected) in rows {
        let (value, source) = &settings[name];
        assert_eq!(number(value), number(expected), "{name}");
        assert_eq!(source, "default", "{name}");
    }
    let (listen, source) = &settings["listen"];
    assert!(listen.contains("127.0.0.1:9000"), "{listen}");
    assert_eq!(source, "default");
}

fn every_flag_is_also_a_variable(driver: Driver) {
    let mut by_flag = Setup::new(driver);
    let mut by_variable = Setup::new(driver);
    for (name, value, _) in FLAGS {
        by_flag = by_flag.flag(&format!("--{name}"), value);
        by_variable = by_variable.env(&variable(name), value);
    }
    let (by_flag, by_variable) = (printed(by_flag), printed(by_variable));
    for (name, _, shown) in FLAGS {
        let (value, source) = &by_flag[name];
        assert!(
            shown.iter().any(|shown| number(value) == number(shown)),
            "{name}: {value}"
        );
        assert_eq!(source, "flag", "{name}");
        let (again, source) = &by_variable[name];
        assert_eq!(again, value, "{name}");
        assert_eq!(*source, variable(name));
    }
}

fn a_flag_wins_over_a_variable_and_ours_over_theirs(driver: Driver) {
    let theirs = || Setup::new(driver).env("AGENTD_EXEC_TTL_SECS", "1");
    let ours = || theirs().env("RINGD_EXEC_TTL", "2");
    let flag = || ours().flag("--exec-ttl", "3");
    for (setup, value, source) in [
        (theirs(), "1", "AGENTD_EXEC_TTL_SECS"),
        (ours(), "2", "RINGD_EXEC_TTL"),
        (flag(), "3", "flag"),
    ] {
        let settings = printed(setup);
        let (found, from) = &settings["exec-ttl"];
        assert_eq!((number(found), from.as_str()), (number(value), source));
    }
}

fn the_variables_of_the_reference_are_understood(driver: Driver) {
    let rows = [
        ("AGENTD_MAX_BODY_BYTES", "max-body-bytes", "11"),
        ("AGENTD_MAX_OUTPUT_BYTES", "max-output-bytes", "12"),
        ("AGENTD_OUTPUT_LINGER_SECS", "output-linger", "13"),
        ("AGENTD_EXEC_TTL_SECS", "exec-ttl", "14"),
        ("AGENTD_DISK_RESERVE_BYTES", "disk-reserve-bytes", "15"),
    ];
    let mut setup = Setup::new(driver)
        .env("AGENTD_PORT", "9123")
        .env("AGENTD_LOG", "debug");
    for (theirs, _, value) in rows {
        setup = setup.env(theirs, value);
    }
    let settings = printed(setup);
    for (theirs, ours, value) in rows {
        let (found, source) = &settings[ours];
        assert_eq!((number(found), source.as_str()), (number(value), theirs));
    }
    assert!(
        settings["listen"].0.contains("0.0.0.0:9123"),
        "{:?}",
        settings["listen"]
    );
    assert_eq!(settings["listen"].1, "AGENTD_PORT");
    assert_eq!(
        settings["log"],
        ("debug".to_owned(), "AGENTD_LOG".to_owned())
    );
}

fn a_wrong_flag_is_an_error_that_names_it(driver: Driver) {
    let rows = [
        ("--max-body-bytes", "many"),
        ("--max-body-bytes", "-1"),
        ("--max-body-bytes", "1.5"),
        ("--max-body-bytes", ""),
        ("--max-body-bytes", "18446744073709551616"),
        ("--kill-grace", "soon"),
        ("--kill-grace", "-1"),
        ("--kill-grace", "nan"),
        ("--kill-grace", "inf"),
        ("--terminate-hook", "nonsense"),
        ("--driver", "nonsense"),
        ("--max-head-fields", "x"),
        ("--no-such-flag", "1"),
    ];
    for (flag, value) in rows {
        let refusal = Setup::new(driver).flag(flag, value).refused();
        assert_eq!(refusal.code, Some(2), "{flag} {value:?}: {refusal:?}");
        assert!(
            refusal.stderr.contains(flag),
            "{flag} {value:?}: {refusal:?}"
        );
        assert!(
            !refusal.stdout.contains("listening"),
            "{flag} {value:?}: {refusal:?}"
        );
    }
    // A flag without its value, and a word that is no flag.
    let refusal = Setup::new(driver).switch("--kill-grace").run_to_its_end();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    let refusal = Setup::new(driver).switch("surplus").refused();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    assert!(refusal.stderr.contains("surplus"), "{refusal:?}");
}

fn a_wrong_variable_of_ours_is_an_error_that_names_it(driver: Driver) {
    for (name, value) in [
        ("RINGD_MAX_BODY_BYTES", "many"),
        ("RINGD_KILL_GRACE", "soon"),
        ("RINGD_TERMINATE_HOOK", "nonsense"),
        ("RINGD_MAX_CONNECTIONS", "-1"),
        ("RINGD_UNIX_MODE", "rw"),
    ] {
        let refusal = Setup::new(driver).env(name, value).refused();
        assert_eq!(refusal.code, Some(2), "{name}: {refusal:?}");
        assert!(refusal.stderr.contains(name), "{name}: {refusal:?}");
    }
}

fn a_wrong_variable_of_theirs_is_a_warning_and_the_default(driver: Driver) {
    let wrong = [
        ("AGENTD_PORT", "99999", "listen"),
        ("AGENTD_MAX_BODY_BYTES", "many", "max-body-bytes"),
        ("AGENTD_EXEC_TTL_SECS", "-1", "exec-ttl"),
        ("AGENTD_OUTPUT_LINGER_SECS", "soon", "output-linger"),
        ("AGENTD_DISK_RESERVE_BYTES", "", "disk-reserve-bytes"),
    ];
    for (name, value, setting) in wrong {
        let setup = || Setup::new(driver).env(name, value);
        let settings = printed(setup());
        assert_eq!(settings[setting].1, "default", "{name}");
        let daemon = setup().listen("127.0.0.1:0").start();
        daemon.health();
        crate::process::wait_until("the warning is in the log", || {
            daemon.stderr().iter().any(|line| line.contains(name))
        });
    }
}

fn printing_the_settings_starts_nothing(driver: Driver) {
    let setup = Setup::new(driver);
    let socket = setup.path("socket");
    let refusal = setup
        .listen(format!("unix://{}", socket.display()))
        .switch("--print-config")
        .run_to_its_end();
    assert_eq!(refusal.code, Some(0), "{refusal:?}");
    assert!(!refusal.stdout.contains("listening"), "{refusal:?}");
    assert!(!socket.exists());
}

fn no_setting_is_a_secret_that_is_printed(driver: Driver) {
    let setup = Setup::new(driver)
        .env("SECRET", "s3cret")
        .env("AGENTD_UNKNOWN", "s3cret");
    let refusal = setup.switch("--print-config").run_to_its_end();
    assert!(
        !refusal.stdout.contains("s3cret") && !refusal.stderr.contains("s3cret"),
        "{refusal:?}"
    );
}

/// The lines `name = value (source)`, by name.
#[track_caller]
fn printed(setup: Setup) -> BTreeMap<String, (String, String)> {
    let refusal: Refusal = setup.switch("--print-config").run_to_its_end();
    assert_eq!(refusal.code, Some(0), "{refusal:?}");
    let lines = refusal.stdout.lines().map(|line| {
        let (name, rest) = line
            .split_once(" = ")
            .unwrap_or_else(|| panic!("not a setting: {line:?}"));
        let (value, source) = rest
            .rsplit_once(" (")
            .unwrap_or_else(|| panic!("no source: {line:?}"));
        let source = source
            .strip_suffix(')')
            .unwrap_or_else(|| panic!("no source: {line:?}"));
        (
            name.trim().replace('_', "-"),
            (value.to_owned(), source.to_owned()),
        )
    });
    lines.collect()
}

fn variable(flag: &str) -> String {
    format!("RINGD_{}", flag.replace('-', "_").to_uppercase())
}

/// A number without the unit and the zeroes that it may be printed with; anything else as it is.
fn number(text: &str) -> String {
    let bare = text.trim_end_matches('s').trim();
    bare.parse::<f64>()
        .map_or(text.to_owned(), |number| number.to_string())
}
