//! The chunked transfer coding (RFC 9112, section 7.1), strict about line ends.

/// What is wrong with a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the digits of a size; how many there were.
    Size(u8),
    /// In the white space that may stand before an extension.
    Blank,
    /// In an extension, up to the line's end.
    Extension,
    /// After the CR of a size line.
    SizeEnd,
    /// In the data of a chunk.
    Data,
    /// Before the CR behind the data.
    DataReturn,
    /// Before the LF behind the data.
    DataEnd,
    /// At the start of a trailer line.
    TrailerStart,
    /// In a trailer line.
    Trailer,
    /// After the CR of an empty trailer line.
    LastEnd,
    /// Behind the last byte.
    Done,
}

/// A decoder that is fed pieces cut anywhere.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// Data bytes left in this chunk (the size while it is being read).
    left: u64,
    /// Bytes of extensions and trailers so far.
    extra: usize,
}

/// Bytes of extensions and trailers that are tolerated in one body.
const MOST_EXTRA: usize = 16 * 1024;

impl Default for Decoder {
    fn default() -> Self {
        Self {
            state: State::Size(0),
            left: 0,
            extra: 0,
        }
    }
}

impl Decoder {
    /// True behind the last byte of the body.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Data bytes that stand next in the stream, with nothing in between; 0 when a line comes first.
    pub fn run(&self) -> u64 {
        match self.state {
            State::Data => self.left,
            _ => 0,
        }
    }

    /// Says that `count` bytes of the run were taken without going through [`Decoder::feed`].
    pub fn skip(&mut self, count: u64) {
        assert!(count <= self.run(), "only a run can be skipped");
        self.left -= count;
        if self.left == 0 {
            self.state = State::DataReturn;
        }
    }

    /// Decodes from `input`, appends at most `room` data bytes to `out`, and answers how many input bytes it took.
    ///
    /// # Errors
    /// [`Broken`] when the coding is violated; the connection cannot be used further.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>, room: usize) -> Result<usize, Broken> {
        let mut at = 0;
        let full = out.len() + room;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let fits = (full - out.len()).min(input.len() - at);
                if fits == 0 {
                    break;
                }
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(fits);
                out.extend_from_slice(&input[at..at + take]);
                self.skip(take as u64);
                at += take;
                continue;
            }
            self.step(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<(), Broken> {
        self.state = match (self.state, byte) {
            (State::Size(16..), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                return Err(Broken("a chunk size has more than 16 digits"));
            }
            (State::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                self.left = self.left << 4 | digit;
                State::Size(digits + 1)
            }
            (State::Size(1..) | State::Extension, b'\r') => State::SizeEnd,
            (State::Size(1..) | State::Blank, b' ' | b'\t') => self.extra(State::Blank)?,
            (State::Size(1..) | State::Blank, b';') => self.extra(State::Extension)?,
            (State::Extension, b'\n') => return Err(Broken("a chunk size line ends without CR")),
            (State::Extension, _) => self.extra(State::Extension)?,
            (State::SizeEnd, b'\n') if self.left == 0 => State::TrailerStart,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataReturn, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => State::Size(0),
            (State::TrailerStart, b'\r') => State::LastEnd,
            (State::LastEnd, b'\n') => State::Done,
            (State::Trailer, b'\n') => State::TrailerStart,
            (State::TrailerStart | State::Trailer, _) if byte != b'\n' => {
                self.extra(State::Trailer)?
            }
            (State::Size(_) | State::Blank, _) => {
                return Err(Broken("a chunk size is not hexadecimal"));
            }
            _ => return Err(Broken("a chunk does not end with CRLF")),
        };
        Ok(())
    }

    fn extra(&mut self, next: State) -> Result<State, Broken> {
        self.extra += 1;
        if self.extra > MOST_EXTRA {
            return Err(Broken("chunk extensions and trailers are too long"));
        }
        Ok(next)
    }
}

/// Writes the line before a chunk of `length` bytes into `space`, and answers it.
pub fn size_line(length: u64, space: &mut [u8; SIZE_LINE]) -> &[u8] {
    let mut at = SIZE_LINE - 2;
    space[at..].copy_from_slice(b"\r\n");
    let mut rest = length;
    loop {
        at -= 1;
        space[at] = b"0123456789abcdef"[(rest % 16) as usize];
        rest /= 16;
        if rest == 0 {
            return &space[at..];
        }
    }
}

/// Bytes of the longest line before a chunk.
pub const SIZE_LINE: usize = 16 + 2;

/// What follows the last chunk: trailer fields, names in lower case, and the end (RFC 9112, section 7.1.2).
///
/// Bytes that cannot stand in a value (CR, LF, NUL) become spaces.
pub fn end(trailers: &[(&str, String)]) -> Vec<u8> {
    let mut bytes = b"0\r\n".to_vec();
    for (name, value) in trailers {
        super::reply::put_field(name, value, &mut bytes);
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_carries_trailers() {
        assert_eq!(end(&[]), b"0\r\n\r\n");
        let trailers = [("a", "b\r\nc".to_owned())];
        assert_eq!(end(&trailers), b"0\r\na: b  c\r\n\r\n");
    }

    #[test]
    fn a_size_is_written_in_hexadecimal() {
        for length in [
            0,
            1,
            9,
            10,
            15,
            16,
            255,
            4096,
            0x0123_4567_89ab_cdef,
            u64::MAX,
        ] {
            let mut space = [0; SIZE_LINE];
            let expected = format!("{length:x}\r\n");
            assert_eq!(size_line(length, &mut space), expected.as_bytes());
        }
    }

    const BODY: &[u8] = b"3\r\nabc\r\n0a ;x=y\r\n0123456789\r\n0\r\nt: u\r\n\r\nGET";

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Broken> {
        let mut decoder = Decoder::default();
        let (mut out, mut used) = (Vec::new(), 0);
        for piece in pieces {
            used += decoder.feed(piece, &mut out, 1000)?;
        }
        Ok((out, used, decoder.is_done()))
    }

    #[test]
    fn a_body_is_the_same_wherever_it_is_cut() {
        for cut in 0..=BODY.len() {
            let (front, back) = BODY.split_at(cut);
            let (out, used, done) = decode(&[front, back]).expect("the body is well formed");
            assert_eq!(out, b"abc0123456789", "cut at {cut}");
            assert_eq!((used, done), (BODY.len() - 3, true), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = BODY.chunks(1).collect();
        assert_eq!(decode(&bytes).expect("well formed").0, b"abc0123456789");
    }

    #[test]
    fn no_more_than_the_room_is_decoded() {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        let used = decoder.feed(BODY, &mut out, 2).expect("well formed");
        assert_eq!((out.as_slice(), used), (&b"ab"[..], 5));
        assert_eq!(decoder.run(), 1);
    }

    #[test]
    fn what_is_broken_is_refused() {
        for body in [
            "x\r\n",
            "\r\n",
            "3\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "1ffffffffffffffff\r\n",
            "00000000000000000",
            "-1\r\n",
            "0x3\r\n",
            "3;a\nabc",
            "3 3\r\nabc",
            "3 \r\nabc",
            "0\r\n\n",
        ] {
            assert!(decode(&[body.as_bytes()]).is_err(), "{body:?}");
        }
    }

    #[test]
    fn endless_extensions_are_refused() {
        let body = format!("3;{}", "x".repeat(MOST_EXTRA));
        assert!(decode(&[body.as_bytes()]).is_err());
    }
}
