//! The head of a request (RFC 9112, sections 2 to 7): parsed once, refused where two readers could disagree.

use std::ops::Range;
use std::sync::Arc;

/// Bounds on a head.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the whole head.
    pub bytes: usize,
    /// Header fields, at most [`MOST_FIELDS`].
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
}

/// Fields that a head can have at the very most, whatever is configured.
pub const MOST_FIELDS: usize = 256;

/// What a parse of the bytes so far has come to.
#[derive(Debug)]
pub enum Step<T> {
    /// Not all bytes are here.
    More,
    /// The value, and how many bytes it took.
    Done(T, usize),
}

/// Why a head is refused; the connection is closed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not HTTP/1, or not safe to interpret (400); says what is wrong.
    Bad(&'static str),
    /// Too many fields or too many bytes (431).
    TooLarge,
    /// The target is too long (414).
    TargetTooLong,
    /// The preface of HTTP/2, which is not spoken here: closed without an answer.
    Http2,
}

/// How the body of a request is delimited (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; 0 when there is no body.
    Length(u64),
    /// The chunked coding.
    Chunked,
}

/// A request head.
#[derive(Debug)]
pub struct Head {
    /// The method as sent.
    pub method: Box<str>,
    /// The path of the target, still escaped.
    pub path: Box<str>,
    /// The query of the target, still escaped, without the `?`.
    pub query: Box<[u8]>,
    /// True for HTTP/1.1, false for HTTP/1.0.
    pub is_11: bool,
    /// Every header field.
    pub fields: Fields,
    /// How the body is delimited.
    pub framing: Framing,
    /// True when the client keeps the connection for another request.
    pub keep_alive: bool,
    /// True when the client waits for 100 (Continue) before it sends the body.
    pub expects_continue: bool,
}

/// Header fields: one copy of the head's bytes, and where the names and values stand in it.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Arc<[u8]>,
    places: Arc<[(Range<u32>, Range<u32>)]>,
}

impl Fields {
    /// The value of the first field called `name` (any case).
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.places
            .iter()
            .find(|(place, _)| self.slice(place).eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, place)| self.slice(place))
    }

    /// The values of every field called `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.places
            .iter()
            .filter(|(place, _)| self.slice(place).eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, place)| self.slice(place))
    }

    /// True when the list field called `name` contains `token` (both in any case).
    pub fn lists(&self, name: &str, token: &str) -> bool {
        self.all(name).any(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        })
    }

    fn slice(&self, place: &Range<u32>) -> &[u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    fn of(buffer: &[u8], headers: &[httparse::Header<'_>]) -> Self {
        // A head has at most `Limits::bytes` bytes, so every position fits.
        let place = |part: &[u8]| {
            let start = part.as_ptr().addr() - buffer.as_ptr().addr();
            let start = u32::try_from(start).unwrap_or(u32::MAX);
            start..start + u32::try_from(part.len()).unwrap_or(u32::MAX)
        };
        Self {
            bytes: Arc::from(buffer),
            places: headers
                .iter()
                .map(|header| (place(header.name.as_bytes()), place(header.value)))
                .collect(),
        }
    }
}

/// Parses the head at the start of `buffer`.
///
/// # Errors
/// A [`Refusal`] as soon as it is certain.
pub fn parse(buffer: &[u8], limits: &Limits) -> Result<Step<Head>, Refusal> {
    if buffer.starts_with(PREFACE) {
        return Err(Refusal::Http2);
    }
    if PREFACE.starts_with(buffer) {
        return Ok(Step::More);
    }
    let mut storage = [const { std::mem::MaybeUninit::uninit() }; MOST_FIELDS];
    let room = &mut storage[..limits.fields.min(MOST_FIELDS)];
    let mut request = httparse::Request::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_request_with_uninit_headers(&mut request, buffer, room)
        .map_err(refusal)?;
    let target = request.path.unwrap_or_default();
    if target.len() > limits.target {
        return Err(Refusal::TargetTooLong);
    }
    let used = match status {
        httparse::Status::Complete(used) if used <= limits.bytes => used,
        httparse::Status::Complete(_) => return Err(Refusal::TooLarge),
        httparse::Status::Partial => return unfinished(buffer, request.method.is_some(), limits),
    };
    let fields = Fields::of(&buffer[..used], request.headers);
    let is_11 = request.version == Some(1);
    let (path, query) = split(target);
    let head = Head {
        method: request.method.unwrap_or_default().into(),
        path: path.into(),
        query: query.as_bytes().into(),
        is_11,
        framing: framing(&fields, is_11)?,
        keep_alive: keeps_alive(&fields, is_11),
        expects_continue: is_11 && fields.lists("expect", "100-continue"),
        fields,
    };
    if head.fields.all("host").nth(1).is_some() {
        return Err(Refusal::Bad("more than one host field"));
    }
    Ok(Step::Done(head, used))
}

/// A head that has not ended: more, unless a bound is passed already.
fn unfinished(buffer: &[u8], has_method: bool, limits: &Limits) -> Result<Step<Head>, Refusal> {
    let line = buffer.iter().position(|byte| *byte == b'\n');
    // While the request line is open, the rest of it is target (the method is short).
    if line.is_none() && has_method && buffer.len() > limits.target + METHOD_AND_VERSION {
        return Err(Refusal::TargetTooLong);
    }
    if buffer.len() > limits.bytes {
        return Err(Refusal::TooLarge);
    }
    Ok(Step::More)
}

fn refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => Refusal::TooLarge,
        httparse::Error::Version => Refusal::Bad("the version is not HTTP/1.0 or HTTP/1.1"),
        httparse::Error::HeaderName => Refusal::Bad("a header name has an invalid byte"),
        httparse::Error::HeaderValue => Refusal::Bad("a header value has an invalid byte"),
        httparse::Error::NewLine => Refusal::Bad("a line does not end as a line ends"),
        httparse::Error::Token | httparse::Error::Status => {
            Refusal::Bad("the request line is not HTTP")
        }
    }
}

/// The body's framing; whatever two readers could see differently is refused (request smuggling).
fn framing(fields: &Fields, is_11: bool) -> Result<Framing, Refusal> {
    let mut lengths = fields.all("content-length");
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(Refusal::Bad("more than one content-length"));
    }
    let mut codings = fields.all("transfer-encoding");
    let coding = codings.next();
    match (length, coding) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(_), Some(_)) => Err(Refusal::Bad("content-length beside transfer-encoding")),
        (None, Some(coding)) => {
            let only = codings.next().is_none() && coding.eq_ignore_ascii_case(b"chunked");
            match (only, is_11) {
                (true, true) => Ok(Framing::Chunked),
                (true, false) => Err(Refusal::Bad("transfer-encoding in HTTP/1.0")),
                (false, _) => Err(Refusal::Bad("a transfer-encoding other than chunked")),
            }
        }
        (Some(text), None) => decimal(text)
            .map(Framing::Length)
            .ok_or(Refusal::Bad("content-length is not a number")),
    }
}

/// Digits only: no sign, no space, no list, no overflow.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn keeps_alive(fields: &Fields, is_11: bool) -> bool {
    if fields.lists("connection", "close") {
        return false;
    }
    is_11 || fields.lists("connection", "keep-alive")
}

/// Path and query of a target in origin or absolute form (RFC 9112, section 3.2).
fn split(target: &str) -> (&str, &str) {
    let local = match target.split_once("://") {
        Some((scheme, rest)) if !target.starts_with('/') && !scheme.contains('?') => {
            match rest.find(['/', '?']) {
                Some(at) => &rest[at..],
                None => "/",
            }
        }
        _ => target,
    };
    match local.split_once('?') {
        Some(("", query)) => ("/", query),
        Some((path, query)) => (path, query),
        None => (local, ""),
    }
}

/// How the preface of HTTP/2 begins (RFC 9113, section 3.4); no HTTP/1 request begins like it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
const METHOD_AND_VERSION: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 4096,
        fields: 5,
        target: 100,
    };

    fn parsed(text: &str) -> Head {
        match parse(text.as_bytes(), &LIMITS) {
            Ok(Step::Done(head, used)) if used == text.len() => head,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn refused(text: &str) -> Refusal {
        match parse(text.as_bytes(), &LIMITS) {
            Err(refusal) => refusal,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn is_bad(text: &str) {
        assert!(matches!(refused(text), Refusal::Bad(_)), "{text:?}");
    }

    #[test]
    fn a_head_is_the_same_wherever_it_is_cut() {
        let text = b"PUT /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
        for cut in 0..text.len() {
            let step = parse(&text[..cut], &LIMITS);
            assert!(matches!(step, Ok(Step::More)), "cut at {cut}: {step:?}");
        }
        assert!(matches!(parse(text, &LIMITS), Ok(Step::Done(_, used)) if used == text.len()));
    }

    #[test]
    fn fields_are_found_in_any_case() {
        let head = parsed("GET / HTTP/1.1\r\nAuthorization: Bearer  x\r\n\r\n");
        assert_eq!(head.fields.first("authorization"), Some(&b"Bearer  x"[..]));
        assert_eq!(head.fields.first("host"), None);
    }

    #[test]
    fn the_target_may_be_absolute() {
        for (target, path, query) in [
            ("/a/b?c=d", "/a/b", "c=d"),
            ("http://h:1/a?b", "/a", "b"),
            ("http://h", "/", ""),
            ("http://h?x=1", "/", "x=1"),
            ("/a?u=http://b/c", "/a", "u=http://b/c"),
            ("*", "*", ""),
        ] {
            let head = parsed(&format!("GET {target} HTTP/1.1\r\n\r\n"));
            assert_eq!(
                (&*head.path, &*head.query),
                (path, query.as_bytes()),
                "{target}"
            );
        }
    }

    #[test]
    fn a_bare_line_feed_ends_a_line() {
        assert_eq!(
            parsed("GET / HTTP/1.1\nhost: x\n\n").fields.first("host"),
            Some(&b"x"[..])
        );
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        assert!(parsed("GET / HTTP/1.1\r\n\r\n").keep_alive);
        assert!(!parsed("GET / HTTP/1.1\r\nconnection: x, Close\r\n\r\n").keep_alive);
        assert!(!parsed("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(parsed("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n").keep_alive);
    }

    #[test]
    fn what_could_smuggle_a_request_is_refused() {
        is_bad("POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length: 3, 3\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length:\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\nx: y\r\n folded\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ncontent-length : 3\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\nx: a\rb\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\nbad name: 3\r\n\r\n");
        is_bad("POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n");
        is_bad(
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        is_bad("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n");
        is_bad("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
    }

    #[test]
    fn what_is_not_http_is_refused_at_once() {
        is_bad("HELLO\r\n");
        is_bad("\u{16}\u{3}\u{1}\0\u{1}");
        is_bad("GET / HTTP/3.0\r\n\r\n");
    }

    #[test]
    fn the_preface_of_http2_is_recognised() {
        assert_eq!(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Refusal::Http2);
    }

    #[test]
    fn every_bound_holds() {
        let long = "a".repeat(200);
        assert_eq!(
            refused(&format!("GET /{long} HTTP/1.1\r\n\r\n")),
            Refusal::TargetTooLong
        );
        assert_eq!(refused(&format!("GET /{long}")), Refusal::TargetTooLong);
        let fields = "a: b\r\n".repeat(6);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\n{fields}\r\n")),
            Refusal::TooLarge
        );
        let big = "b".repeat(5000);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\na: {big}")),
            Refusal::TooLarge
        );
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\na: {big}\r\n\r\n")),
            Refusal::TooLarge
        );
    }

    #[test]
    fn an_expectation_counts_in_http_11_only() {
        assert!(parsed("PUT / HTTP/1.1\r\nexpect: 100-Continue\r\n\r\n").expects_continue);
        assert!(!parsed("PUT / HTTP/1.0\r\nexpect: 100-continue\r\n\r\n").expects_continue);
    }
}
