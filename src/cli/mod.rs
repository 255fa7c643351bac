//! The command line: `ringd serve`, help and version.

mod serve;

use std::process::ExitCode;

use crate::api::system::VERSION;
use crate::config::SETTINGS;

/// Runs the command that the arguments name; they come without the program's own name.
pub fn run(arguments: &[String]) -> ExitCode {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "serve" => serve::run(rest),
        "help" | "--help" | "-h" => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        "version" | "--version" | "-V" => {
            println!("ringd {VERSION}");
            ExitCode::SUCCESS
        }
        other => {
            eprintln!("ringd: there is no command {other:?}; `ringd help` lists them");
            ExitCode::from(USAGE)
        }
    }
}

/// The exit status for a command line or configuration that cannot be used.
pub const USAGE: u8 = 2;

fn help() -> String {
    let mut text = String::from(
        "ringd: runs inside a microVM or sandbox and does what its host asks.\n\n\
         usage:\n  \
         ringd serve [OPTIONS]   serve the guest HTTP protocol\n  \
         ringd version           print the version\n  \
         ringd help              print this\n\n\
         options of serve (each is also a variable: --some-name is RINGD_SOME_NAME):\n  \
         --print-config\n      print every setting, its value and where it came from, and exit\n",
    );
    for setting in SETTINGS {
        let value = match setting.is_switch() {
            true => "[=true|false]".to_owned(),
            false => format!(" {}", setting.unit),
        };
        let agentd = setting.agentd.map(|name| format!(", or {name}"));
        text.push_str(&format!(
            "  --{}{}\n      {} (default {:?}{})\n",
            setting.name,
            value,
            setting.about,
            setting.default,
            agentd.unwrap_or_default()
        ));
    }
    text
}
