//! A tiny server that speaks as much of the guest HTTP contract as is asked for here, on threads; it may lie.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What was asked, of whom, in the order in which it came: name of the server, method and target.
pub(crate) type Journal = Arc<Mutex<Vec<(String, String)>>>;

/// One server. It listens until the test ends.
pub(crate) struct StandIn {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
}

/// How a server is.
pub(crate) struct Nature {
    pub(crate) token: &'static str,
    /// It waits for its token, as after a start.
    pub(crate) is_new: bool,
    /// One byte of every larger file is wrong.
    pub(crate) lies: bool,
    /// Its files are its own: it does not see those of this machine.
    pub(crate) is_remote: bool,
    pub(crate) journal: Journal,
    /// Called after a request was noted, before it is answered.
    pub(crate) watch: Box<dyn Fn(&str) + Send + Sync>,
}

impl Default for Nature {
    fn default() -> Self {
        Self {
            token: TOKEN,
            is_new: false,
            lies: false,
            is_remote: false,
            journal: Journal::default(),
            watch: Box::new(|_| ()),
        }
    }
}

/// What `ringbench` gives the servers that it starts.
pub(crate) const TOKEN: &str = "ringbench-token";

impl StandIn {
    /// An honest one that notes in `journal` what it is asked.
    pub(crate) fn noted(name: &'static str, journal: &Journal) -> Self {
        let journal = Arc::clone(journal);
        let nature = Nature {
            journal,
            ..Nature::default()
        };
        Self::start(name, nature)
    }

    pub(crate) fn start(name: &'static str, nature: Nature) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let state = State {
            name,
            token: Mutex::new((!nature.is_new).then(|| nature.token.to_owned())),
            files: Mutex::default(),
            nature,
        };
        let state = Arc::new(state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                // A connection that breaks is the client's affair.
                std::thread::spawn(move || drop(state.converse(stream)));
            }
        });
        Self { name, address }
    }

    /// The word for `--target`.
    pub(crate) fn running(&self) -> String {
        format!("{}=http://{},{TOKEN}", self.name, self.address)
    }

    /// The word for `--spawn`: a process that says where this server listens, and leaves its id in `pid_file`.
    pub(crate) fn spawned(&self, pid_file: &Path) -> String {
        format!(
            "{}=sh -c 'echo $$ >{}; echo listening tcp://{}; exec sleep 600'",
            self.name,
            pid_file.display(),
            self.address
        )
    }
}

struct State {
    name: &'static str,
    /// Nothing while it waits for one.
    token: Mutex<Option<String>>,
    files: Mutex<HashMap<String, Vec<u8>>>,
    nature: Nature,
}

impl State {
    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let length = field(&head, "content-length").map_or(0, |value| {
                value.parse().expect("a length that the harness sent")
            });
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let line = head.lines().next().unwrap_or_default();
            let asked = line.trim_end_matches(" HTTP/1.1");
            let entry = (self.name.to_owned(), asked.to_owned());
            self.nature
                .journal
                .lock()
                .expect("no test panicked")
                .push(entry);
            (self.nature.watch)(asked);
            let (status, answer) = self.answer(asked, &head, body);
            let length = match status {
                204 => String::new(),
                _ => format!("content-length: {}\r\n", answer.len()),
            };
            write!(stream, "HTTP/1.1 {status} Such\r\n{length}\r\n")?;
            stream.write_all(&answer)?;
        }
    }

    fn answer(&self, asked: &str, head: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut token = self.token.lock().expect("no test panicked");
        if asked == "GET /v1/health" {
            let health = serde_json::json!({ "bootstrapped": token.is_some(), "version": "1.2" });
            return (200, health.to_string().into());
        }
        if asked == "POST /aws/lambda-microvms/runtime/v1/run" {
            *token = agent_token(&body);
            return (200, b"{}".into());
        }
        let given = field(head, "authorization");
        let known = token.as_ref().map(|token| format!("Bearer {token}"));
        if known.is_none() || given != known.as_deref() {
            return (401, b"who are you?".into());
        }
        match asked.split_once("/v1/fs/file?path=") {
            Some(("GET ", path)) => self
                .read(path)
                .map_or((404, Vec::new()), |bytes| (200, bytes)),
            Some(("PUT ", path)) => {
                let mut files = self.files.lock().expect("no test panicked");
                files.insert(path.to_owned(), body);
                (204, Vec::new())
            }
            _ if asked == "POST /v1/exec/start" => (200, b"{}".into()),
            _ => (404, b"no such route".into()),
        }
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = match self.nature.is_remote {
            true => self
                .files
                .lock()
                .expect("no test panicked")
                .get(path)?
                .clone(),
            false => std::fs::read(path).ok()?,
        };
        if self.nature.lies && bytes.len() > 4096 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        Some(bytes)
    }
}

/// The token in the body of a run hook (guest HTTP contract, section 3).
fn agent_token(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let payload: serde_json::Value = serde_json::from_str(body["runHookPayload"].as_str()?).ok()?;
    Some(payload["agent_token"].as_str()?.to_owned())
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    Some(
        fields
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?
            .1,
    )
}
