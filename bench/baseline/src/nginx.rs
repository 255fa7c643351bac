//! nginx for GET and PUT of files: the script and the configuration beside the sources, as one program.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

const SCRIPT: &str = include_str!("../nginx.sh");
const CONFIGURATION: &str = include_str!("../nginx.conf");

/// How nginx is started.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// Port on 127.0.0.1
    #[arg(long, value_name = "N")]
    port: u16,
    /// What is below it is served at `/`
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where nginx gets a directory for the time that it runs; default: the root
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Becomes nginx. Returns only when that fails.
pub(crate) fn serve(config: Config) -> anyhow::Result<()> {
    let error = Command::new("/bin/sh")
        .arg("-c")
        .arg(SCRIPT)
        .arg("nginx.sh")
        .arg(config.port.to_string())
        .arg(config.root)
        .args(config.dir)
        .env("BASELINE_NGINX_CONF", CONFIGURATION)
        .exec();
    Err(error).context("cannot run /bin/sh")
}
