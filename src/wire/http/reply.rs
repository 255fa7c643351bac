//! The head of a response, written in one go.

/// How the body of a response is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// So many bytes.
    Length(u64),
    /// The chunked coding (HTTP/1.1 only).
    Chunked,
    /// The end of the connection (HTTP/1.0).
    Close,
    /// There is none by definition (204, 1xx).
    None,
}

/// A response head under construction; names are lower case and go out in the order they are added.
pub struct Reply(Vec<u8>);

impl Reply {
    /// Starts with the status line.
    pub fn new(is_11: bool, status: http::StatusCode) -> Self {
        Self::with_room(is_11, status, 0)
    }

    /// The same with room for as many bytes behind the head.
    pub fn with_room(is_11: bool, status: http::StatusCode, behind: usize) -> Self {
        let mut head = Vec::with_capacity(HEAD + behind);
        head.extend_from_slice(if is_11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
        head.extend_from_slice(status.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        head.extend_from_slice(b"\r\n");
        Self(head)
    }

    /// Adds a field. Bytes that cannot stand in a value (CR, LF, NUL) become spaces.
    pub fn field(&mut self, name: &str, value: &str) -> &mut Self {
        put_field(name, value, &mut self.0);
        self
    }

    /// Adds the field that tells where the body ends.
    pub fn delimiter(&mut self, delimiter: Delimiter) -> &mut Self {
        match delimiter {
            Delimiter::Length(length) => {
                self.0.extend_from_slice(b"content-length: ");
                put_decimal(length, &mut self.0);
                self.0.extend_from_slice(b"\r\n");
                self
            }
            Delimiter::Chunked => self.field("transfer-encoding", "chunked"),
            Delimiter::Close | Delimiter::None => self,
        }
    }

    /// Ends the head.
    pub fn finish(&mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        std::mem::take(&mut self.0)
    }
}

/// Appends a field line; bytes that cannot stand in a value (CR, LF, NUL) become spaces.
pub(super) fn put_field(name: &str, value: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b": ");
    let at = into.len();
    into.extend_from_slice(value.as_bytes());
    for byte in &mut into[at..] {
        if matches!(byte, b'\r' | b'\n' | 0) {
            *byte = b' ';
        }
    }
    into.extend_from_slice(b"\r\n");
}

/// Appends the digits: the formatter would cost more than all else in the field.
fn put_decimal(mut number: u64, into: &mut Vec<u8>) {
    let mut digits = [0; MOST_DIGITS];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789"[usize::try_from(number % 10).unwrap_or(0)];
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[first..]);
}

/// Digits of the largest number.
const MOST_DIGITS: usize = 20;

/// Bytes that a head has as a rule.
const HEAD: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_digits() {
        for number in [0, 7, 10, 909, 1 << 32, u64::MAX] {
            let mut text = Vec::new();
            put_decimal(number, &mut text);
            assert_eq!(String::from_utf8(text), Ok(number.to_string()));
        }
    }

    #[test]
    fn a_head_is_written_in_order() {
        let mut reply = Reply::new(true, http::StatusCode::NOT_FOUND);
        reply.field("a", "b").delimiter(Delimiter::Length(0));
        assert_eq!(
            reply.finish(),
            b"HTTP/1.1 404 Not Found\r\na: b\r\ncontent-length: 0\r\n\r\n"
        );
    }

    #[test]
    fn a_value_cannot_start_a_new_line() {
        let mut reply = Reply::new(false, http::StatusCode::OK);
        reply.field("a", "b\r\nc: d");
        assert_eq!(reply.finish(), b"HTTP/1.0 200 OK\r\na: b  c: d\r\n\r\n");
    }
}
