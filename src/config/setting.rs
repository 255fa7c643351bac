//! The table of settings: the only list of flags, variables, defaults and their texts.

use std::time::Duration;

use super::{Address, Config};
use crate::wire::http::head::MOST_FIELDS;

/// One setting: the flag `--name VALUE`, the variable `RINGD_NAME`, and the reference's variable where it has one.
pub struct Setting {
    /// The flag without dashes.
    pub name: &'static str,
    /// The variable of the reference daemon that means the same.
    pub agentd: Option<&'static str>,
    /// Rewrites the reference's value into ours.
    pub adapt: fn(&str) -> String,
    /// The default, as it would be typed.
    pub default: &'static str,
    /// What the value is, for the help: `BYTES`, `SECONDS`, …
    pub unit: &'static str,
    /// One line for the help and the README.
    pub about: &'static str,
    /// Parses a value and stores it.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
    /// Writes the value in force.
    pub show: fn(&Config) -> String,
}

impl Setting {
    /// `RINGD_SOME_NAME` for `some-name`.
    pub fn variable(&self) -> String {
        format!("RINGD_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// True for a flag that may stand alone, which then means `true`.
    pub fn is_switch(&self) -> bool {
        self.unit == SWITCH
    }
}

/// The unit of a setting that is on or off.
const SWITCH: &str = "SWITCH";

/// A number field of the limits, with the range it may have.
macro_rules! number {
    ($name:literal, $agentd:expr, $default:literal, $unit:literal, $($field:ident).+, $range:expr, $about:literal) => {
        Setting {
            name: $name,
            agentd: $agentd,
            adapt: trimmed,
            default: $default,
            unit: $unit,
            about: $about,
            set: |config, text| {
                config.$($field).+ = whole(text, $range)?;
                Ok(())
            },
            show: |config| config.$($field).+.to_string(),
        }
    };
}

/// A duration field, in seconds.
macro_rules! seconds {
    ($name:literal, $agentd:expr, $default:literal, $($field:ident).+, $about:literal) => {
        Setting {
            name: $name,
            agentd: $agentd,
            adapt: trimmed,
            default: $default,
            unit: "SECONDS",
            about: $about,
            set: |config, text| {
                config.$($field).+ = span(text)?;
                Ok(())
            },
            show: |config| config.$($field).+.as_secs_f64().to_string(),
        }
    };
}

/// Every setting, in the order of the help.
pub static SETTINGS: &[Setting] = &[
    Setting {
        name: "listen",
        agentd: Some("AGENTD_PORT"),
        adapt: |port| format!("0.0.0.0:{}", port.trim()),
        default: "127.0.0.1:9000",
        unit: "ADDRESS",
        about: "where to listen: host:port, tcp://host:port, unix:///path, vsock://cid:port, fd://N; repeatable",
        set: |config, text| {
            let parts = text.split(',').map(str::trim).map(str::parse::<Address>);
            config.listen = parts.collect::<Result<_, _>>()?;
            Ok(())
        },
        show: |config| {
            let addresses: Vec<String> = config.listen.iter().map(Address::to_string).collect();
            addresses.join(",")
        },
    },
    Setting {
        name: "unix-mode",
        agentd: None,
        adapt: trimmed,
        default: "0600",
        unit: "OCTAL",
        about: "permissions of a Unix socket that is created",
        set: |config, text| {
            let mode = u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o777);
            config.unix_mode = mode.ok_or_else(|| format!("{text:?} is not an octal mode"))?;
            Ok(())
        },
        show: |config| format!("{:04o}", config.unix_mode),
    },
    Setting {
        name: "driver",
        agentd: None,
        adapt: trimmed,
        default: "auto",
        unit: "NAME",
        about: "auto, uring or epoll; auto takes io_uring where the kernel allows it",
        set: |config, text| {
            let parsed = text.parse();
            config.driver =
                parsed.map_err(|()| format!("{text:?} is none of auto, uring, epoll"))?;
            Ok(())
        },
        show: |config| config.driver.to_string(),
    },
    Setting {
        name: "log",
        agentd: Some("AGENTD_LOG"),
        adapt: trimmed,
        default: "info",
        unit: "FILTER",
        about: "what is logged: a level, or target=level pairs separated by commas",
        set: |config, text| {
            crate::log::check(text)?;
            text.clone_into(&mut config.log);
            Ok(())
        },
        show: |config| config.log.clone(),
    },
    Setting {
        name: "metrics-open",
        agentd: None,
        adapt: trimmed,
        default: "false",
        unit: SWITCH,
        about: "true serves /v1/metrics to anybody who can connect, without a token",
        set: |config, text| {
            config.metrics_open = on(text)?;
            Ok(())
        },
        show: |config| config.metrics_open.to_string(),
    },
    number!(
        "max-connections",
        None,
        "1024",
        "COUNT",
        limits.max_connections,
        (1, 1 << 20),
        "connections served at once on each listener; further ones wait in its backlog"
    ),
    number!(
        "max-head-bytes",
        None,
        "65536",
        "BYTES",
        limits.head.bytes,
        (256, 1 << 20),
        "size of a request head; past it 431"
    ),
    number!(
        "max-head-fields",
        None,
        "100",
        "COUNT",
        limits.head.fields,
        (1, MOST_FIELDS),
        "header fields of a request; past it 431"
    ),
    number!(
        "max-target-bytes",
        None,
        "8192",
        "BYTES",
        limits.head.target,
        (64, 1 << 20),
        "size of a request target; past it 414"
    ),
    seconds!(
        "head-timeout",
        None,
        "30",
        limits.head_timeout,
        "how long a request head may take from its first byte"
    ),
    seconds!(
        "idle-timeout",
        None,
        "75",
        limits.idle_timeout,
        "how long a connection may wait for its next request"
    ),
    seconds!(
        "body-timeout",
        None,
        "60",
        limits.body_timeout,
        "how long a client may neither send nor take a byte of a message that is under way"
    ),
    number!(
        "max-body-bytes",
        Some("AGENTD_MAX_BODY_BYTES"),
        "536870912",
        "BYTES",
        limits.max_body_bytes,
        (0, u64::MAX),
        "size of a request body; past it 413"
    ),
    number!(
        "max-drain-bytes",
        None,
        "65536",
        "BYTES",
        limits.max_drain_bytes,
        (0, 1 << 30),
        "unread body of a refused request that is read away to keep the connection"
    ),
    number!(
        "max-output-bytes",
        Some("AGENTD_MAX_OUTPUT_BYTES"),
        "8388608",
        "BYTES",
        limits.max_output_bytes,
        (0, 1 << 40),
        "output kept for the polled result, for each of stdout and stderr"
    ),
    seconds!(
        "output-linger",
        Some("AGENTD_OUTPUT_LINGER_SECS"),
        "5",
        limits.output_linger,
        "how long output is still read after the command has exited"
    ),
    seconds!(
        "exec-ttl",
        Some("AGENTD_EXEC_TTL_SECS"),
        "900",
        limits.exec_ttl,
        "how long an acknowledged exec is remembered"
    ),
    number!(
        "stream-buffer-bytes",
        Some("AGENTD_STREAM_BUFFER_BYTES"),
        "1048576",
        "BYTES",
        limits.stream_buffer_bytes,
        (0, 1 << 40),
        "output of each exec that is kept in memory for those who follow it"
    ),
    number!(
        "stream-spill-bytes",
        None,
        "67108864",
        "BYTES",
        limits.stream_spill_bytes,
        (0, 1 << 40),
        "older output of each exec that is kept for them on disk; 0 keeps none"
    ),
    number!(
        "max-spill-bytes",
        None,
        "1073741824",
        "BYTES",
        limits.max_spill_bytes,
        (0, u64::MAX),
        "disk that such output may take, of all execs together"
    ),
    number!(
        "max-execs",
        None,
        "20000",
        "COUNT",
        limits.max_execs,
        (1, 1 << 20),
        "execs that run or wait to be acknowledged; past it a start is answered 503"
    ),
    number!(
        "max-output-memory",
        None,
        "536870912",
        "BYTES",
        limits.max_output_memory,
        (1, u64::MAX),
        "memory that kept output may take, of all execs together, before a start is answered 503"
    ),
    seconds!(
        "sse-keepalive",
        Some("AGENTD_SSE_KEEPALIVE_SECS"),
        "15",
        limits.sse_keepalive,
        "silence on an output stream after which a comment is sent"
    ),
    number!(
        "max-stdin-write-bytes",
        Some("AGENTD_MAX_STDIN_WRITE_BYTES"),
        "1048576",
        "BYTES",
        limits.max_stdin_write_bytes,
        (0, 1 << 24),
        "decoded bytes of one write to a standard input"
    ),
    seconds!(
        "stdin-write-timeout",
        None,
        "5",
        limits.stdin_write_timeout,
        "how long a write to a standard input may wait for the command to read"
    ),
    seconds!(
        "kill-grace",
        None,
        "10",
        limits.kill_grace,
        "time between SIGTERM and SIGKILL"
    ),
    Setting {
        name: "cgroup",
        agentd: None,
        adapt: trimmed,
        default: "auto",
        unit: "PLACE",
        about: "where each exec gets a cgroup (version 2): auto (our own, if it is delegated), off, or a directory",
        set: |config, text| {
            let place = text.parse();
            config.cgroup = place
                .map_err(|()| format!("{text:?} is neither auto, off nor an absolute path"))?;
            Ok(())
        },
        show: |config| config.cgroup.to_string(),
    },
    number!(
        "disk-reserve-bytes",
        Some("AGENTD_DISK_RESERVE_BYTES"),
        "268435456",
        "BYTES",
        limits.disk_reserve_bytes,
        (0, u64::MAX),
        "free space below which writes are refused with 507; 0 disables the check"
    ),
    number!(
        "max-watches",
        None,
        "8192",
        "COUNT",
        limits.max_watches,
        (1, 1 << 20),
        "directories and files that are watched at once, by all clients together; past it a watch is answered 503"
    ),
    number!(
        "max-tar-members",
        None,
        "100000",
        "COUNT",
        limits.max_tar_members,
        (0, u64::MAX),
        "members of an archive; past it 413"
    ),
    number!(
        "max-tar-bytes",
        None,
        "8589934592",
        "BYTES",
        limits.max_tar_bytes,
        (0, u64::MAX),
        "file bytes of an archive; past it 413"
    ),
    Setting {
        name: "spool-dir",
        agentd: None,
        adapt: trimmed,
        default: "",
        unit: "PATH",
        about: "where uploaded archives wait until they are checked, and older output is kept; empty means TMPDIR, else /tmp",
        set: |config, text| {
            config.limits.spool_dir = match text {
                "" => std::env::temp_dir(),
                path => path.into(),
            };
            Ok(())
        },
        show: |config| config.limits.spool_dir.display().to_string(),
    },
    number!(
        "spool-memory-bytes",
        None,
        "1048576",
        "BYTES",
        limits.spool_memory_bytes,
        (0, 1 << 30),
        "size up to which an uploaded archive waits in memory"
    ),
    number!(
        "max-coding-memory",
        None,
        "67108864",
        "BYTES",
        limits.max_coding_memory,
        (1, u64::MAX),
        "memory that zstd and gzip may take, of all bodies together; past it uploads are answered 503, answers are sent plain"
    ),
    number!(
        "max-uploads",
        None,
        "256",
        "COUNT",
        limits.max_uploads,
        (1, 1 << 16),
        "resumable uploads that are not complete; past it a further one is answered 503"
    ),
    seconds!(
        "upload-ttl",
        None,
        "86400",
        limits.upload_ttl,
        "how long a resumable upload may be idle before it is given up"
    ),
    seconds!(
        "drain-timeout",
        None,
        "30",
        drain_timeout,
        "how long requests under way may take to finish at shutdown"
    ),
    Setting {
        name: "terminate-hook",
        agentd: None,
        adapt: trimmed,
        default: "drain",
        unit: "NAME",
        about: "what the terminate hook does: drain (shut down) or ack (only answer)",
        set: |config, text| {
            config.terminate_drains = match text {
                "drain" => true,
                "ack" => false,
                _ => return Err(format!("{text:?} is neither drain nor ack")),
            };
            Ok(())
        },
        show: |config| {
            if config.terminate_drains {
                "drain"
            } else {
                "ack"
            }
            .into()
        },
    },
];

fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

/// A switch, in the words of the reference (contract, section 1).
fn on(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// A whole number in a range, both ends included.
fn whole<T>(text: &str, (least, most): (T, T)) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let value: T = text
        .parse()
        .map_err(|_| format!("{text:?} is not a whole number"))?;
    if value < least || value > most {
        return Err(format!("{text} is not between {least} and {most}"));
    }
    Ok(value)
}

/// Seconds, with a fraction if need be; at most a century.
fn span(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a number of seconds");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    if !(0.0..=CENTURY).contains(&seconds) {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

const CENTURY: f64 = 100.0 * 365.25 * 86_400.0;
