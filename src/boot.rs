//! The one-shot bootstrap: the token, the launch environment and the identity material, installed together.

use std::cell::RefCell;
use std::rc::Rc;

/// What the winning run hook brings.
pub struct Launch {
    /// The bearer token, not empty.
    pub token: String,
    /// The base environment of every later exec, in the order given.
    pub environment: Vec<(String, String)>,
    /// The keys of verified tunnels.
    pub identity: Option<Identity>,
}

/// Key material of a verified tunnel; it is never logged, answered or handed to a child.
#[derive(Clone)]
pub struct Identity {
    /// The guest's static private key (X25519).
    pub seed: [u8; 32],
    /// The static public key of the host that may connect.
    pub host_public_key: [u8; 32],
}

/// What became of an attempt to install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It was the first; everything is in force now.
    Now,
    /// The same token was there already; nothing changed.
    Before,
    /// Another token is there; nothing changed.
    Refused,
}

/// Whether a presented credential opens a bearer route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Granted,
    /// A token is installed and this is not it.
    Denied,
    /// No token is installed.
    NotBootstrapped,
}

/// The state of the bootstrap: empty, then filled once.
#[derive(Default)]
pub struct Boot {
    token: RefCell<Option<Rc<str>>>,
    environment: RefCell<Rc<Vec<(String, String)>>>,
    identity: RefCell<Option<Identity>>,
}

impl Boot {
    /// Installs everything at once, or nothing.
    pub fn install(&self, launch: Launch) -> Installed {
        let mut token = self.token.borrow_mut();
        match &*token {
            Some(held) if is_same(held.as_bytes(), launch.token.as_bytes()) => Installed::Before,
            Some(_) => Installed::Refused,
            None => {
                *token = Some(launch.token.into());
                *self.environment.borrow_mut() = Rc::new(launch.environment);
                *self.identity.borrow_mut() = launch.identity;
                Installed::Now
            }
        }
    }

    /// Judges the value of an authorization field (RFC 6750, section 2.1): the scheme in any case, one space, and
    /// everything behind it is the token.
    pub fn permits(&self, presented: Option<&[u8]>) -> Verdict {
        let token = self.token.borrow();
        let Some(held) = &*token else {
            return Verdict::NotBootstrapped;
        };
        let space = presented.and_then(|value| value.iter().position(|byte| *byte == b' '));
        let token = presented.zip(space).and_then(|(value, at)| {
            let (scheme, rest) = value.split_at(at);
            scheme.eq_ignore_ascii_case(b"bearer").then(|| &rest[1..])
        });
        match token {
            Some(token) if is_same(token, held.as_bytes()) => Verdict::Granted,
            _ => Verdict::Denied,
        }
    }

    /// True once a token is installed.
    pub fn is_done(&self) -> bool {
        self.token.borrow().is_some()
    }

    /// The launch environment; empty before the bootstrap.
    pub fn environment(&self) -> Rc<Vec<(String, String)>> {
        Rc::clone(&self.environment.borrow())
    }

    /// The keys of verified tunnels, if this guest was launched with them.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.borrow().clone()
    }
}

/// Compares without telling by the time taken where the difference is; only the lengths may be told.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let pairs = left.iter().zip(right);
    let difference = pairs.fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(token: &str, value: &str) -> Launch {
        Launch {
            token: token.into(),
            environment: vec![("KEY".into(), value.into())],
            identity: None,
        }
    }

    fn permits(value: Option<&str>) -> Verdict {
        let boot = Boot::default();
        boot.install(launch("tok", "1"));
        boot.permits(value.map(str::as_bytes))
    }

    #[test]
    fn the_first_launch_wins_and_a_replay_changes_nothing() {
        let boot = Boot::default();
        assert_eq!(boot.install(launch("tok", "1")), Installed::Now);
        assert_eq!(boot.install(launch("tok", "2")), Installed::Before);
        assert_eq!(boot.install(launch("other", "3")), Installed::Refused);
        assert_eq!(boot.environment()[0].1, "1");
    }

    #[test]
    fn nothing_is_permitted_before_the_bootstrap() {
        let verdict = Boot::default().permits(Some(b"Bearer tok"));
        assert_eq!(verdict, Verdict::NotBootstrapped);
    }

    #[test]
    fn the_token_is_all_that_follows_one_space() {
        assert_eq!(permits(Some("Bearer tok")), Verdict::Granted);
        assert_eq!(permits(Some("bEARER tok")), Verdict::Granted);
        for value in [
            "Bearer  tok",
            "Bearer tok2",
            "Bearer to",
            "Basic tok",
            "Bearertok",
            "Bearer",
        ] {
            assert_eq!(permits(Some(value)), Verdict::Denied, "{value}");
        }
        assert_eq!(permits(None), Verdict::Denied);
    }
}
