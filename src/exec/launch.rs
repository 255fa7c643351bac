//! A start request, and what it becomes: a program with its arguments, environment and credentials.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::Duration;

use super::account::{self, Account, User};
use super::allowance::Allowance;
use super::terminal::{Input, Size};
use crate::error::{Error, Kind, Result};
use crate::ring::pool;

/// What the host asked to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The caller's name for the exec, not empty.
    pub id: String,
    /// The argument vector, or the lines of a script.
    pub command: Vec<String>,
    /// Whether a shell runs the command, and which.
    pub shell: Shell,
    /// Working directory; `None` is the daemon's.
    pub cwd: Option<String>,
    /// Environment of this exec; wins over the launch environment.
    pub env: BTreeMap<String, String>,
    /// User to run under.
    pub user: Option<Account>,
    /// Group to run under.
    pub group: Option<Account>,
    /// Running time after which the group is ended; `None` is never.
    pub timeout: Option<Duration>,
    /// True for a standard input that can be written to.
    pub stdin: bool,
    /// The size of the terminal that the child gets in place of pipes, if it gets one.
    pub terminal: Option<Size>,
    /// True to end what is left of the group when the child has ended.
    pub reap_group_on_exit: bool,
    /// True to begin with the environment that the daemon was started with.
    pub inherit_image_env: bool,
    /// What it may use.
    pub allowance: Allowance,
}

/// Which shell runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shell {
    /// None: the command is an argument vector.
    None,
    /// `/bin/sh`.
    Default,
    /// A name to search for, or an absolute path.
    Named(String),
}

/// The environments around every exec.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// What the host installed at bootstrap.
    pub launch: Rc<Vec<(String, String)>>,
    /// What the daemon was started with, without its own settings.
    pub image: Rc<Vec<(OsString, OsString)>>,
}

/// A launch with every name resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    pub(super) cwd: Option<CString>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Supplementary groups to set; `None` keeps the daemon's.
    pub(super) groups: Option<Vec<u32>>,
}

impl Launch {
    /// Resolves users, groups, the shell and the environment.
    ///
    /// # Errors
    /// `UnknownUser`, `UnknownGroup`, `UnknownShell`; `SpawnFailed` for a NUL byte in any text.
    pub(super) async fn resolve(&self, around: &Surroundings) -> Result<Program> {
        let who = self.credentials().await?;
        let env = self.environment(around, who.user.as_ref());
        let (path, argv) = match &self.shell {
            Shell::None => (None, self.command.clone()),
            Shell::Default => (Some(SHELL.to_owned()), self.script(SHELL)),
            Shell::Named(name) => {
                let path = find_shell(name, shell_directories(&env, around)).await?;
                (Some(path.clone()), self.script(&path))
            }
        };
        let candidates = match path {
            Some(path) => vec![path.into_bytes()],
            None => candidates(argv[0].as_bytes(), env.get(&b"PATH"[..])),
        };
        Ok(Program {
            candidates: texts(candidates)?,
            argv: texts(argv)?,
            envp: texts(env.into_iter().map(|(key, value)| {
                let mut text = key;
                text.push(b'=');
                text.extend(value);
                text
            }))?,
            cwd: self.cwd.as_deref().map(text).transpose()?,
            uid: who.user.as_ref().map(|user| user.uid),
            gid: who.gid,
            groups: who.groups,
        })
    }

    async fn credentials(&self) -> Result<Credentials> {
        let look_up = {
            let (user, group) = (self.user.clone(), self.group.clone());
            move || -> Result<(Option<User>, Option<u32>)> {
                let user = user.as_ref().map(account::user).transpose()?;
                let group = group.as_ref().map(account::group).transpose()?;
                Ok((user, group))
            }
        };
        let is_named = matches!(self.group, Some(Account::Name(_)));
        let (user, group) = if self.user.is_some() || is_named {
            pool::run(look_up).await??
        } else {
            look_up()?
        };
        let own_group = user.as_ref().and_then(|user| user.group);
        let sets_groups = user.is_some() && rustix::process::geteuid().is_root();
        Ok(Credentials {
            gid: group.or(own_group),
            groups: sets_groups.then(Vec::new),
            user,
        })
    }

    /// What the child reads from.
    pub(super) fn input(&self) -> Input {
        match (self.terminal, self.stdin) {
            (Some(size), _) => Input::Terminal(size),
            (None, true) => Input::Pipe,
            (None, false) => Input::Null,
        }
    }

    /// The layers of the environment, the later one wins: image, terminal, user, launch, request.
    fn environment(&self, around: &Surroundings, user: Option<&User>) -> Environment {
        let mut env = Environment::new();
        if self.inherit_image_env {
            env.extend(around.image.iter().map(|(key, value)| {
                let (key, value) = (key.as_bytes(), value.as_bytes());
                (key.to_vec(), value.to_vec())
            }));
        }
        if self.terminal.is_some() {
            env.insert(b"TERM".to_vec(), TERM.to_vec());
        }
        if let Some(row) = user.and_then(|user| user.row.as_ref()) {
            env.insert(b"HOME".to_vec(), row.home.clone());
            env.insert(b"USER".to_vec(), row.name.clone());
            env.insert(b"LOGNAME".to_vec(), row.name.clone());
        }
        for (key, value) in around.launch.iter() {
            env.insert(key.clone().into_bytes(), value.clone().into_bytes());
        }
        for (key, value) in &self.env {
            env.insert(key.clone().into_bytes(), value.clone().into_bytes());
        }
        env
    }

    fn script(&self, shell: &str) -> Vec<String> {
        vec![shell.to_owned(), "-c".to_owned(), self.command.join("\n")]
    }
}

type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

struct Credentials {
    user: Option<User>,
    gid: Option<u32>,
    groups: Option<Vec<u32>>,
}

/// The paths that execvp(3) would try for `program` under the child's `PATH`.
fn candidates(program: &[u8], path: Option<&Vec<u8>>) -> Vec<Vec<u8>> {
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    path.map_or(DEFAULT_PATH, Vec::as_slice)
        .split(|byte| *byte == b':')
        .map(|directory| match directory {
            b"" => [b"./", program].concat(),
            _ => [directory, b"/", program].concat(),
        })
        .collect()
}

fn shell_directories(env: &Environment, around: &Surroundings) -> Vec<Vec<u8>> {
    let image = around
        .image
        .iter()
        .find(|(key, _)| key == "PATH")
        .map(|(_, value)| value.as_bytes());
    let paths = [env.get(&b"PATH"[..]).map(Vec::as_slice), image];
    let elements = paths
        .into_iter()
        .flatten()
        .flat_map(|path| path.split(|byte| *byte == b':'));
    elements
        .filter(|directory| directory.starts_with(b"/"))
        .chain([&b"/bin"[..], b"/usr/bin"])
        .map(<[u8]>::to_vec)
        .collect()
}

/// The path of the shell `name`: an absolute path that is a program, or the first program of that name.
async fn find_shell(name: &str, directories: Vec<Vec<u8>>) -> Result<String> {
    let unknown = || Kind::UnknownShell.told(format!("no shell {name:?} in this guest"));
    let paths: Vec<String> = if name.starts_with('/') {
        vec![name.to_owned()]
    } else if name.is_empty() || name.contains(['/', '\0']) {
        return Err(unknown());
    } else {
        let in_directory = |directory: Vec<u8>| {
            let directory = String::from_utf8(directory).ok()?;
            Some(format!("{directory}/{name}"))
        };
        directories.into_iter().filter_map(in_directory).collect()
    };
    let found = pool::run(move || paths.into_iter().find(|path| is_program(path))).await?;
    found.ok_or_else(unknown)
}

fn is_program(path: &str) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn texts(list: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Result<Vec<CString>> {
    list.into_iter().map(text).collect()
}

fn text(bytes: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(bytes).map_err(|_| has_nul())
}

fn has_nul() -> Error {
    Kind::SpawnFailed.told("nul byte found in provided data")
}

const SHELL: &str = "/bin/sh";
/// The kind of terminal that a host is expected to show.
const TERM: &[u8] = b"xterm-256color";
/// Where programs are searched for when the child has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/bin:/usr/bin";

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &[&str]) -> Launch {
        Launch {
            id: "e".into(),
            command: command.iter().map(|&word| word.into()).collect(),
            shell: Shell::None,
            cwd: None,
            env: BTreeMap::new(),
            user: None,
            group: None,
            timeout: None,
            stdin: false,
            terminal: None,
            reap_group_on_exit: false,
            inherit_image_env: false,
            allowance: Allowance::default(),
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(key, value): &(&str, &str)| ((*key).into(), (*value).into());
        list.iter().map(own).collect()
    }

    /// Resolves with nothing around, on a thread of its own: a runtime is for life.
    fn resolve(launch: &Launch) -> Result<Program> {
        let launch = launch.clone();
        let on_a_runtime = move || {
            let mut outcome = None;
            crate::ring::start(crate::ring::Choice::Epoll, async {
                outcome = Some(launch.resolve(&Surroundings::default()).await);
                0
            })
            .expect("epoll runs everywhere");
            outcome.expect("set above")
        };
        let thread = std::thread::spawn(on_a_runtime);
        thread.join().expect("it does not panic")
    }

    fn check_candidates(program: &str, path: Option<&str>, expected: &[&str]) {
        let path = path.map(|path| path.as_bytes().to_vec());
        let found = candidates(program.as_bytes(), path.as_ref());
        let found: Vec<_> = found
            .iter()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect();
        assert_eq!(found, expected, "{program} in {path:?}");
    }

    #[test]
    fn a_program_without_slash_is_searched_in_the_path_of_the_child() {
        check_candidates("ls", Some("/a:/b/"), &["/a/ls", "/b//ls"]);
        check_candidates("ls", None, &["/usr/local/bin/ls", "/bin/ls", "/usr/bin/ls"]);
    }

    #[test]
    fn an_empty_path_element_is_the_working_directory() {
        check_candidates("ls", Some(":/a:"), &["./ls", "/a/ls", "./ls"]);
        check_candidates("ls", Some(""), &["./ls"]);
    }

    #[test]
    fn a_program_with_a_slash_is_not_searched_for() {
        check_candidates("./ls", Some("/a"), &["./ls"]);
        check_candidates("", Some("/a"), &[]);
    }

    fn check_env(launch: &Launch, user: Option<&User>, expected: &[(&str, &str)]) {
        let around = Surroundings {
            launch: Rc::new(pairs(&[
                ("HOME", "/launch"),
                ("A", "launch"),
                ("B", "launch"),
            ])),
            image: Rc::new(vec![
                ("B".into(), "image".into()),
                ("C".into(), "image".into()),
                ("USER".into(), "image".into()),
            ]),
        };
        let env = launch.environment(&around, user);
        let lossy = |text: &Vec<u8>| String::from_utf8_lossy(text).into_owned();
        let env: Vec<_> = env
            .iter()
            .map(|(key, value)| (lossy(key), lossy(value)))
            .collect();
        assert_eq!(env, pairs(expected));
    }

    #[test]
    fn the_environment_begins_empty_and_the_request_wins() {
        let mut launch = launch(&["env"]);
        launch.env = pairs(&[("A", "request"), ("", "x")]).into_iter().collect();
        check_env(
            &launch,
            None,
            &[
                ("", "x"),
                ("A", "request"),
                ("B", "launch"),
                ("HOME", "/launch"),
            ],
        );
    }

    #[test]
    fn the_image_is_the_lowest_layer_and_the_user_lies_below_the_launch() {
        let mut launch = launch(&["env"]);
        launch.inherit_image_env = true;
        let row = account::Row {
            name: b"bob".to_vec(),
            home: b"/home/bob".to_vec(),
        };
        let user = User {
            uid: 7,
            row: Some(row),
            group: Some(7),
        };
        check_env(
            &launch,
            Some(&user),
            &[
                ("A", "launch"),
                ("B", "launch"),
                ("C", "image"),
                ("HOME", "/launch"),
                ("LOGNAME", "bob"),
                ("USER", "bob"),
            ],
        );
    }

    #[test]
    fn a_script_is_the_lines_joined() {
        let mut launch = launch(&["echo one", "echo two"]);
        launch.shell = Shell::Default;
        let program = resolve(&launch).expect("resolves");
        assert_eq!(program.candidates, [c"/bin/sh".to_owned()]);
        let argv = [c"/bin/sh", c"-c", c"echo one\necho two"].map(ToOwned::to_owned);
        assert_eq!(program.argv, argv);
        assert!(program.envp.is_empty());
    }

    #[test]
    fn a_nul_byte_is_a_failed_spawn() {
        let mut in_env = launch(&["true"]);
        in_env.env.insert("A".into(), "a\0b".into());
        for launch in [launch(&["echo", "a\0b"]), launch(&["a\0b"]), in_env] {
            let error = resolve(&launch).expect_err("NUL");
            assert_eq!(error.kind(), Kind::SpawnFailed);
            assert_eq!(error.sentence(), "nul byte found in provided data");
        }
    }

    #[test]
    fn a_user_by_name_brings_its_group_and_a_given_group_wins() {
        let mut launch = launch(&["true"]);
        launch.user = Some(Account::Name("root".into()));
        let program = resolve(&launch).expect("root exists");
        assert_eq!((program.uid, program.gid), (Some(0), Some(0)));
        assert!(program.envp.contains(&c"USER=root".to_owned()));
        launch.group = Some(Account::Id(12));
        let program = resolve(&launch).expect("root exists");
        assert_eq!((program.uid, program.gid), (Some(0), Some(12)));
    }

    #[test]
    fn a_user_by_number_brings_a_home_and_no_group() {
        let mut launch = launch(&["true"]);
        launch.user = Some(Account::Id(0));
        let program = resolve(&launch).expect("resolves");
        assert_eq!((program.uid, program.gid), (Some(0), None));
        assert!(program.envp.contains(&c"USER=root".to_owned()));
    }

    #[test]
    fn a_shell_by_name_is_found_and_an_unknown_one_is_refused() {
        let mut launch = launch(&["exit 3"]);
        launch.shell = Shell::Named("sh".into());
        let program = resolve(&launch).expect("sh exists");
        assert_eq!(program.argv[0], program.candidates[0]);
        for name in ["no-such-shell", "", "./sh", "/etc/passwd"] {
            launch.shell = Shell::Named(name.into());
            let error = resolve(&launch).expect_err(name);
            assert_eq!(error.kind(), Kind::UnknownShell);
        }
    }
}
