//! Keys as users hand them over: base64 of 32 bytes, the private ones in files that nobody else can read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::wire::base64;

/// Reads the private key in the file `path`.
///
/// # Errors
/// A sentence that names the file: it cannot be read, others can read it, or it holds no key.
pub(super) fn private(path: &Path) -> Result<Zeroizing<[u8; 32]>, String> {
    let shown = path.display();
    let unreadable = |error| format!("cannot read {shown}: {error}");
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} can be read by others (mode {:04o}); chmod 600 it",
            mode & 0o7777
        ));
    }
    let mut text = Zeroizing::new(String::with_capacity(MOST_TEXT));
    file.by_ref()
        .take(MOST_TEXT as u64)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    parse(text.trim_end()).map_err(|why| format!("{shown} holds no key: {why}"))
}

/// Reads a key from its text.
///
/// # Errors
/// What is wrong with it; the text itself is not told.
pub(super) fn parse(text: &str) -> Result<Zeroizing<[u8; 32]>, &'static str> {
    let bytes = base64::decode(text).map_err(|_| "it is not base64")?;
    let bytes = Zeroizing::new(bytes);
    let key: [u8; 32] = bytes[..].try_into().map_err(|_| "it is not 32 bytes")?;
    if key == [0; 32] {
        return Err("it is all zero");
    }
    Ok(Zeroizing::new(key))
}

/// More than a key and a line end have.
const MOST_TEXT: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_of_base64() {
        let good = "E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20=";
        assert!(parse(good).is_ok());
        for (text, why) in [
            ("", "32 bytes"),
            ("aGVsbG8=", "32 bytes"),
            ("E75P6uryBMf9M1j8nAByGIHRdCeBKCJ+xnTzf3/pe20", "base64"),
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "zero"),
        ] {
            let told = parse(text).expect_err("not a key");
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
