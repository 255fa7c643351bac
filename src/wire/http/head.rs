//! The head of a request (RFC 9112, sections 2 to 7): parsed once, refused where two readers could disagree.

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
    method: Place,
    /// Empty where the target has none: that is `/`.
    path: Place,
    query: Place,
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

impl Head {
    /// The method as sent.
    pub fn method(&self) -> &str {
        self.fields.text(self.method)
    }

    /// True for HEAD.
    pub fn is_head(&self) -> bool {
        self.fields.slice(self.method) == b"HEAD"
    }

    /// The path of the target, still escaped.
    pub fn path(&self) -> &str {
        match self.fields.text(self.path) {
            "" => "/",
            path => path,
        }
    }

    /// The query of the target, still escaped, without the `?`.
    pub fn query(&self) -> &[u8] {
        self.fields.slice(self.query)
    }
}

/// Header fields: one copy of the head's bytes, and where the names and values stand in it.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Box<[u8]>,
    places: Box<[(Place, Place)]>,
}

/// Where a part of a head stands: its first byte, and the one behind its last.
#[derive(Clone, Copy, Debug, Default)]
struct Place(u32, u32);

impl Place {
    /// Where `part` of `buffer` stands. A head has at most `Limits::bytes` bytes, so every position fits.
    fn of(part: &[u8], buffer: &[u8]) -> Self {
        let start = part.as_ptr().addr() - buffer.as_ptr().addr();
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        Self(start, start + u32::try_from(part.len()).unwrap_or(u32::MAX))
    }
}

impl Fields {
    /// The value of the first field called `name` (any case).
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        let is_named = |place: Place| self.slice(place).eq_ignore_ascii_case(name.as_bytes());
        let named = self.places.iter().find(|(place, _)| is_named(*place));
        named.map(|(_, place)| self.slice(*place))
    }

    /// The values of every field called `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        let is_named = |place: Place| self.slice(place).eq_ignore_ascii_case(name.as_bytes());
        let named = self
            .places
            .iter()
            .filter(move |(place, _)| is_named(*place));
        named.map(|(_, place)| self.slice(*place))
    }

    fn slice(&self, place: Place) -> &[u8] {
        &self.bytes[place.0 as usize..place.1 as usize]
    }

    fn text(&self, place: Place) -> &str {
        // The parser takes nothing but ASCII for a method, and nothing but UTF-8 for a target.
        std::str::from_utf8(self.slice(place)).unwrap_or_default()
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
    let is_11 = request.version == Some(1);
    let notes = Notes::of(request.headers);
    let (path, query) = split(target);
    let place = |part: &[u8]| Place::of(part, buffer);
    let places = request.headers.iter();
    let places = places.map(|header| (place(header.name.as_bytes()), place(header.value)));
    let head = Head {
        method: request
            .method
            .map_or(Place::default(), |method| place(method.as_bytes())),
        path: path.map_or(Place::default(), |path| place(path.as_bytes())),
        query: query.map_or(Place::default(), |query| place(query.as_bytes())),
        is_11,
        framing: notes.framing(is_11)?,
        keep_alive: !notes.closes && (is_11 || notes.keeps),
        expects_continue: is_11 && notes.expects,
        fields: Fields {
            bytes: Box::from(&buffer[..used]),
            places: places.collect(),
        },
    };
    if notes.hosts > 1 {
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

/// What the fields say about the connection and the body, seen in one pass.
#[derive(Default)]
struct Notes<'a> {
    hosts: usize,
    length: Option<&'a [u8]>,
    lengths: usize,
    coding: Option<&'a [u8]>,
    codings: usize,
    closes: bool,
    keeps: bool,
    expects: bool,
}

impl<'a> Notes<'a> {
    fn of(headers: &[httparse::Header<'a>]) -> Self {
        let mut notes = Self::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            // Most fields are told apart by the length of their names.
            match header.name.len() {
                4 if is("host") => notes.hosts += 1,
                6 if is("expect") => notes.expects |= says(header.value, "100-continue"),
                10 if is("connection") => {
                    notes.closes |= says(header.value, "close");
                    notes.keeps |= says(header.value, "keep-alive");
                }
                14 if is("content-length") => {
                    notes.lengths += 1;
                    notes.length = Some(header.value);
                }
                17 if is("transfer-encoding") => {
                    notes.codings += 1;
                    notes.coding = Some(header.value);
                }
                _ => {}
            }
        }
        notes
    }

    /// The body's framing; whatever two readers could see differently is refused (request smuggling).
    fn framing(&self, is_11: bool) -> Result<Framing, Refusal> {
        if self.lengths > 1 {
            return Err(Refusal::Bad("more than one content-length"));
        }
        match (self.length, self.coding) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(_), Some(_)) => Err(Refusal::Bad("content-length beside transfer-encoding")),
            (None, Some(coding)) => {
                let only = self.codings == 1 && coding.eq_ignore_ascii_case(b"chunked");
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
}

/// Digits only: no sign, no space, no list, no overflow.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// True when the value of a list field contains `token`.
fn says(value: &[u8], token: &str) -> bool {
    let mut parts = value.split(|byte| *byte == b',');
    parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Path and query of a target in origin or absolute form (RFC 9112, section 3.2); an empty path is `/`.
fn split(target: &str) -> (Option<&str>, Option<&str>) {
    let absolute = match target.starts_with('/') {
        true => None,
        false => target.split_once("://"),
    };
    let local = match absolute {
        Some((scheme, rest)) if !scheme.contains('?') => match rest.find(['/', '?']) {
            Some(at) => &rest[at..],
            None => return (None, None),
        },
        _ => target,
    };
    match local.split_once('?') {
        Some((path, query)) => (Some(path), Some(query)),
        None => (Some(local), None),
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
                (head.path(), head.query()),
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
