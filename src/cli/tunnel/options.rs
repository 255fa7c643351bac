//! The command line of `ringd tunnel`.

use std::path::Path;

use zeroize::Zeroizing;

use super::url::Url;
use crate::cli::key;
use crate::config::Address;
use crate::ring::Choice;
use crate::tunnel::secure::{HostKeys, Protocol};
use crate::wire::http::query;

/// What one run is to do.
pub(super) struct Options {
    pub(super) url: Url,
    pub(super) target: Target,
    pub(super) local: Local,
    pub(super) token: String,
    pub(super) verified: Option<(HostKeys, Protocol)>,
    pub(super) driver: Choice,
}

/// Where a tunnel ends, inside the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A port of 127.0.0.1.
    Port(u16),
    /// A Unix socket that the daemon allows.
    Unix(String),
}

/// Where a tunnel begins, on this side.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Local {
    /// One tunnel for each connection that is accepted there.
    Listen(Address),
    /// One tunnel for standard input and output.
    Standard,
}

/// What the help says of `ringd tunnel`: the option, what it takes, what it does.
pub(in crate::cli) const OPTIONS: &[(&str, &str, &str)] = &[
    (
        "url",
        "URL",
        "the daemon: http://HOST:PORT[/PREFIX] or unix:///PATH; for https put a TLS proxy (stunnel, socat) in front",
    ),
    (
        "port",
        "PORT",
        "the port of 127.0.0.1 in the guest that tunnels lead to",
    ),
    (
        "unix",
        "PATH",
        "a Unix socket of the guest instead of a port; the daemon must allow it",
    ),
    (
        "local",
        "ADDRESS",
        "where to accept connections: HOST:PORT, unix:///PATH or fd://N; `-` is one tunnel for standard input and output",
    ),
    (
        "token",
        "TOKEN",
        "the bearer token; others on this machine can see it in the process list",
    ),
    (
        "token-file",
        "FILE",
        "a file with the token; without either option RINGD_TOKEN is read",
    ),
    (
        "verify",
        "",
        "only tunnels in which host and guest have proved their keys, and every byte is encrypted",
    ),
    (
        "host-key-file",
        "FILE",
        "our private key, as `ringd keygen` makes it; with --verify",
    ),
    (
        "guest-key",
        "KEY",
        "the guest's public key in base64; with --verify",
    ),
    (
        "protocol",
        "1|2",
        "the handshake of --verify: 2, or 1 for daemons that are older than it (default 2)",
    ),
    ("driver", "auto|uring|epoll", "as for serve (default auto)"),
];

/// The help of `ringd tunnel`.
pub(super) fn help() -> String {
    let mut text = String::from(
        "ringd tunnel: carries connections of this machine to a port inside a guest.\n\n\
         usage: ringd tunnel OPTIONS\n\n\
         options:\n",
    );
    for (name, takes, about) in OPTIONS {
        text.push_str(format!("  --{name} {takes}").trim_end());
        text.push_str(&format!("\n      {about}\n"));
    }
    text
}

impl Options {
    /// Reads the command line; `variable` looks up the environment.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(super) fn read(
        arguments: &[String],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let given = Given::read(arguments)?;
        let target = match (given.value("port"), given.value("unix")) {
            (Some(port), None) => Target::Port(parse_port(port)?),
            (None, Some(path)) if path.starts_with('/') => Target::Unix(path.to_owned()),
            (None, Some(path)) => return Err(format!("--unix {path:?} is not an absolute path")),
            (Some(_), Some(_)) => return Err("--port and --unix exclude each other".into()),
            (None, None) => return Err("--port is missing: it names where tunnels lead".into()),
        };
        let verified = given.verified()?;
        let url = given.required("url")?;
        let local = given.required("local")?;
        Ok(Self {
            url: url.parse().map_err(|why| format!("--url {url:?}: {why}"))?,
            target,
            local: match local {
                "-" => Local::Standard,
                address => Local::Listen(address.parse().map_err(|why| format!("--local: {why}"))?),
            },
            token: given.token(variable)?,
            verified,
            driver: given
                .value("driver")
                .unwrap_or("auto")
                .parse()
                .map_err(|()| "--driver is none of auto, uring, epoll".to_owned())?,
        })
    }

    /// The request target of a tunnel.
    pub(super) fn route(&self) -> String {
        let target = match &self.target {
            Target::Port(port) => format!("port={port}"),
            Target::Unix(path) => format!("unix={}", query::escaped(path)),
        };
        let identity = match self.verified {
            Some(_) => "&identity=true",
            None => "",
        };
        format!("{}/v1/tcp?{target}{identity}", self.url.prefix)
    }

    /// The port that a verified handshake names.
    pub(super) fn port(&self) -> u16 {
        match self.target {
            Target::Port(port) => port,
            Target::Unix(_) => 0,
        }
    }
}

/// The options as they were given, each known and at most once.
struct Given<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Given<'a> {
    fn read(arguments: &'a [String]) -> Result<Self, String> {
        let mut given: Vec<(&str, &str)> = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flag) = argument.strip_prefix("--") else {
                return Err(format!("{argument:?} is not an option"));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let known = OPTIONS.iter().find(|(known, ..)| *known == name);
            let (name, takes, _) =
                known.ok_or_else(|| format!("--{name} is not an option of tunnel"))?;
            let value = match (takes.is_empty(), value) {
                (true, None) => "",
                (true, Some(_)) => return Err(format!("--{name} takes no value")),
                (false, Some(value)) => value,
                (false, None) => rest
                    .next()
                    .ok_or_else(|| format!("--{name} needs a value"))?,
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(format!("--{name} is given more than once"));
            }
            given.push((name, value));
        }
        Ok(Self(given))
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| *value)
    }

    fn required(&self, name: &str) -> Result<&'a str, String> {
        self.value(name)
            .ok_or_else(|| format!("--{name} is missing"))
    }

    fn token(&self, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let token = match (self.value("token"), self.value("token-file")) {
            (Some(_), Some(_)) => return Err("--token and --token-file exclude each other".into()),
            (Some(token), None) => token.to_owned(),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("--token-file {path}: {error}"))?;
                text.trim_end_matches(['\n', '\r']).to_owned()
            }
            (None, None) => variable("RINGD_TOKEN")
                .ok_or("there is no token: give --token-file or --token, or set RINGD_TOKEN")?,
        };
        if token.is_empty() {
            return Err("the token is empty".into());
        }
        if token.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("the token has a control character in it".into());
        }
        Ok(token)
    }

    fn verified(&self) -> Result<Option<(HostKeys, Protocol)>, String> {
        if self.value("verify").is_none() {
            // Half a wish for safety must not become a tunnel without it.
            let stray = ["host-key-file", "guest-key", "protocol"];
            return match stray.iter().find(|name| self.value(name).is_some()) {
                Some(name) => Err(format!("--{name} has a meaning with --verify only")),
                None => Ok(None),
            };
        }
        let needed = |name: &str| {
            let value = self.value(name);
            value.ok_or_else(|| format!("--verify needs --{name}"))
        };
        let private = needed("host-key-file")?;
        let guest: Zeroizing<[u8; 32]> = key::parse(needed("guest-key")?)
            .map_err(|why| format!("--guest-key is no key: {why}"))?;
        let private =
            key::private(Path::new(private)).map_err(|why| format!("--host-key-file: {why}"))?;
        let protocol = match self.value("protocol") {
            None | Some("2") => Protocol::Second,
            Some("1") => Protocol::First,
            Some(other) => return Err(format!("--protocol {other:?} is neither 1 nor 2")),
        };
        let keys = HostKeys {
            private_key: *private,
            guest_public_key: *guest,
        };
        Ok(Some((keys, protocol)))
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("--port {text:?} is not a number from 1 to 65535")),
        Ok(port) => Ok(port),
    }
}
