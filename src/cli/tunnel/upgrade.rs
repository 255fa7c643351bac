//! The opening handshake of a WebSocket, seen from the client (RFC 6455, section 4.1): text to send, answer to judge.

use serde_json::Value;

use crate::api::system::VERSION;
use crate::wire::base64;
use crate::wire::http::head::Step;
use crate::wire::websocket::client::accept_key;

/// A request for a WebSocket that waits for its answer.
pub(super) struct Upgrade {
    key: String,
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is a WebSocket from here on.
    Open,
    /// It is not; a body of this length follows, if it was told.
    Refused { status: u16, length: usize },
}

impl Upgrade {
    /// A request with the random bytes of its key; the second value is the request as it is sent.
    pub(super) fn new(random: [u8; 16], host: &str, route: &str, token: &str) -> (Self, String) {
        let mut key = Vec::new();
        base64::append(&mut key, &random);
        let key = String::from_utf8(key).expect("base64 is ASCII");
        let request = format!(
            "GET {route} HTTP/1.1\r\n\
             host: {host}\r\n\
             user-agent: ringd/{VERSION}\r\n\
             authorization: Bearer {token}\r\n\
             connection: upgrade\r\n\
             upgrade: websocket\r\n\
             sec-websocket-version: 13\r\n\
             sec-websocket-key: {key}\r\n\r\n"
        );
        (Self { key }, request)
    }

    /// Judges what has arrived so far.
    ///
    /// # Errors
    /// It is no answer to this request.
    pub(super) fn judge(&self, bytes: &[u8]) -> Result<Step<Answer>, String> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        let used = match head.parse(bytes) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if bytes.len() < MOST_HEAD => return Ok(Step::More),
            Ok(httparse::Status::Partial) => return Err("its answer has no end".into()),
            Err(error) => return Err(format!("its answer is not HTTP ({error})")),
        };
        let field = |name: &str| {
            let found = head.headers.iter();
            let mut found = found.filter(|field| field.name.eq_ignore_ascii_case(name));
            let value = found.next().map(|field| field.value.trim_ascii());
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        let status = head.code.unwrap_or_default();
        if status != 101 {
            let length = field("content-length").and_then(|text| text.parse().ok());
            let length = length.unwrap_or_default();
            return Ok(Step::Done(Answer::Refused { status, length }, used));
        }
        let names = |value: Option<&str>, token: &str| {
            let mut list = value.unwrap_or_default().split(',');
            list.any(|item| item.trim().eq_ignore_ascii_case(token))
        };
        if !names(field("upgrade"), "websocket") || !names(field("connection"), "upgrade") {
            return Err("it switches to something else than a WebSocket".into());
        }
        if field("sec-websocket-accept") != Some(&accept_key(self.key.as_bytes())) {
            return Err("it answers another client's request for a WebSocket".into());
        }
        // None was offered, so none may be chosen.
        for chosen in ["sec-websocket-extensions", "sec-websocket-protocol"] {
            if field(chosen).is_some_and(|value| !value.is_empty()) {
                return Err(format!("it chooses a {chosen} that was not offered"));
            }
        }
        Ok(Step::Done(Answer::Open, used))
    }
}

/// What a refusal says to the user: the status, and the reason if the body gives one.
pub(super) fn refusal(status: u16, body: &[u8]) -> String {
    let told = match serde_json::from_slice::<Value>(body) {
        Ok(error) => error["detail"].as_str().map(str::to_owned),
        Err(_) => None,
    };
    let told = told.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    // What a stranger sends must not steer a terminal.
    let shown: String = told
        .chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect();
    let why = match (status, shown.trim()) {
        (401, "") => "the token is not the one that is installed",
        (503, "") => "the guest has not got its token yet",
        (404, "") => "it has no tunnels",
        (_, "") => "it does not say why",
        (_, told) => told,
    };
    format!("the daemon refuses the tunnel with status {status}: {why}")
}

/// Bytes of an answer's head, at most.
const MOST_HEAD: usize = 16 * 1024;
const MOST_FIELDS: usize = 64;
/// Bytes of a refusal's body that are read.
pub(super) const MOST_BODY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn upgrade() -> Upgrade {
        Upgrade { key: KEY.into() }
    }

    fn answer(fields: &str) -> String {
        format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n")
    }

    fn good() -> String {
        answer(&format!(
            "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"
        ))
    }

    #[test]
    fn the_request_is_what_the_rfc_asks_for() {
        let (_, text) = Upgrade::new(*b"the sample nonce", "a:1", "/v1/tcp?port=5", "t o");
        assert!(text.starts_with("GET /v1/tcp?port=5 HTTP/1.1\r\nhost: a:1\r\n"));
        assert!(text.contains(&format!("\r\nsec-websocket-key: {KEY}\r\n")));
        assert!(text.contains("\r\nauthorization: Bearer t o\r\n"));
        assert!(text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn an_answer_opens_a_web_socket_wherever_it_is_cut() {
        let text = good();
        let bytes = [text.as_bytes(), b"\x82\x01x"].concat();
        for cut in 0..text.len() {
            assert!(
                matches!(upgrade().judge(&bytes[..cut]), Ok(Step::More)),
                "{cut}"
            );
        }
        match upgrade().judge(&bytes) {
            Ok(Step::Done(Answer::Open, used)) => assert_eq!(used, text.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let protocol = good().replace("Upgrade: W", "sec-websocket-protocol: x\r\nUpgrade: W");
        let extension = good().replace("Upgrade: W", "sec-websocket-extensions: x\r\nUpgrade: W");
        for (text, why) in [
            ("SSH-2.0-OpenSSH\r\n\r\n".to_owned(), "not HTTP"),
            (good().replace(ACCEPT, KEY), "another client"),
            (good().replace("WebSocket\r\n", "h2c\r\n"), "something else"),
            (good().replace(", Upgrade", ""), "something else"),
            (answer(""), "something else"),
            (protocol, "not offered"),
            (extension, "not offered"),
            (answer(&format!("a: {}", "x".repeat(MOST_HEAD))), "no end"),
        ] {
            let told = upgrade().judge(text.as_bytes()).expect_err(&text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn a_refusal_tells_the_daemons_reason() {
        let head = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 7\r\n\r\n";
        match upgrade().judge(head) {
            Ok(Step::Done(
                Answer::Refused {
                    status: 401,
                    length: 7,
                },
                used,
            )) => {
                assert_eq!(used, head.len());
            }
            other => panic!("{other:?}"),
        }
        for (status, body, expected) in [
            (401, "", "401: the token"),
            (503, "", "503: the guest has not got its token"),
            (
                400,
                r#"{"error":"malformed_request","detail":"port is missing"}"#,
                "400: port is missing",
            ),
            (400, "plain \x1b[31mtext\r\n", "400: plain [31mtext"),
            (500, "{}", "500: {}"),
        ] {
            let told = refusal(status, body.as_bytes());
            assert!(
                told.ends_with(expected) || told.contains(expected),
                "{told}"
            );
        }
    }
}
