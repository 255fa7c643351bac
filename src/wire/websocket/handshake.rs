//! The opening handshake (RFC 6455, section 4.2): what a request must say to become a WebSocket, and what is answered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tungstenite::handshake::derive_accept_key;

use crate::error::{Error, Kind, Result};
use crate::wire::http::head::Fields;

/// Checks the fields of an upgrade request, and tells those of the answer (names in lower case).
///
/// `protocol` is the one subprotocol that is spoken: it is selected when it is offered. Extensions never are.
///
/// # Errors
/// `Malformed`, with the version that is spoken.
pub fn check(fields: &Fields, protocol: &'static str) -> Result<Vec<(&'static str, String)>> {
    if !fields.lists("connection", "upgrade") {
        return Err(refused("the connection field does not say upgrade"));
    }
    if !fields.lists("upgrade", "websocket") {
        return Err(refused("the upgrade field does not say websocket"));
    }
    if only(fields, "sec-websocket-version") != Some(VERSION.as_bytes()) {
        return Err(refused("sec-websocket-version is not 13"));
    }
    let key = only(fields, "sec-websocket-key");
    let key = key.ok_or_else(|| refused("sec-websocket-key is missing, or there twice"))?;
    if STANDARD.decode(key).map(|nonce| nonce.len()) != Ok(NONCE) {
        return Err(refused("sec-websocket-key is not 16 bytes in base64"));
    }
    let mut answer = vec![("sec-websocket-accept", derive_accept_key(key))];
    let offered = fields.all("sec-websocket-protocol");
    let mut offered = offered.flat_map(|list| list.split(|byte| *byte == b','));
    // Names of subprotocols are compared as they are written.
    if offered.any(|name| name.trim_ascii() == protocol.as_bytes()) {
        answer.push(("sec-websocket-protocol", protocol.to_owned()));
    }
    Ok(answer)
}

/// The value of a field that stands once.
fn only<'a>(fields: &'a Fields, name: &'a str) -> Option<&'a [u8]> {
    let mut values = fields.all(name);
    let first = values.next()?;
    values.next().is_none().then(|| first.trim_ascii())
}

fn refused(why: &'static str) -> Error {
    Kind::Malformed
        .told(why)
        .with_field("sec-websocket-version", VERSION)
}

const VERSION: &str = "13";
/// Bytes of the number that a client makes up for each handshake.
const NONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Limits, Step, parse};

    const RIGHT: &[(&str, &str)] = &[
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "WebSocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn checked(fields: &[(&str, &str)]) -> Result<Vec<(&'static str, String)>> {
        let lines = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", lines.collect::<String>());
        let limits = Limits {
            bytes: 4096,
            fields: 20,
            target: 100,
        };
        match parse(text.as_bytes(), &limits) {
            Ok(Step::Done(head, _)) => check(&head.fields, "right"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        // RFC 6455, section 1.3.
        let answer = checked(RIGHT).expect("it is right");
        assert_eq!(
            answer,
            [(
                "sec-websocket-accept",
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()
            )]
        );
    }

    #[test]
    fn the_subprotocol_is_selected_when_it_is_offered() {
        for (offer, is_selected) in [
            (&["right"][..], true),
            (&["other, right"], true),
            (&["other", "x,right ,y"], true),
            (&["Right", "right.more", ""], false),
        ] {
            let mut fields = RIGHT.to_vec();
            fields.extend(offer.iter().map(|value| ("sec-websocket-protocol", *value)));
            let answer = checked(&fields).expect("it is right");
            let selected = answer
                .iter()
                .any(|(name, value)| *name == "sec-websocket-protocol" && value == "right");
            assert_eq!(selected, is_selected, "{offer:?}");
        }
    }

    #[test]
    fn whatever_is_missing_or_wrong_is_named() {
        for (at, wrong) in [
            (0, "keep-alive"),
            (1, "h2c"),
            (2, "8"),
            (2, "13, 8"),
            (3, ""),
            (3, "dGhlIHNhbXBsZSBub25jZQ"),
            (3, "c2hvcnQ="),
        ] {
            let mut fields = RIGHT.to_vec();
            fields[at].1 = wrong;
            let error = checked(&fields).expect_err(wrong);
            let name = RIGHT[at].0.to_ascii_lowercase();
            assert!(error.sentence().contains(&name), "{error}");
            assert_eq!(error.kind(), Kind::Malformed);
            assert_eq!(error.fields(), [("sec-websocket-version", "13".to_owned())]);
            fields.remove(at);
            assert!(checked(&fields).is_err(), "without {name}");
        }
        let twice = [RIGHT, &RIGHT[3..]].concat();
        assert!(checked(&twice).is_err(), "two keys");
    }
}
