//! A request, and the bytes it is sent as.

use serde_json::Value;

/// The token that tests install.
pub(crate) const TOKEN: &str = "tok-123";

/// One HTTP/1.1 request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Whole(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

impl Request {
    pub(crate) fn new(method: &str, target: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            target: target.into(),
            fields: vec![("host".into(), "guest".into())],
            body: Body::None,
        }
    }

    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn put(target: impl Into<String>) -> Self {
        Self::new("PUT", target)
    }

    pub(crate) fn post(target: impl Into<String>) -> Self {
        Self::new("POST", target)
    }

    /// What is asked for: path and query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Adds a key to the query.
    pub(crate) fn key(mut self, name: &str, value: &str) -> Self {
        let joint = if self.target.contains('?') { '&' } else { '?' };
        self.target.push(joint);
        self.target.push_str(&format!("{name}={value}"));
        self
    }

    /// Adds a header field.
    pub(crate) fn field(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// Presents the token that tests install.
    pub(crate) fn bearer(self) -> Self {
        self.field("authorization", format!("Bearer {TOKEN}"))
    }

    /// True when the token is presented already.
    pub(crate) fn is_bearer(&self) -> bool {
        self.fields.iter().any(|(name, _)| name == "authorization")
    }

    /// Sets a body of declared length.
    pub(crate) fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Whole(bytes.into());
        self
    }

    /// Sets a body that is sent in these chunks.
    pub(crate) fn chunks<C: Into<Vec<u8>>>(mut self, chunks: impl IntoIterator<Item = C>) -> Self {
        self.body = Body::Chunked(chunks.into_iter().map(Into::into).collect());
        self
    }

    /// Sets a JSON body with its content type.
    pub(crate) fn json(self, value: &Value) -> Self {
        self.json_text(value.to_string())
    }

    /// Sets any text as a body that claims to be JSON.
    pub(crate) fn json_text(self, text: impl Into<Vec<u8>>) -> Self {
        self.field("content-type", "application/json").body(text)
    }

    /// The head with its empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.body {
            Body::None => {}
            Body::Whole(bytes) => head.push_str(&format!("content-length: {}\r\n", bytes.len())),
            Body::Chunked(_) => head.push_str("transfer-encoding: chunked\r\n"),
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The body as it goes over the wire.
    pub(crate) fn payload(&self) -> Vec<u8> {
        match &self.body {
            Body::None => Vec::new(),
            Body::Whole(bytes) => bytes.clone(),
            Body::Chunked(chunks) => {
                let mut wire = Vec::new();
                for chunk in chunks {
                    wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    wire.extend_from_slice(chunk);
                    wire.extend_from_slice(b"\r\n");
                }
                wire.extend_from_slice(b"0\r\n\r\n");
                wire
            }
        }
    }

    /// Head and body.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.payload());
        bytes
    }
}

/// A target for a route that takes `path`, with everything escaped that a query would change.
pub(crate) fn with_path(route: &str, path: impl AsRef<std::ffi::OsStr>) -> String {
    use std::os::unix::ffi::OsStrExt;
    format!("{route}?path={}", escaped(path.as_ref().as_bytes()))
}

/// `/v1/fs/file` for this path.
pub(crate) fn file_at(path: impl AsRef<std::ffi::OsStr>) -> String {
    with_path("/v1/fs/file", path)
}

/// `/v1/fs/tar` for this path.
pub(crate) fn tar_at(path: impl AsRef<std::ffi::OsStr>) -> String {
    with_path("/v1/fs/tar", path)
}

/// Percent-encodes everything but what no URL ever changes.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}
