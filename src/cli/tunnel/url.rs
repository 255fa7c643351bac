//! Where the daemon is: `http://HOST:PORT[/PREFIX]` or `unix:///PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) place: Place,
    /// The value of the field `host`.
    pub(super) host: String,
    /// What stands before `/v1`; empty, or it begins with a slash and does not end in one.
    pub(super) prefix: String,
}

/// What is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("http") => http(text),
            Some("unix") => unix(&text["unix://".len()..]),
            Some("https" | "wss") => Err(
                "TLS is not spoken here; run a TLS proxy on this machine (stunnel, socat) and name its http:// address"
                    .into(),
            ),
            Some(_) => Err("the scheme is neither http nor unix".into()),
            None => Err("http://HOST:PORT or unix:///PATH is expected".into()),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Unix(path) => write!(f, "unix://{}", path.display()),
            Place::Tcp(..) => write!(f, "http://{}{}", self.host, self.prefix),
        }
    }
}

fn unix(path: &str) -> Result<Url, String> {
    if !path.starts_with('/') {
        return Err("the path must be absolute, as in unix:///run/ringd.sock".into());
    }
    Ok(Url {
        place: Place::Unix(path.into()),
        host: "localhost".into(),
        prefix: String::new(),
    })
}

fn http(text: &str) -> Result<Url, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let authority = uri.authority().ok_or("it names no host")?;
    if authority.as_str().contains('@') {
        return Err("a user name has no place in it; the token is an option".into());
    }
    if uri.query().is_some() {
        return Err("a query has no place in it".into());
    }
    let host = authority.host().trim_matches(['[', ']']);
    if host.is_empty() {
        return Err("it names no host".into());
    }
    let port = match authority.as_str().rsplit_once(':') {
        Some((_, digits)) if !digits.ends_with(']') => {
            let port = digits.parse().ok().filter(|port| *port != 0);
            port.ok_or("the port is not a number from 1 to 65535")?
        }
        _ => 80,
    };
    Ok(Url {
        place: Place::Tcp(host.to_owned(), port),
        host: authority.as_str().to_owned(),
        prefix: uri.path().trim_end_matches('/').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, place: Place, host: &str, prefix: &str) {
        let expected = Url {
            place,
            host: host.into(),
            prefix: prefix.into(),
        };
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }

    #[test]
    fn every_form_is_read() {
        let tcp = |host: &str, port| Place::Tcp(host.into(), port);
        check("http://a:9000", tcp("a", 9000), "a:9000", "");
        check("http://a", tcp("a", 80), "a", "");
        check(
            "http://127.0.0.1:9000/",
            tcp("127.0.0.1", 9000),
            "127.0.0.1:9000",
            "",
        );
        check(
            "http://[::1]:9000/vm/7/",
            tcp("::1", 9000),
            "[::1]:9000",
            "/vm/7",
        );
        check("http://[::1]", tcp("::1", 80), "[::1]", "");
        check(
            "unix:///run/x",
            Place::Unix("/run/x".into()),
            "localhost",
            "",
        );
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        for (text, why) in [
            ("", "expected"),
            ("localhost:9000", "expected"),
            ("https://a:9000", "TLS proxy"),
            ("wss://a:9000", "TLS proxy"),
            ("ftp://a", "scheme"),
            ("unix://run/x", "absolute"),
            ("http://", ""),
            ("http://:9000", ""),
            ("http://a:0", "port"),
            ("http://a:65536", "port"),
            ("http://a:x", ""),
            ("http://user@a", "user"),
            ("http://a/?x=1", "query"),
        ] {
            let told = text.parse::<Url>().expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
