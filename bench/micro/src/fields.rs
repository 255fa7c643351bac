//! What stands in targets and header fields: queries, dictionaries, digests, entity tags.

use std::hint::black_box;

use ringd::api::digest;
use ringd::api::precondition::{Aim, Validators, Verdict, judge};
use ringd::wire::http::dictionary;
use ringd::wire::http::query::Query;

use crate::head::fields;
use crate::{Bench, Round};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "fields/query",
        bytes: QUERY.len(),
        prepare: query,
    },
    Bench {
        name: "fields/dictionary",
        bytes: DIGESTS.len(),
        prepare: dictionary,
    },
    Bench {
        name: "fields/digest-expected",
        bytes: 0,
        prepare: digest_expected,
    },
    Bench {
        name: "fields/digest-told",
        bytes: 0,
        prepare: digest_told,
    },
    Bench {
        name: "fields/etags",
        bytes: 0,
        prepare: etags,
    },
];

fn query() -> Round {
    Box::new(|| {
        let query = Query::parse(black_box(QUERY.as_bytes()));
        let one = |key| query.one(key).ok().flatten().map_or(0, |text| text.len());
        let makes_parents = query.flag("parents", false).is_ok_and(|given| given);
        assert!(makes_parents, "the switch is read");
        one("path") + one("mode") + query.all("exclude").count()
    })
}

fn dictionary() -> Round {
    Box::new(|| {
        let members = dictionary::parse(black_box(DIGESTS.as_bytes()));
        members.map_or(0, |members| members.len())
    })
}

fn digest_expected() -> Round {
    let fields = fields(&format!("Host: sandbox\r\nContent-Digest: {DIGESTS}\r\n"));
    Box::new(move || {
        let expected = digest::expected(black_box(&fields), "content-digest");
        let digest = expected.ok().flatten().and_then(|all| all.sha256);
        digest.map_or(0, |digest| digest.len())
    })
}

fn digest_told() -> Round {
    let digest = *b"0123456789abcdef0123456789ABCDEF";
    Box::new(move || digest::field(black_box(&digest)).len())
}

/// A client that holds three versions asks whether the file is one of them; it is the last.
fn etags() -> Round {
    let there = Validators {
        etag: Some("\"1f3a-10000-67c0ffee.1-67c0ffee.2\"".to_owned()),
        modified: Some(784_111_777),
    };
    let fields = fields(
        "Host: sandbox\r\nIf-None-Match: \"1f3a-ffff-67c0ff00.1-67c0ff00.2\", \
         \"1f3a-ffff-67c0ff01.1-67c0ff01.2\", W/\"1f3a-10000-67c0ffee.1-67c0ffee.2\"\r\n",
    );
    Box::new(move || {
        let verdict = judge(black_box(&fields), Aim::Read, Some(black_box(&there)));
        usize::from(verdict == Verdict::Unchanged)
    })
}

const QUERY: &str = "path=%2Fhome%2Fuser%2Fwith%20space%2Ba+b%2F%C3%A9t%C3%A9.txt&mode=0644&parents=true\
    &exclude=node_modules&exclude=.git&exclude=*.pyc";
const DIGESTS: &str = "md5=:AAAAAAAAAAAAAAAAAAAAAA==:;a=1, unixsum=5, \
    sha-256=:uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=:";
