//! The command line: `ringd serve`, `ringd tunnel`, `ringd keygen`, help and version.

mod key;
mod keygen;
mod serve;
mod supervisor;
mod tunnel;

use std::process::ExitCode;

use crate::api::Document;
use crate::api::system::VERSION;
use crate::config::{Config, SETTINGS, Unusable};
use crate::doors::http::describe::printed;

/// Runs the command that the arguments name; they come without the program's own name.
pub fn run(arguments: &[String]) -> ExitCode {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "serve" => serve::run(rest),
        "tunnel" => tunnel::run(rest),
        "keygen" => keygen::run(rest),
        "schema" => describe(Document::Schema, rest),
        "openapi" => describe(Document::OpenApi, rest),
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

/// Prints a document about the protocol, with the limits that `serve` would have.
fn describe(document: Document, arguments: &[String]) -> ExitCode {
    let read = serve::flags(arguments).and_then(|(flags, prints)| {
        if prints || document == Document::OpenApi && !flags.is_empty() {
            return Err("the document does not depend on this option".to_owned());
        }
        let read = Config::read(&flags, |name| std::env::var(name).ok());
        read.map_err(|Unusable(why)| why)
    });
    match read {
        Ok((config, _)) => {
            print!("{}", printed(document, &config));
            ExitCode::SUCCESS
        }
        Err(why) => serve::unusable(&why),
    }
}

/// The exit status for a command line or configuration that cannot be used.
pub const USAGE: u8 = 2;

fn help() -> String {
    let mut text = String::from(
        "ringd: runs inside a microVM or sandbox and does what its host asks.\n\n\
         usage:\n  \
         ringd serve [OPTIONS]        serve the guest HTTP protocol\n  \
         ringd tunnel OPTIONS         carry connections of this machine to a port inside a guest\n  \
         ringd keygen FILE            make a key pair: the private half in FILE, the public half printed\n  \
         ringd keygen --public FILE   print the public half of a key that is there\n  \
         ringd schema [OPTIONS]       print the document of GET /v1/schema under these options of serve\n  \
         ringd openapi                print the OpenAPI document\n  \
         ringd version                print the version\n  \
         ringd help                   print this\n\n\
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
    text.push_str("\noptions of tunnel:\n");
    for (name, takes, about) in tunnel::OPTIONS {
        text.push_str(format!("  --{name} {takes}").trim_end());
        text.push_str(&format!("\n      {about}\n"));
    }
    text
}
