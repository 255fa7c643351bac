//! Targets as they are named on the command line.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;

/// What a daemon understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// The guest HTTP contract.
    Guest,
    /// Files by their path below the work directory, as a web server does it; `/v1/health` answers.
    Plain,
    /// The loops of `baseline bare`: the physical limit, no service.
    Bare,
}

/// A target that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) source: Source,
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// It runs already.
    Running {
        address: SocketAddr,
        token: String,
        /// Its process, where it runs on this machine.
        pid: Option<Pid>,
    },
    /// We start it: program and arguments. `{port}`, `{dir}` and `{token}` are filled in.
    Command(Vec<String>),
}

impl Spec {
    /// `NAME=URL[,TOKEN[,pid=N]]`.
    pub(crate) fn running(text: &str) -> Result<Self> {
        let (name, rest) = named(text, "NAME=URL,TOKEN")?;
        let mut parts = rest.split(',');
        let url = parts.next().unwrap_or_default();
        let address = address(url).with_context(|| format!("target {name}"))?;
        let mut token = String::new();
        let mut pid = None;
        for part in parts {
            match part.strip_prefix("pid=") {
                None => part.clone_into(&mut token),
                Some(number) => {
                    let raw = number.parse().ok().and_then(Pid::from_raw);
                    pid = Some(raw.with_context(|| {
                        format!("target {name}: {number:?} is no process number")
                    })?);
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            dialect: Dialect::Guest,
            source: Source::Running {
                address,
                token,
                pid,
            },
        })
    }

    /// `NAME=COMMAND`, split into words as a shell does it.
    pub(crate) fn spawned(text: &str) -> Result<Self> {
        let (name, command) = named(text, "NAME='COMMAND'")?;
        let words =
            shell_words::split(command).with_context(|| format!("command of {name}: {command}"))?;
        ensure!(!words.is_empty(), "{name} has no command");
        Ok(Self {
            name: name.to_owned(),
            dialect: Dialect::Guest,
            source: Source::Command(words),
        })
    }

    /// A ringd of ours.
    pub(crate) fn ringd(name: &str, program: &str) -> Self {
        let words = [program, "serve", "--listen", "127.0.0.1:0"];
        let words = [&words[..], &["--max-body-bytes", MAX_BODY]].concat();
        Self::of_words(name, Dialect::Guest, &words)
    }

    /// One that is started with `words`.
    pub(crate) fn of_words(name: &str, dialect: Dialect, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned());
        Self {
            name: name.to_owned(),
            dialect,
            source: Source::Command(words.collect()),
        }
    }

    /// True when we start it, so that a fresh one can be had.
    pub(crate) fn is_spawned(&self) -> bool {
        matches!(self.source, Source::Command(_))
    }
}

fn named<'a>(text: &'a str, shape: &str) -> Result<(&'a str, &'a str)> {
    let Some((name, rest)) = text.split_once('=') else {
        bail!("{text:?} is not of the form {shape}");
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    ensure!(
        !name.is_empty() && name.bytes().all(plain),
        "a target's name has letters, digits, dots, dashes and underscores, not {name:?}"
    );
    Ok((name, rest))
}

fn address(url: &str) -> Result<SocketAddr> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("{url:?} is no http:// URL");
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    ensure!(
        path.is_empty(),
        "{url:?} has a path: the routes begin at the root"
    );
    let with_port = match authority.parse::<SocketAddr>() {
        Ok(address) => return Ok(address),
        Err(_) if authority.contains(':') => authority.to_owned(),
        Err(_) => format!("{authority}:80"),
    };
    let mut found = with_port
        .to_socket_addrs()
        .with_context(|| format!("{authority:?} cannot be found"))?;
    found
        .next()
        .with_context(|| format!("{authority:?} has no address"))
}

/// No transfer of ours is larger.
const MAX_BODY: &str = "17179869184";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_target_has_an_address_and_perhaps_token_and_process() {
        let spec = Spec::running("a=http://127.0.0.1:8700/,secret,pid=12").expect("it is right");
        let Source::Running {
            address,
            token,
            pid,
        } = spec.source
        else {
            panic!("it runs")
        };
        assert_eq!(address, ([127, 0, 0, 1], 8700).into());
        assert_eq!((spec.name.as_str(), token.as_str()), ("a", "secret"));
        assert_eq!(pid, Pid::from_raw(12));
    }

    #[test]
    fn wrong_targets_are_refused_by_name() {
        for (text, named) in [
            ("http://x", "NAME=URL"),
            ("a=https://x", "http://"),
            ("a=http://127.0.0.1:1/v1", "path"),
            ("a b=http://127.0.0.1:1", "a b"),
            ("a=http://127.0.0.1:1,t,pid=zero", "zero"),
        ] {
            let error = Spec::running(text).expect_err(text);
            assert!(format!("{error:#}").contains(named), "{error:#}");
        }
        assert!(Spec::spawned("a=").is_err());
        assert!(Spec::spawned("a='x").is_err());
    }

    #[test]
    fn a_command_is_split_as_a_shell_does_it() {
        let spec = Spec::spawned("a=ringd serve --x 'a b'").expect("it is right");
        let Source::Command(words) = spec.source else {
            panic!("it is started")
        };
        assert_eq!(words, ["ringd", "serve", "--x", "a b"]);
    }
}
