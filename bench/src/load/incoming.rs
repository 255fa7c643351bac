//! A response as it arrives in pieces: head first, then the body without its framing.

use anyhow::{Context, Result, bail, ensure};

use super::head::{Head, parse_head};

/// One response, of known length, chunked, or ended by the end of the connection (RFC 9112, section 6).
pub(crate) struct Incoming {
    early: Vec<u8>,
    head: Option<Head>,
    rest: Rest,
}

/// What is still to come of a body.
enum Rest {
    Length(u64),
    Chunks(Chunk),
    UntilClose,
}

/// Where in the chunked framing the next byte is.
#[derive(Clone, Copy)]
enum Chunk {
    Size(u64),
    Data(u64),
    DataEnd,
    /// A line after the last chunk, with its length so far.
    Trailer(u64),
    Done,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            early: Vec::new(),
            head: None,
            rest: Rest::UntilClose,
        }
    }

    /// Bytes of the body that are still to come, where the head said how many.
    pub(crate) fn left(&self) -> Option<u64> {
        match (&self.head, &self.rest) {
            (Some(_), Rest::Length(left)) => Some(*left),
            _ => None,
        }
    }

    /// Counts bytes of a body of known length that were dropped. True when the response is whole.
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        if let Rest::Length(left) = &mut self.rest {
            *left = left.saturating_sub(count);
        }
        self.left() == Some(0)
    }

    pub(crate) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Takes bytes of the response and shows those of the body to `sink`. True when the response is whole.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(&Head, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Some(head) = &self.head else {
            return self.take_head(bytes, sink);
        };
        match &mut self.rest {
            Rest::Length(left) => {
                ensure!(
                    bytes.len() as u64 <= *left,
                    "more came than the response has"
                );
                *left -= bytes.len() as u64;
                sink(head, bytes)?;
                Ok(*left == 0)
            }
            Rest::Chunks(chunk) => take_chunks(chunk, bytes, &mut |part| sink(head, part)),
            Rest::UntilClose => sink(head, bytes).map(|()| false),
        }
    }

    /// The connection has ended. An error when the response had not.
    pub(crate) fn close(&self) -> Result<()> {
        match (&self.head, &self.rest) {
            (Some(_), Rest::UntilClose) => Ok(()),
            _ => bail!("the server closed the connection within a response"),
        }
    }

    fn take_head(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(&Head, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.early.extend_from_slice(bytes);
        let Some((head, used)) = parse_head(&self.early)? else {
            ensure!(
                self.early.len() <= MAX_HEAD_BYTES,
                "a response head is too long"
            );
            return Ok(false);
        };
        self.rest = match head.length {
            _ if head.is_chunked => Rest::Chunks(Chunk::Size(0)),
            Some(length) => Rest::Length(length),
            None => Rest::UntilClose,
        };
        self.head = Some(head);
        let early = std::mem::take(&mut self.early);
        self.take(&early[used..], sink)
    }
}

const MAX_HEAD_BYTES: usize = 64 << 10;

fn take_chunks(
    chunk: &mut Chunk,
    mut bytes: &[u8],
    sink: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    while let Some((first, others)) = bytes.split_first() {
        *chunk = match *chunk {
            Chunk::Data(left) => {
                let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                sink(&bytes[..count])?;
                bytes = &bytes[count..];
                match left - count as u64 {
                    0 => Chunk::DataEnd,
                    left => Chunk::Data(left),
                }
            }
            Chunk::Done => bail!("more came than the response has"),
            framing => {
                bytes = others;
                after(framing, *first)?
            }
        };
    }
    Ok(matches!(chunk, Chunk::Done))
}

/// One byte of framing.
fn after(chunk: Chunk, byte: u8) -> Result<Chunk> {
    Ok(match (chunk, byte) {
        (Chunk::Size(size), b'\n') => match size {
            0 => Chunk::Trailer(0),
            size => Chunk::Data(size),
        },
        (Chunk::DataEnd, b'\n') => Chunk::Size(0),
        (Chunk::Trailer(0), b'\n') => Chunk::Done,
        (Chunk::Trailer(_), b'\n') => Chunk::Trailer(0),
        (Chunk::Size(_) | Chunk::DataEnd | Chunk::Trailer(_), b'\r') => chunk,
        (Chunk::Trailer(length), _) => Chunk::Trailer(length + 1),
        (Chunk::Size(size), digit) => {
            let digit = char::from(digit)
                .to_digit(16)
                .with_context(|| format!("bad chunk size byte {digit:#x}"))?;
            Chunk::Size(size * 16 + u64::from(digit))
        }
        _ => bail!("bad byte {byte:#x} in the chunked framing"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n, chunked world!\r\n0\r\n\r\n";

    #[test]
    fn chunks_are_joined_wherever_the_bytes_are_cut() {
        for cut in 0..=CHUNKED.len() {
            let mut body = Vec::new();
            let mut incoming = Incoming::new();
            let mut whole = false;
            for part in [&CHUNKED[..cut], &CHUNKED[cut..]] {
                whole = incoming
                    .take(part, &mut |_, bytes| {
                        body.extend_from_slice(bytes);
                        Ok(())
                    })
                    .expect("nothing is wrong");
            }
            assert!(whole && body == b"hello, chunked world!", "cut at {cut}");
        }
    }

    #[test]
    fn bytes_after_the_end_are_refused() {
        let longer = [CHUNKED, b"x"].concat();
        assert!(Incoming::new().take(&longer, &mut |_, _| Ok(())).is_err());
    }

    #[test]
    fn a_connection_that_ends_early_is_an_error() {
        let mut incoming = Incoming::new();
        incoming
            .take(&CHUNKED[..60], &mut |_, _| Ok(()))
            .expect("nothing is wrong");
        assert!(incoming.close().is_err());
    }
}
