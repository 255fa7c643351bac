//! `ringd keygen`: makes the key pairs of verified tunnels, and shows the public half of one.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use zeroize::{Zeroize, Zeroizing};

use super::{USAGE, key};
use crate::tunnel::secure::public_key;
use crate::wire::base64;

/// Makes a pair or shows the public half. Exit status: 0, 1 when the file cannot be made, 2 for bad usage.
pub(super) fn run(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let made = match words[..] {
        ["--public", path] => there(Path::new(path)),
        [path] if !path.starts_with('-') => {
            make(Path::new(path)).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    format!("{path} is there already; `ringd keygen --public {path}` shows its public half")
                }
                _ => format!("cannot make {path}: {error}"),
            })
        }
        _ => {
            eprintln!("ringd: keygen takes a file to make, or --public and a file that is there");
            return ExitCode::from(USAGE);
        }
    };
    let public =
        made.and_then(|private| public_key(&private).map_err(|error| error.sentence().to_owned()));
    let printed = public.and_then(|public| {
        writeln!(io::stdout(), "{}", text(&public)).map_err(|error| match words[..] {
            [path] => format!(
                "{path} is made, but the public half cannot be printed ({error}); \
                 `ringd keygen --public {path}` prints it"
            ),
            _ => format!("the public half cannot be printed: {error}"),
        })
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ringd: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the private key of a file that is there.
fn there(path: &Path) -> Result<Zeroizing<[u8; 32]>, String> {
    // Of others the permissions say nothing, and to open a FIFO would wait for a writer.
    match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(format!("{} is no regular file", path.display())),
        _ => key::private(path),
    }
}

/// Writes a fresh private key into a file that nobody else can read; one that is there is left alone.
fn make(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let mut private = Zeroizing::new([0; 32]);
    rustix::rand::getrandom(&mut private[..], rustix::rand::GetRandomFlags::empty())?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut line = text(&private);
    line.push('\n');
    let written = file.write_all(line.as_bytes());
    line.zeroize();
    if let Err(error) = written {
        // Half a key is of no use, and would be in the way of the next attempt.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(private)
}

fn text(key: &[u8; 32]) -> String {
    let mut text = Vec::with_capacity(44);
    base64::append(&mut text, key);
    String::from_utf8(text).expect("base64 is ASCII")
}
