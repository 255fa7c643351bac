//! A blocking client: one request at a time over one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::peer::TOKEN;

/// Nothing takes that long; without it a test that fails would hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
    /// Field lines that every request carries.
    pub(crate) fields: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self {
            stream: BufReader::new(stream),
            fields: format!("authorization: Bearer {TOKEN}\r\n"),
        }
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "", b"")
    }

    /// The bytes of a GET that must succeed.
    pub(crate) fn bytes(&mut self, target: &str) -> Vec<u8> {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.body
    }

    pub(crate) fn post(&mut self, target: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let field = "content-type: application/json\r\n";
        self.ask("POST", target, field, body.as_bytes())
    }

    /// `fields` are whole lines.
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> Answer {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: peer\r\n{}{fields}content-length: {}\r\n\r\n",
            self.fields,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        self.stream.get_mut().write_all(&request).expect("a write");
        self.answer(method == "HEAD")
    }

    fn answer(&mut self, is_head_only: bool) -> Answer {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let count = self.stream.read_line(&mut head).expect("a head");
            assert!(count > 0, "the connection ended in the head {head:?}");
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut answer = Answer {
            status: status.expect("a status"),
            head,
            body: Vec::new(),
        };
        if is_head_only || answer.status == 204 {
            return answer;
        }
        if answer.field("transfer-encoding") == Some("chunked") {
            let start = Instant::now();
            while let Some(chunk) = self.chunk() {
                // Signs of life keep a stream of events going for ever.
                assert!(start.elapsed() < PATIENCE, "no end: {}", answer.text());
                answer.body.extend_from_slice(&chunk);
            }
        } else {
            let length = answer
                .field("content-length")
                .and_then(|text| text.parse().ok());
            answer.body = vec![0; length.expect("a length")];
            self.stream.read_exact(&mut answer.body).expect("a body");
        }
        answer
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a chunk");
        let length = usize::from_str_radix(line.trim(), 16).expect("a chunk's length");
        let mut chunk = vec![0; length + 2];
        self.stream.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Bytes that do not repeat for a long time, so that a lost or doubled part shows.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut word: u32 = 1;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}
