//! Tunnels: the request that opens one, judged before the connection leaves HTTP.

use std::rc::Rc;

use schemars::SchemaGenerator;

use super::contract::{Contract, Success};
use super::queries::TunnelQuery;
use super::row::{Access, Answer, Call, Form, Method, Row, Run, Speak, Talk, Upgrade};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::ring::socket::Socket;
use crate::tunnel::secure::Keys;
use crate::tunnel::{Caller, Limits, Place, Target, Tunnel};
use crate::wire::http::query::Query;
use crate::wire::websocket::handshake;

/// The rows of this room.
pub static ROWS: &[Row] = &[Row {
    name: "tcp",
    method: Method::Get,
    path: "/v1/tcp",
    access: Access::Bearer,
    form: Form::Json,
    about: "relays a WebSocket to a port of the guest's loopback address",
    errors: &[
        (
            Kind::Malformed,
            "the query does not name one target, or the request is no WebSocket handshake",
        ),
        (Kind::Denied, "the daemon does not allow this Unix socket"),
    ],
    contract: Contract {
        query: Some(SchemaGenerator::subschema_for::<TunnelQuery>),
        takes: &[
            ("connection", "`upgrade`"),
            ("upgrade", "`websocket`"),
            ("sec-websocket-version", "`13`"),
            ("sec-websocket-key", "16 bytes in base64"),
            (
                "sec-websocket-protocol",
                "`lambda-microvms` is taken up when it is offered; no other is",
            ),
        ],
        successes: &[(
            Success::Switched,
            "the connection is a WebSocket from here on: a close frame tells how the tunnel ended",
        )],
        tells: &[
            ("sec-websocket-accept", "the proof that the key was read"),
            (
                "sec-websocket-protocol",
                "`lambda-microvms`, if it was offered",
            ),
        ],
        ..Contract::NONE
    },
    run: |app, call| -> Run { Box::pin(open(app, call)) },
}];

/// What the query of a tunnel asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// A port, and whether the caller shall show who it is.
    Port(u16, bool),
    /// A Unix socket.
    Unix(String),
}

impl Wish {
    fn parse(query: &Query) -> Result<Self> {
        let port = query.one("port")?;
        let unix = query.one("unix")?;
        let is_verified = query.flag("identity", false)?;
        match (port, unix) {
            (Some(port), None) => Ok(Self::Port(number(&port)?, is_verified)),
            (None, Some(_)) if is_verified => {
                Err(Kind::Malformed
                    .told("identity is bound to a port: it cannot stand beside unix"))
            }
            (None, Some(path)) => Ok(Self::Unix(path)),
            (None, None) => Err(Kind::Malformed.told("port is missing")),
            (Some(_), Some(_)) => Err(Kind::Malformed.told("port and unix are both given")),
        }
    }
}

fn number(text: &str) -> Result<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number
        .ok_or_else(|| Kind::Malformed.told(format!("port is not a number up to 65535: {text:?}")))
}

async fn open(app: Rc<App>, call: Call) -> Result<Answer> {
    let wish = Wish::parse(&call.query)?;
    if call.head_only {
        return Err(Kind::Malformed.told("a tunnel is opened with GET"));
    }
    let fields = handshake::check(&call.fields, SUBPROTOCOL)?;
    // What follows the head would be both the body and the first frames.
    if call.body.remaining() != Some(0) {
        return Err(Kind::Malformed.told("a request that is upgraded has no body"));
    }
    let (target, is_verified) = match wish {
        Wish::Port(port, is_verified) => (Target::Port(port), is_verified),
        Wish::Unix(path) => {
            let place = Place::find(path.into(), &app.config.tunnel_unix).await?;
            (Target::Unix(place), false)
        }
    };
    Ok(Answer::Upgrade(Upgrade {
        protocol: "websocket",
        fields,
        speak: Box::new(Opened {
            app,
            target,
            is_verified,
        }),
    }))
}

/// A tunnel whose upgrade is about to be answered.
struct Opened {
    app: Rc<App>,
    target: Target,
    is_verified: bool,
}

impl Speak for Opened {
    fn speak<'a>(self: Box<Self>, socket: &'a Socket, ahead: Vec<u8>) -> Talk<'a>
    where
        Self: 'a,
    {
        let Self {
            app,
            target,
            is_verified,
        } = *self;
        let caller = match (is_verified, app.boot.identity()) {
            (false, _) => Caller::Anybody,
            (true, None) => Caller::Unverifiable,
            (true, Some(identity)) => Caller::Verified(Keys {
                seed: identity.seed,
                host_public_key: identity.host_public_key,
            }),
        };
        let limits = Limits {
            patience: app.config.limits.body_timeout,
            handshake: app.config.limits.head_timeout,
            drain: app.config.drain_timeout,
        };
        let tunnel = Tunnel {
            target,
            caller,
            tally: Rc::clone(&app.traffic.tunnels),
        };
        Box::pin(async move {
            let drain = &app.connections.drain;
            tunnel.run(socket, ahead, limits, drain).await;
        })
    }
}

/// The subprotocol that clients behind the platform's proxy offer (guest HTTP contract, section 8).
const SUBPROTOCOL: &str = "lambda-microvms";

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(query: &str) -> Option<Wish> {
        Wish::parse(&Query::parse(query.as_bytes())).ok()
    }

    #[test]
    fn a_query_names_one_target() {
        assert_eq!(wish("port=5432"), Some(Wish::Port(5432, false)));
        assert_eq!(wish("port=0&identity=0"), Some(Wish::Port(0, false)));
        assert_eq!(wish("identity=1&port=65535"), Some(Wish::Port(65535, true)));
        assert_eq!(wish("port=1&identity=true&x=y"), Some(Wish::Port(1, true)));
        let path = Wish::Unix("/run/a b".into());
        assert_eq!(wish("unix=/run/a+b&identity=false"), Some(path));
    }

    #[test]
    fn a_query_that_names_none_or_two_is_refused() {
        for query in [
            "",
            "port=",
            "port=65536",
            "port=-1",
            "port=%2B1",
            "port=http",
            "port=1&port=1",
            "port=1&identity=yes",
            "port=1&identity=1&identity=1",
            "port=1&unix=/a",
            "unix=/a&identity=1",
            "unix=/a&unix=/a",
        ] {
            assert_eq!(wish(query), None, "{query}");
        }
    }
}
