//! Tests of the rules, as tables.

use super::Verdict::{Failed, Perform, Unchanged};
use super::*;
use crate::wire::http::head::{self, Limits, Step};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut head = b"GET / HTTP/1.1\r\n".to_vec();
    for (name, value) in lines {
        head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    let limits = Limits {
        fields: 100,
        bytes: 65536,
        target: 8192,
    };
    match head::parse(&head, &limits) {
        Ok(Step::Done(head, _)) => head.fields,
        _ => panic!("a head: {lines:?}"),
    }
}

fn there() -> Validators {
    Validators {
        etag: Some("\"a\"".into()),
        modified: Some(784_111_777),
    }
}

/// Checks the verdicts of a read, of a change, and of a change where nothing is.
#[track_caller]
fn check(lines: &[(&str, &str)], expected: [Verdict; 3]) {
    let fields = fields(lines);
    let found = [
        judge(&fields, Aim::Read, Some(&there())),
        judge(&fields, Aim::Change, Some(&there())),
        judge(&fields, Aim::Change, None),
    ];
    assert_eq!(found, expected, "{lines:?}");
}

#[test]
fn without_a_condition_everything_is_performed() {
    check(&[], [Perform; 3]);
    check(
        &[("if-range", "\"b\""), ("range", "bytes=0-0")],
        [Perform; 3],
    );
}

#[test]
fn if_match_wants_one_of_its_versions() {
    for (value, expected) in [
        ("\"a\"", [Perform, Perform, Failed]),
        ("*", [Perform, Perform, Failed]),
        ("\"b\", \"a\"", [Perform, Perform, Failed]),
        ("\"b\",,\t\"a\",", [Perform, Perform, Failed]),
        ("\"a-gzip\"", [Perform, Perform, Failed]),
        ("\"a-zstd\"", [Perform, Perform, Failed]),
        ("\"b\"", [Failed; 3]),
        ("\"b\", \"c\"", [Failed; 3]),
        ("\"a-br\"", [Failed; 3]),
        // The comparison is strong.
        ("W/\"a\"", [Failed; 3]),
        ("W/\"a-gzip\"", [Failed; 3]),
        ("a", [Failed; 3]),
        ("\"a", [Failed; 3]),
        ("", [Failed; 3]),
        ("\"*\"", [Failed; 3]),
    ] {
        check(&[("If-Match", value)], expected);
    }
    let two = [("if-match", "\"b\""), ("if-match", "\"a\"")];
    check(&two, [Perform, Perform, Failed]);
}

#[test]
fn if_none_match_wants_none_of_its_versions() {
    for (value, expected) in [
        ("\"a\"", [Unchanged, Failed, Perform]),
        ("W/\"a\"", [Unchanged, Failed, Perform]),
        ("*", [Unchanged, Failed, Perform]),
        ("\"b\", W/\"a\"", [Unchanged, Failed, Perform]),
        ("\"x,y\" , \"a\"", [Unchanged, Failed, Perform]),
        ("\"b\"", [Perform; 3]),
        // Another coding is another representation.
        ("\"a-gzip\"", [Perform; 3]),
        ("a", [Perform; 3]),
        ("\"b,\"a\"", [Perform; 3]),
        ("", [Perform; 3]),
    ] {
        check(&[("if-none-match", value)], expected);
    }
}

#[test]
fn dates_count_where_there_is_no_tag() {
    for (value, expected) in [
        (DATE, [Unchanged, Perform, Perform]),
        (AFTER, [Unchanged, Perform, Perform]),
        (
            "Sunday, 06-Nov-94 08:49:37 GMT",
            [Unchanged, Perform, Perform],
        ),
        (BEFORE, [Perform; 3]),
        ("yesterday", [Perform; 3]),
        ("", [Perform; 3]),
    ] {
        check(&[("if-modified-since", value)], expected);
    }
    for (value, expected) in [
        (DATE, [Perform; 3]),
        (AFTER, [Perform; 3]),
        ("yesterday", [Perform; 3]),
        (BEFORE, [Failed, Failed, Perform]),
    ] {
        check(&[("if-unmodified-since", value)], expected);
    }
    let twice = [("if-modified-since", DATE), ("if-modified-since", DATE)];
    check(&twice, [Perform; 3]);
}

#[test]
fn conditions_are_judged_in_order() {
    let (same, other) = ("\"a\"", "\"b\"");
    for (lines, expected) in [
        // A tag makes its date go unread.
        (
            [("if-match", same), ("if-unmodified-since", BEFORE)],
            [Perform, Perform, Failed],
        ),
        (
            [("if-none-match", other), ("if-modified-since", DATE)],
            [Perform; 3],
        ),
        // What must be there comes before what must not.
        ([("if-none-match", same), ("if-match", other)], [Failed; 3]),
        (
            [("if-none-match", same), ("if-match", same)],
            [Unchanged, Failed, Failed],
        ),
        (
            [("if-none-match", "*"), ("if-unmodified-since", BEFORE)],
            [Failed, Failed, Perform],
        ),
        (
            [("if-modified-since", DATE), ("if-unmodified-since", DATE)],
            [Unchanged, Perform, Perform],
        ),
    ] {
        check(&lines, expected);
    }
}

#[test]
fn what_has_no_validators_is_only_there() {
    let nothing_known = Validators::default();
    for (name, value, expected) in [
        ("if-match", "*", Perform),
        ("if-match", "\"a\"", Failed),
        ("if-none-match", "*", Unchanged),
        ("if-none-match", "\"a\"", Perform),
        ("if-modified-since", AFTER, Perform),
        ("if-unmodified-since", BEFORE, Perform),
    ] {
        let found = judge(&fields(&[(name, value)]), Aim::Read, Some(&nothing_known));
        assert_eq!(found, expected, "{name}: {value}");
    }
}
