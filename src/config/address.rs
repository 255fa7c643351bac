//! Where to listen: TCP, a Unix socket, vsock, or a descriptor that was handed over.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// One address of `--listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port` or `tcp://host:port`; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// `unix:///path`.
    Unix(PathBuf),
    /// `vsock://cid:port`; the context id may be `any`.
    Vsock { cid: u32, port: u32 },
    /// `fd://N`: a listening socket that the parent opened.
    Fd(i32),
}

/// The context id that binds every address of the guest (VMADDR_CID_ANY, vsock(7)).
const ANY_CID: u32 = u32::MAX;

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |what: &str| format!("{text:?} is not an address: {what}");
        match text.split_once("://") {
            None | Some(("tcp", _)) => {
                let host = text.strip_prefix("tcp://").unwrap_or(text);
                let mut found = host
                    .to_socket_addrs()
                    .map_err(|error| bad(&format!("host:port is expected ({error})")))?;
                found
                    .next()
                    .map(Self::Tcp)
                    .ok_or_else(|| bad("the host has no address"))
            }
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("unix", _)) => Err(bad(
                "the path must be absolute, as in unix:///run/ringd.sock",
            )),
            Some(("vsock", rest)) => {
                let pair = rest.split_once(':');
                let (cid, port) = pair.ok_or_else(|| bad("vsock://cid:port is expected"))?;
                let cid = match cid {
                    "any" | "-1" => ANY_CID,
                    number => number.parse().map_err(|_| bad("the cid is not a number"))?,
                };
                let port = port.parse().map_err(|_| bad("the port is not a number"))?;
                Ok(Self::Vsock { cid, port })
            }
            Some(("fd", number)) => match number.parse() {
                Ok(number) if number > 2 => Ok(Self::Fd(number)),
                _ => Err(bad("a descriptor number above 2 is expected")),
            },
            Some(_) => Err(bad("the scheme is none of tcp, unix, vsock, fd")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Vsock { cid: ANY_CID, port } => write!(f, "vsock://any:{port}"),
            Self::Vsock { cid, port } => write!(f, "vsock://{cid}:{port}"),
            Self::Fd(number) => write!(f, "fd://{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written() {
        for (text, written) in [
            ("127.0.0.1:80", "tcp://127.0.0.1:80"),
            ("tcp://[::1]:80", "tcp://[::1]:80"),
            ("unix:///run/x.sock", "unix:///run/x.sock"),
            ("vsock://3:52", "vsock://3:52"),
            ("vsock://any:52", "vsock://any:52"),
            ("fd://3", "fd://3"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), written);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_name() {
        for text in [
            "",
            "80",
            "127.0.0.1",
            "unix://relative",
            "vsock://3",
            "fd://2",
            "ftp://x:1",
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}
