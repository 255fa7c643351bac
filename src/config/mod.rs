//! What can be configured: one table of settings, read from flags, `RINGD_*` and the reference's `AGENTD_*`.

mod address;
mod setting;

use std::path::PathBuf;
use std::time::Duration;

pub use address::Address;
pub use setting::{SETTINGS, Setting};

use crate::ring;
use crate::wire::http::head;

/// Every setting in force. The documentation of each field is its row in [`SETTINGS`].
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Vec<Address>,
    pub unix_mode: u32,
    pub driver: ring::Choice,
    pub log: String,
    pub limits: Limits,
    pub drain_timeout: Duration,
    pub terminate_drains: bool,
    pub metrics_open: bool,
    pub cgroup: ring::cgroup::Place,
    origins: Vec<String>,
}

/// The bounds; each has a row in the README's table.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_connections: usize,
    pub head: head::Limits,
    pub head_timeout: Duration,
    pub idle_timeout: Duration,
    pub body_timeout: Duration,
    pub max_body_bytes: u64,
    pub max_drain_bytes: u64,
    pub max_output_bytes: usize,
    pub output_linger: Duration,
    pub exec_ttl: Duration,
    pub stream_buffer_bytes: usize,
    pub stream_spill_bytes: u64,
    pub max_spill_bytes: u64,
    pub max_execs: usize,
    pub max_output_memory: u64,
    pub sse_keepalive: Duration,
    pub max_stdin_write_bytes: usize,
    pub stdin_write_timeout: Duration,
    pub kill_grace: Duration,
    pub disk_reserve_bytes: u64,
    pub max_watches: usize,
    pub max_tar_members: u64,
    pub max_tar_bytes: u64,
    pub spool_dir: PathBuf,
    pub spool_memory_bytes: u64,
    pub max_coding_memory: u64,
    pub max_uploads: usize,
    pub upload_ttl: Duration,
}

/// Why the configuration cannot be used; the sentence names the flag or variable.
#[derive(Debug)]
pub struct Unusable(pub String);

/// A value of an `AGENTD_*` variable that was not understood and not used.
#[derive(Debug)]
pub struct Ignored(pub String);

impl Config {
    /// Reads the configuration: flags win over `RINGD_*`, which win over `AGENTD_*`, which win over the defaults.
    ///
    /// `flags` are pairs of name (without dashes) and value; `variable` looks up the environment.
    ///
    /// # Errors
    /// A flag that is not known, or a flag or `RINGD_*` value that does not parse. A bad `AGENTD_*` value is only
    /// reported, as the reference does.
    pub fn read(
        flags: &[(String, String)],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<Ignored>), Unusable> {
        let mut config = Self::blank();
        let mut ignored = Vec::new();
        for (index, setting) in SETTINGS.iter().enumerate() {
            (setting.set)(&mut config, setting.default).map_err(|why| {
                Unusable(format!(
                    "the default of {} does not parse: {why}",
                    setting.name
                ))
            })?;
            config.origins.push("default".into());
            let agentd = setting
                .agentd
                .and_then(|name| Some((name, variable(name)?)));
            if let Some((name, value)) = agentd {
                let value = (setting.adapt)(&value);
                match (setting.set)(&mut config, &value) {
                    Ok(()) => config.origins[index] = name.into(),
                    Err(why) => {
                        ignored.push(Ignored(format!("{name}: {why}; the default is used")))
                    }
                }
            }
            let name = setting.variable();
            if let Some(value) = variable(&name) {
                (setting.set)(&mut config, &value)
                    .map_err(|why| Unusable(format!("{name}: {why}")))?;
                config.origins[index] = name;
            }
            let values: Vec<&str> = flags
                .iter()
                .filter(|(flag, _)| flag == setting.name)
                .map(|(_, value)| value.as_str())
                .collect();
            if !values.is_empty() {
                (setting.set)(&mut config, &values.join(","))
                    .map_err(|why| Unusable(format!("--{}: {why}", setting.name)))?;
                config.origins[index] = "flag".into();
            }
            if values.len() > 1 && setting.name != "listen" {
                return Err(Unusable(format!(
                    "--{} is given more than once",
                    setting.name
                )));
            }
        }
        let known = |flag: &str| SETTINGS.iter().any(|setting| setting.name == flag);
        match flags.iter().find(|(flag, _)| !known(flag)) {
            Some((flag, _)) => Err(Unusable(format!("--{flag} is not an option of serve"))),
            None => Ok((config, ignored)),
        }
    }

    /// One line per setting: `name = value (source)`.
    pub fn printed(&self) -> String {
        let lines = SETTINGS.iter().zip(&self.origins);
        lines
            .map(|(setting, origin)| {
                format!("{} = {} ({origin})\n", setting.name, (setting.show)(self))
            })
            .collect()
    }

    fn blank() -> Self {
        Self {
            listen: Vec::new(),
            unix_mode: 0,
            driver: ring::Choice::Auto,
            log: String::new(),
            limits: Limits {
                max_connections: 0,
                head: head::Limits {
                    bytes: 0,
                    fields: 0,
                    target: 0,
                },
                head_timeout: Duration::ZERO,
                idle_timeout: Duration::ZERO,
                body_timeout: Duration::ZERO,
                max_body_bytes: 0,
                max_drain_bytes: 0,
                max_output_bytes: 0,
                output_linger: Duration::ZERO,
                exec_ttl: Duration::ZERO,
                stream_buffer_bytes: 0,
                stream_spill_bytes: 0,
                max_spill_bytes: 0,
                max_execs: 0,
                max_output_memory: 0,
                sse_keepalive: Duration::ZERO,
                max_stdin_write_bytes: 0,
                stdin_write_timeout: Duration::ZERO,
                kill_grace: Duration::ZERO,
                disk_reserve_bytes: 0,
                max_watches: 0,
                max_tar_members: 0,
                max_tar_bytes: 0,
                spool_dir: PathBuf::new(),
                spool_memory_bytes: 0,
                max_coding_memory: 0,
                max_uploads: 0,
                upload_ttl: Duration::ZERO,
            },
            drain_timeout: Duration::ZERO,
            terminate_drains: true,
            metrics_open: false,
            cgroup: ring::cgroup::Place::Auto,
            origins: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Config, String> {
        let flags: Vec<_> = flags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Config::read(&flags, lookup)
            .map(|(config, _)| config)
            .map_err(|Unusable(why)| why)
    }

    #[test]
    fn a_flag_wins_over_our_variable_over_the_reference() {
        let both = [
            ("RINGD_MAX_BODY_BYTES", "2"),
            ("AGENTD_MAX_BODY_BYTES", "3"),
        ];
        let size = |config: Result<Config, String>| config.map(|c| c.limits.max_body_bytes);
        assert_eq!(size(read(&[("max-body-bytes", "1")], &both)), Ok(1));
        assert_eq!(size(read(&[], &both)), Ok(2));
        assert_eq!(size(read(&[], &both[1..])), Ok(3));
        assert_eq!(size(read(&[], &[])), Ok(536_870_912));
    }

    #[test]
    fn a_bad_value_of_ours_is_an_error_that_names_it() {
        let error = read(&[], &[("RINGD_KILL_GRACE", "soon")]).expect_err("unusable");
        assert!(error.contains("RINGD_KILL_GRACE"), "{error}");
        let error = read(&[("kill-grace", "soon")], &[]).expect_err("unusable");
        assert!(error.contains("--kill-grace"), "{error}");
        let error = read(&[("nonsense", "1")], &[]).expect_err("unusable");
        assert!(error.contains("--nonsense"), "{error}");
    }

    #[test]
    fn a_bad_value_of_the_reference_is_only_reported() {
        let lookup = |name: &str| (name == "AGENTD_EXEC_TTL_SECS").then(|| "soon".to_owned());
        let (config, ignored) = Config::read(&[], lookup).expect("usable");
        assert_eq!(config.limits.exec_ttl, Duration::from_secs(900));
        assert!(ignored[0].0.contains("AGENTD_EXEC_TTL_SECS"));
    }

    #[test]
    fn the_port_of_the_reference_binds_every_address() {
        let config = read(&[], &[("AGENTD_PORT", "9100")]).expect("usable");
        assert_eq!(config.listen[0].to_string(), "tcp://0.0.0.0:9100");
        let config = read(&[("listen", "127.0.0.1:1")], &[("AGENTD_PORT", "9100")]);
        assert_eq!(
            config.expect("usable").listen[0].to_string(),
            "tcp://127.0.0.1:1"
        );
    }

    #[test]
    fn every_setting_is_printed_with_its_source() {
        let config = read(&[("log", "debug")], &[("RINGD_DRAIN_TIMEOUT", "0.5")]).expect("usable");
        let text = config.printed();
        assert!(text.contains("log = debug (flag)\n"), "{text}");
        assert!(
            text.contains("drain-timeout = 0.5 (RINGD_DRAIN_TIMEOUT)\n"),
            "{text}"
        );
        assert!(
            text.contains("listen = tcp://127.0.0.1:9000 (default)\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), SETTINGS.len());
    }
}
