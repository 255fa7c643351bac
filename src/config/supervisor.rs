//! What a supervisor such as systemd says in the environment: where to report (sd_notify(3)), how often to give a sign of
//! life (sd_watchdog_enabled(3)), and which sockets it has opened for us (sd_listen_fds(3)).

use std::path::PathBuf;
use std::time::Duration;

use super::{Ignored, Unusable};

/// What the supervisor wants and gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supervisor {
    /// Where to report to.
    pub notify: Option<Socket>,
    /// How long it waits for a sign of life before it ends us.
    pub watchdog: Option<Duration>,
    /// Listening sockets that it has handed over.
    pub handed: Vec<Handed>,
}

/// The name of a datagram socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A file.
    Path(PathBuf),
    /// A name in the abstract namespace (unix(7)), without its leading NUL.
    Abstract(String),
}

/// A descriptor that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Its number.
    pub fd: i32,
    /// What the supervisor calls it, by default the name of the socket unit.
    pub name: Option<String>,
}

/// Variables by which a supervisor speaks to its service, and to nobody that the service starts.
pub const VARIABLES: [&str; 7] = [
    NOTIFY_SOCKET,
    WATCHDOG_USEC,
    WATCHDOG_PID,
    LISTEN_PID,
    LISTEN_FDS,
    LISTEN_FDNAMES,
    "LISTEN_PIDFDID",
];

impl Supervisor {
    /// Reads the variables, for the process with the id `pid`: what is meant for another one is none of ours.
    ///
    /// # Errors
    /// Sockets were handed over in a way that is not understood: nobody would serve them.
    pub(super) fn read(
        variable: impl Fn(&str) -> Option<String>,
        pid: u32,
    ) -> Result<(Self, Vec<Ignored>), Unusable> {
        let mut ignored = Vec::new();
        let mut ignore = |why: String| ignored.push(Ignored(why));
        let notify = variable(NOTIFY_SOCKET).filter(|name| !name.is_empty());
        let notify = notify.and_then(|name| match socket(&name) {
            Some(socket) => Some(socket),
            None => {
                let form = "neither an absolute path nor an @name; nothing is reported";
                ignore(format!("{NOTIFY_SOCKET}: {name:?} is {form}"));
                None
            }
        });
        let watchdog = watchdog(&variable, pid).unwrap_or_else(|why| {
            ignore(format!("{why}; no sign of life is given"));
            None
        });
        let handed = handed(&variable, pid).map_err(Unusable)?;
        let supervisor = Self {
            notify,
            watchdog,
            handed,
        };
        Ok((supervisor, ignored))
    }

    /// What it calls the listener `address`, if it has handed that over.
    pub fn name_of(&self, address: &str) -> Option<&str> {
        let number: i32 = address.strip_prefix("fd://")?.parse().ok()?;
        let handed = self.handed.iter().find(|handed| handed.fd == number)?;
        handed.name.as_deref()
    }
}

fn socket(name: &str) -> Option<Socket> {
    match name.strip_prefix('@') {
        Some(rest) if !rest.is_empty() => Some(Socket::Abstract(rest.into())),
        None if name.starts_with('/') => Some(Socket::Path(name.into())),
        _ => None,
    }
}

fn watchdog(
    variable: &impl Fn(&str) -> Option<String>,
    pid: u32,
) -> Result<Option<Duration>, String> {
    let Some(text) = variable(WATCHDOG_USEC) else {
        return Ok(None);
    };
    if let Some(whose) = variable(WATCHDOG_PID)
        && number::<u32>(WATCHDOG_PID, &whose, "the id of a process")? != pid
    {
        return Ok(None);
    }
    match number(WATCHDOG_USEC, &text, "a number of microseconds")? {
        0 => Err(format!("{WATCHDOG_USEC}: 0 is no time")),
        micros => Ok(Some(Duration::from_micros(micros))),
    }
}

fn handed(variable: &impl Fn(&str) -> Option<String>, pid: u32) -> Result<Vec<Handed>, String> {
    let Some(whose) = variable(LISTEN_PID) else {
        return Ok(Vec::new());
    };
    if number::<u32>(LISTEN_PID, &whose, "the id of a process")? != pid {
        return Ok(Vec::new());
    }
    let Some(text) = variable(LISTEN_FDS) else {
        return Ok(Vec::new());
    };
    let count: i32 = number(LISTEN_FDS, &text, "a number of descriptors")?;
    if !(0..=MOST).contains(&count) {
        return Err(format!("{LISTEN_FDS}: {count} is not between 0 and {MOST}"));
    }
    let names = variable(LISTEN_FDNAMES).filter(|names| !names.is_empty());
    let names: Vec<&str> = names.iter().flat_map(|names| names.split(':')).collect();
    let fds = FIRST..FIRST + count;
    if !names.is_empty() && names.len() != fds.len() {
        let told = names.len();
        return Err(format!(
            "{LISTEN_FDNAMES}: {told} names for {count} descriptors"
        ));
    }
    let name = |at: usize| names.get(at).map(|name| (*name).to_owned());
    let handed = fds
        .enumerate()
        .map(|(at, fd)| Handed { fd, name: name(at) });
    Ok(handed.collect())
}

fn number<T: std::str::FromStr>(name: &str, text: &str, what: &str) -> Result<T, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("{name}: {text:?} is not {what}"))
}

const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";
const LISTEN_PID: &str = "LISTEN_PID";
const LISTEN_FDS: &str = "LISTEN_FDS";
const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";
/// The first descriptor that is handed over (SD_LISTEN_FDS_START).
const FIRST: i32 = 3;
/// Descriptors that may be handed over.
const MOST: i32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<(Supervisor, Vec<String>), String> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        match Supervisor::read(lookup, 77) {
            Ok((read, ignored)) => Ok((read, ignored.into_iter().map(|why| why.0).collect())),
            Err(Unusable(why)) => Err(why),
        }
    }

    #[track_caller]
    fn handed(variables: &[(&str, &str)]) -> Vec<(i32, Option<String>)> {
        let (read, ignored) = read(variables).expect("usable");
        assert_eq!(ignored, Vec::<String>::new());
        let pairs = read.handed.into_iter();
        pairs.map(|handed| (handed.fd, handed.name)).collect()
    }

    #[test]
    fn nothing_is_said_without_a_supervisor() {
        assert_eq!(read(&[]), Ok((Supervisor::default(), Vec::new())));
    }

    #[test]
    fn descriptors_are_counted_from_three_and_may_have_names() {
        let ours = [("LISTEN_PID", "77"), ("LISTEN_FDS", "2")];
        assert_eq!(handed(&ours), [(3, None), (4, None)]);
        let named = [&ours[..], &[("LISTEN_FDNAMES", "api:debug")]].concat();
        let (api, debug) = (Some("api".to_owned()), Some("debug".to_owned()));
        assert_eq!(handed(&named), [(3, api), (4, debug)]);
        assert_eq!(handed(&[("LISTEN_PID", "77"), ("LISTEN_FDS", "0")]), []);
    }

    #[test]
    fn what_is_meant_for_another_process_is_not_ours() {
        let others = [
            &[("LISTEN_PID", "78"), ("LISTEN_FDS", "2")][..],
            &[("LISTEN_PID", "78"), ("LISTEN_FDS", "x")],
            &[("LISTEN_FDS", "2")],
            &[("LISTEN_PID", "77")],
        ];
        for variables in others {
            assert_eq!(handed(variables), [], "{variables:?}");
        }
        let watched = [("WATCHDOG_USEC", "5000000"), ("WATCHDOG_PID", "78")];
        assert_eq!(read(&watched).expect("usable").0, Supervisor::default());
    }

    #[test]
    fn sockets_that_are_not_understood_are_an_error_that_names_the_variable() {
        let ours = ("LISTEN_PID", "77");
        for (variables, name) in [
            (
                vec![("LISTEN_PID", "me"), ("LISTEN_FDS", "1")],
                "LISTEN_PID",
            ),
            (vec![ours, ("LISTEN_FDS", "many")], "LISTEN_FDS"),
            (vec![ours, ("LISTEN_FDS", "-1")], "LISTEN_FDS"),
            (vec![ours, ("LISTEN_FDS", "257")], "LISTEN_FDS"),
            (
                vec![ours, ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "one")],
                "LISTEN_FDNAMES",
            ),
        ] {
            let why = read(&variables).expect_err(name);
            assert!(why.starts_with(&format!("{name}: ")), "{why}");
        }
    }

    #[test]
    fn a_report_goes_to_a_path_or_an_abstract_name() {
        let to = |name: &str| read(&[("NOTIFY_SOCKET", name)]).expect("usable");
        let path = Socket::Path("/run/notify".into());
        assert_eq!(to("/run/notify").0.notify, Some(path));
        let name = Socket::Abstract("a/b".into());
        assert_eq!(to("@a/b").0.notify, Some(name));
        assert_eq!(to(""), (Supervisor::default(), Vec::new()));
        for bad in ["relative", "@", "vsock:2:9999"] {
            let (read, ignored) = to(bad);
            assert_eq!(read.notify, None);
            assert!(ignored[0].contains("NOTIFY_SOCKET"), "{ignored:?}");
            assert!(ignored[0].contains(bad), "{ignored:?}");
        }
    }

    #[test]
    fn a_watchdog_has_a_time_or_there_is_none() {
        let watched = [("WATCHDOG_USEC", "2500000"), ("WATCHDOG_PID", "77")];
        let span = Some(Duration::from_millis(2500));
        for variables in [&watched[..], &watched[..1]] {
            assert_eq!(read(variables).expect("usable").0.watchdog, span);
        }
        for bad in [("WATCHDOG_USEC", "0"), ("WATCHDOG_USEC", "soon")] {
            let (read, ignored) = read(&[bad]).expect("usable");
            assert_eq!(read.watchdog, None);
            assert!(ignored[0].contains("WATCHDOG_USEC"), "{ignored:?}");
        }
    }

    #[test]
    fn a_listener_is_known_by_the_name_of_its_descriptor() {
        let named = [
            ("LISTEN_PID", "77"),
            ("LISTEN_FDS", "2"),
            ("LISTEN_FDNAMES", "api:debug"),
        ];
        let (read, _) = read(&named).expect("usable");
        assert_eq!(read.name_of("fd://4"), Some("debug"));
        assert_eq!(read.name_of("fd://5"), None);
        assert_eq!(read.name_of("tcp://127.0.0.1:4"), None);
    }
}
