//! The head of a request.

use std::fmt::Write;

use super::Endpoint;

/// What is asked. A GET or DELETE has no body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Path and query, as they go on the wire.
    pub(crate) target: &'a str,
    /// Further fields, each with its line end.
    pub(crate) fields: &'a str,
    /// The body, when it is small.
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn get(target: &'a str) -> Self {
        Self::of("GET", target, b"")
    }

    pub(crate) fn of(method: &'a str, target: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            target,
            fields: "",
            body,
        }
    }

    pub(crate) fn with(mut self, fields: &'a str) -> Self {
        self.fields = fields;
        self
    }

    /// The head for a body of `length` bytes.
    pub(super) fn head(&self, endpoint: &Endpoint, length: u64) -> String {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\n",
            self.method, self.target, endpoint.address
        );
        // Writing to a String cannot fail.
        if !endpoint.token.is_empty() {
            let _ = write!(head, "authorization: Bearer {}\r\n", endpoint.token);
        }
        let media = match self.method {
            "GET" | "HEAD" | "DELETE" => None,
            "PUT" | "PATCH" => Some("application/octet-stream"),
            _ => Some("application/json"),
        };
        if let Some(media) = media {
            let has_media = self.fields.contains("content-type:");
            if !has_media {
                let _ = write!(head, "content-type: {media}\r\n");
            }
            let _ = write!(head, "content-length: {length}\r\n");
        }
        head + self.fields + "\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_who_asks_and_how_much_comes() {
        let endpoint = Endpoint {
            address: ([127, 0, 0, 1], 80).into(),
            token: "t".to_owned(),
        };
        let head = Request::of("POST", "/x", b"{}")
            .with("accept: a/b\r\n")
            .head(&endpoint, 2);
        assert_eq!(
            head,
            "POST /x HTTP/1.1\r\nhost: 127.0.0.1:80\r\nauthorization: Bearer t\r\n\
             content-type: application/json\r\ncontent-length: 2\r\naccept: a/b\r\n\r\n"
        );
        let plain = Endpoint {
            token: String::new(),
            ..endpoint
        };
        assert_eq!(
            Request::get("/x").head(&plain, 0),
            "GET /x HTTP/1.1\r\nhost: 127.0.0.1:80\r\n\r\n"
        );
    }
}
