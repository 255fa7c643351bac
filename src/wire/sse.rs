//! Server-sent events (WHATWG HTML, "Server-sent events"): one name and one line of data per event.

use super::base64;

/// Appends an event; `data` is one line.
pub fn event(into: &mut Vec<u8>, name: &str, data: &[u8]) {
    debug_assert!(!data.contains(&b'\n'), "data is one line");
    begin(into, name);
    into.extend_from_slice(data);
    into.extend_from_slice(END);
}

/// Appends an `output` event: bytes of `stream` that begin at `offset`.
pub fn output(into: &mut Vec<u8>, offset: u64, stream: &str, bytes: &[u8]) {
    begin(into, "output");
    into.extend_from_slice(b"{\"offset\":");
    into.extend_from_slice(offset.to_string().as_bytes());
    into.extend_from_slice(b",\"stream\":\"");
    into.extend_from_slice(stream.as_bytes());
    into.extend_from_slice(b"\",\"output\":\"");
    base64::append(into, bytes);
    into.extend_from_slice(b"\"}");
    into.extend_from_slice(END);
}

/// Appends a `gap` event: the bytes in `from..to` are missing.
pub fn gap(into: &mut Vec<u8>, from: u64, to: u64) {
    event(
        into,
        "gap",
        format!("{{\"from\":{from},\"to\":{to}}}").as_bytes(),
    );
}

/// A comment, which readers skip: it keeps a silent connection alive.
pub const COMMENT: &[u8] = b":\n\n";

/// A comment of 2 KiB, which also gets through proxies that hold small writes back.
pub fn padded_comment() -> Vec<u8> {
    let mut comment = vec![b' '; PADDED];
    comment[0] = b':';
    comment[PADDED - END.len()..].copy_from_slice(END);
    comment
}

fn begin(into: &mut Vec<u8>, name: &str) {
    into.extend_from_slice(b"event: ");
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b"\ndata: ");
}

const END: &[u8] = b"\n\n";
const PADDED: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn events_are_a_name_a_line_and_an_empty_line() {
        check(
            |out| output(out, 6, "stderr", b"err\n"),
            "event: output\ndata: {\"offset\":6,\"stream\":\"stderr\",\"output\":\"ZXJyCg==\"}\n\n",
        );
        check(
            |out| gap(out, 0, 11_534_337),
            "event: gap\ndata: {\"from\":0,\"to\":11534337}\n\n",
        );
        check(|out| event(out, "exit", b"{}"), "event: exit\ndata: {}\n\n");
    }

    #[test]
    fn a_padded_comment_is_one_comment_of_two_kibibytes() {
        let comment = padded_comment();
        assert_eq!(comment.len(), 2048);
        assert!(comment.starts_with(b": ") && comment.ends_with(b" \n\n"));
    }
}
