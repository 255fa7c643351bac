//! One connection: requests in order, each judged on its head before a byte of its body is read.
//!
//! ```text
//! idle ──bytes──▶ head ──parsed──▶ judged ──▶ run ──▶ answered ──▶ rest of the body drained ──▶ idle
//!   │              │                 └─ refused ───────┘                    └─ too much: half-closed, lingering
//!   └─ idle timeout, drain: closed   └─ not HTTP: answered and closed
//! ```
//! A dropped connection task drops the operation it runs: what that loses is the operation's to say.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use super::body::{Body, Progress, Wire};
use super::outflow::Sender;
use super::respond::{self, Manner, Whole};
use crate::api::{self, Answer, Call, Form, Found, Method, Row, Source};
use crate::app::traffic::Visit;
use crate::app::{App, Entry};
use crate::config::Limits;
use crate::error::{Error, Kind, Result};
use crate::ring::Inflow;
use crate::ring::clock::{self, Deadline, Moment, until, within};
use crate::ring::guard::guarded_from;
use crate::ring::socket::Socket;
use crate::wire::http::head::{self, Head, Refusal, Step};
use crate::wire::http::query::Query;
use crate::wire::http::reply::Delimiter;

/// Serves one connection to its end.
pub(super) async fn serve(socket: Socket, entry: &Entry) {
    let app = entry.app();
    let wire = Rc::new(Wire {
        socket,
        unread: RefCell::new(Vec::new()),
        traffic: Rc::clone(&app.traffic),
    });
    let since = Cell::new(clock::now());
    let mut leave = pin!(leave(entry, &since));
    loop {
        since.set(clock::now());
        let parting = match next_head(&wire, &app.config.limits, leave.as_mut()).await {
            Next::Head(head) => exchange(&wire, app, *head).await,
            Next::Closed => return,
            Next::Late => refuse(&wire, Some(respond::timed_out())).await,
            Next::Refused(why) => {
                tracing::debug!(?why, "a request head was refused");
                refuse(&wire, respond::refusal(why)).await
            }
        };
        match parting {
            Parting::Stay => {}
            Parting::Linger => return linger(&wire).await,
            Parting::Gone => return,
        }
    }
}

enum Next {
    Head(Box<Head>),
    Closed,
    Late,
    Refused(Refusal),
}

/// What becomes of the connection after a response.
enum Parting {
    /// The next request is read.
    Stay,
    /// Nothing more is sent; the client is given time to read.
    Linger,
    /// It is closed at once.
    Gone,
}

impl Parting {
    fn after(sent: Result<()>, keep: bool) -> Self {
        match (sent, keep) {
            (Err(_), _) => Self::Gone,
            (Ok(()), true) => Self::Stay,
            (Ok(()), false) => Self::Linger,
        }
    }
}

impl Manner {
    fn closing() -> Self {
        Self {
            is_11: true,
            keep: false,
            head_only: false,
        }
    }
}

/// Answers a head that is none, unless there is nothing to say.
async fn refuse(wire: &Wire, answer: Option<Whole>) -> Parting {
    let status = answer.as_ref().map_or(0, |whole| whole.status.as_u16());
    wire.traffic.refuse(status);
    let Some(whole) = answer else {
        return Parting::Gone;
    };
    let bytes = whole.written(Manner::closing());
    Parting::after(wire.socket.send_all(&bytes, false).await, false)
}

/// Waits until the daemon drains, or nothing was asked for too long `since` then.
///
/// It is kept from one request to the next, and its alarm with it: that goes off too early, and is set again.
async fn leave(entry: &Entry, since: &Cell<Moment>) {
    let timeout = entry.app().config.limits.idle_timeout;
    let idle = async {
        loop {
            let left = timeout.saturating_sub(clock::now().since(since.get()));
            if left.is_zero() {
                return;
            }
            clock::sleep(left).await;
        }
    };
    monoio::select! {
        () = entry.told_to_end() => {}
        () = idle => {}
    }
}

/// Waits for the next head: without a buffer while idle, against a deadline once its first byte is there.
async fn next_head(
    wire: &Wire,
    limits: &Limits,
    leave: Pin<&mut impl Future<Output = ()>>,
) -> Next {
    if wire.unread.borrow().is_empty() {
        let spent = wire.unread.take();
        if spent.capacity() == HEAD_READ {
            SPARE.set(spent);
        }
        let is_there = monoio::select! {
            ready = wire.socket.readable() => ready.is_ok(),
            () = leave => false,
        };
        if !is_there {
            return Next::Closed;
        }
    }
    let mut deadline = None;
    let mut searched = 0;
    loop {
        let (length, parsed) = {
            let unread = wire.unread.borrow();
            let length = unread.len();
            // A head is parsed when it is whole; before that only to refuse early, while that is cheap.
            let is_cheap = length <= EARLY || length > limits.head.bytes;
            let worthwhile = length > 0 && (is_cheap || has_end(&unread, searched));
            let parsed = worthwhile.then(|| head::parse(&unread, &limits.head));
            searched = length.saturating_sub(3);
            (length, parsed)
        };
        match parsed {
            Some(Ok(Step::Done(head, used))) => {
                wire.unread.borrow_mut().drain(..used);
                return Next::Head(Box::new(head));
            }
            Some(Err(why)) => return Next::Refused(why),
            Some(Ok(Step::More)) | None => {}
        }
        let mut unread = wire.unread.take();
        if length == 0 {
            unread = SPARE.take();
        }
        unread.reserve(HEAD_READ.max(length.min(limits.head.bytes)));
        let received = match wire.socket.try_recv(&mut unread) {
            Ok(Some(count)) => Some(Ok(count)),
            Err(error) => Some(Err(error)),
            Ok(None) => {
                let timeout = || Deadline::after(limits.head_timeout);
                let deadline = *deadline.get_or_insert_with(timeout);
                until(deadline, wire.socket.recv(&mut unread)).await
            }
        };
        *wire.unread.borrow_mut() = unread;
        match received {
            None => return Next::Late,
            Some(Err(error)) if error.kind() == Kind::ClientStalled => return Next::Late,
            Some(Err(_) | Ok(0)) => return Next::Closed,
            Some(Ok(_)) => {}
        }
    }
}

/// True when an empty line stands at or behind `from`.
fn has_end(bytes: &[u8], from: usize) -> bool {
    let tail = &bytes[from.min(bytes.len())..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// One request and its response.
async fn exchange(wire: &Rc<Wire>, app: &Rc<App>, head: Head) -> Parting {
    let found = api::find(head.method(), head.path());
    let visit = app.traffic.enter(found.at());
    let limit = match &found {
        Found::Row(row, ..) if row.access.asks_for_a_token() => app.config.limits.max_body_bytes,
        _ => u64::MAX,
    };
    let progress = Rc::new(Progress::new(&head, limit));
    let mut manner = Manner {
        is_11: head.is_11,
        keep: head.keep_alive,
        head_only: head.is_head(),
    };
    let body = Body::new(Rc::clone(wire), Rc::clone(&progress));
    let (row, outcome) = match judge(app, &head, found, limit) {
        Ok((row, id)) => {
            let run = perform(app, row, call(head, id, body));
            match attend(wire, row, manner, run).await {
                Some(reaction) => (Some(row), reaction),
                None => return Parting::Gone,
            }
        }
        Err(whole) => (None, Reaction::Whole(whole)),
    };
    settle(wire, app, &progress, &mut manner);
    let form = row.map_or(Form::Text, |row| row.form);
    let sent = match outcome {
        Reaction::Whole(whole) => send(wire, &whole, manner, &visit).await,
        Reaction::Source(source) => stream(wire, source, (form, &visit), &mut manner).await,
    };
    drop(visit);
    if let (Some(row), Err(error)) = (row, &sent) {
        tracing::debug!(operation = row.name, %error, "a response was not sent whole");
    }
    if sent.is_ok() && manner.keep && !progress.is_done() {
        let rest = drain(wire, &progress, app.config.limits.max_drain_bytes);
        return match within(DRAIN, rest).await {
            Some(true) => Parting::Stay,
            _ => Parting::Linger,
        };
    }
    Parting::after(sent, manner.keep)
}

enum Reaction {
    Whole(Whole),
    Source(Source),
}

/// Everything that is decided from the head alone: access first, then the size, then the rest (contract, D2).
fn judge(
    app: &App,
    head: &Head,
    found: Found,
    limit: u64,
) -> std::result::Result<(&'static Row, String), Whole> {
    let access = match &found {
        Found::Row(row, ..) => row.access,
        Found::WrongMethod { access, .. } => *access,
        Found::Nothing => return Err(Whole::empty(StatusCode::NOT_FOUND)),
    };
    let authorization = head.fields.first("authorization");
    let denied = api::admit(app, access, authorization).err();
    let denied = denied.map(|error| respond::status(error.kind()));
    let (row, id) = match (found, denied) {
        (Found::WrongMethod { allow, .. }, denied) => {
            let status = denied.unwrap_or(StatusCode::METHOD_NOT_ALLOWED);
            return Err(Whole::wrong_method(status, allow));
        }
        (_, Some(status)) => return Err(Whole::empty(status)),
        (Found::Row(row, _, id), None) => (row, id),
        (Found::Nothing, None) => return Err(Whole::empty(StatusCode::NOT_FOUND)),
    };
    if matches!(head.framing, head::Framing::Length(length) if length > limit) {
        return Err(Whole::error(&respond::too_long(), Form::Text));
    }
    match String::from_utf8(id) {
        Ok(id) => Ok((row, id)),
        Err(_) => {
            let error = Kind::Malformed.told("the id in the path is not UTF-8");
            Err(Whole::error(&error, Form::Text))
        }
    }
}

fn call(head: Head, id: String, body: Body) -> Call {
    Call {
        id,
        query: Query::parse(head.query()),
        head_only: head.is_head(),
        fields: head.fields,
        body: Box::new(body),
    }
}

/// Runs an operation; `None` when it only reads and nobody is there any more to be answered.
///
/// What changes something goes on to its end whoever leaves.
async fn attend<T>(
    wire: &Wire,
    row: &Row,
    manner: Manner,
    run: impl Future<Output = T>,
) -> Option<T> {
    if row.method != Method::Get {
        return Some(run.await);
    }
    let mut run = pin!(run);
    let mut finished: u32 = 0;
    loop {
        if let Some(outcome) = within(ROUND, run.as_mut()).await {
            return Some(outcome);
        }
        wire.socket.check().ok()?;
        // Who has closed both ways looks like who has only finished sending, until something is sent.
        if wire.socket.has_finished() && manner.is_11 {
            finished += 1;
            if finished.is_power_of_two() {
                let sent = wire.socket.send_all(&respond::invitation(), false).await;
                sent.ok()?;
            }
        }
    }
}

/// Runs an operation under the panic guard.
async fn perform(app: &Rc<App>, row: &'static Row, call: Call) -> Reaction {
    let app = Rc::clone(app);
    // The call itself is inside the guard: a row may do all its work before it answers with a future.
    let ended = match guarded_from(|| (row.run)(app, call)) {
        Ok(run) => run.await,
        Err(panic) => Err(panic),
    };
    let error = match ended {
        Ok(Ok(Answer::Done)) => return Reaction::Whole(Whole::empty(StatusCode::NO_CONTENT)),
        Ok(Ok(Answer::DoneWith(fields))) => {
            return Reaction::Whole(Whole::bare(StatusCode::NO_CONTENT, fields));
        }
        Ok(Ok(Answer::Created(fields))) => {
            return Reaction::Whole(Whole::bare(StatusCode::CREATED, fields));
        }
        Ok(Ok(Answer::Unchanged(fields))) => {
            return Reaction::Whole(Whole::bare(StatusCode::NOT_MODIFIED, fields));
        }
        Ok(Ok(Answer::Empty)) => return Reaction::Whole(Whole::empty(StatusCode::OK)),
        Ok(Ok(Answer::Json(document))) => {
            return Reaction::Whole(Whole::json(document, Vec::new()));
        }
        Ok(Ok(Answer::JsonWith(document, fields))) => {
            return Reaction::Whole(Whole::json(document, fields));
        }
        Ok(Ok(Answer::Bytes(source))) => return Reaction::Source(source),
        Ok(Err(error)) => error,
        Err(panic) => {
            tracing::error!(operation = row.name, panic, "an operation panicked");
            Kind::Internal.told("internal error")
        }
    };
    report(row, &error);
    Reaction::Whole(Whole::error(&error, row.form))
}

/// Logs a failure. The sentence of a refusal may quote what was sent, which is never logged.
fn report(row: &Row, error: &Error) {
    let kind = error.kind();
    if kind == Kind::Internal {
        tracing::warn!(operation = row.name, %error, "an operation failed");
    } else {
        tracing::debug!(operation = row.name, ?kind, "an operation was refused");
    }
}

/// Decides, before the head goes out, whether the connection can be kept.
fn settle(wire: &Wire, app: &App, progress: &Progress, manner: &mut Manner) {
    if app.connections.is_draining() || progress.is_broken() {
        manner.keep = false;
    }
    if !manner.keep || progress.is_done() {
        return;
    }
    // A client that was not invited may send the body or not: nobody can tell what comes next.
    let unread = progress.unread_within(wire, app.config.limits.max_drain_bytes);
    manner.keep = !progress.was_not_invited() && unread;
}

/// Sends a response that is all here.
async fn send(wire: &Wire, whole: &Whole, manner: Manner, visit: &Visit<'_>) -> Result<()> {
    visit.answered(whole.status.as_u16());
    let sent = wire.socket.send_all(&whole.written(manner), false).await;
    if sent.is_ok() && !manner.head_only {
        wire.traffic.bodies.send(whole.body.len() as u64);
    }
    sent
}

/// Sends a body while it is produced.
///
/// A body that fails before its first byte is out is answered with the error instead.
async fn stream(
    wire: &Wire,
    mut source: Source,
    (form, visit): (Form, &Visit<'_>),
    manner: &mut Manner,
) -> Result<()> {
    visit.answered(respond::streamed_status(source.part).as_u16());
    let framing = match source.length {
        Some(length) => Delimiter::Length(length),
        None if manner.is_11 => Delimiter::Chunked,
        None => {
            manner.keep = false;
            Delimiter::Close
        }
    };
    if framing != Delimiter::Chunked {
        // Nothing can follow the body, so nothing is promised.
        source.fields.retain(|(name, _)| *name != "trailer");
    }
    // A HEAD of a body without a known length announces no framing, as the reference does.
    let announced = match (manner.head_only, framing) {
        (true, Delimiter::Chunked) => Delimiter::None,
        (_, framing) => framing,
    };
    let head = respond::streamed(
        source.media,
        source.part,
        &source.fields,
        announced,
        *manner,
    );
    if manner.head_only {
        return wire.socket.send_all(&head, false).await;
    }
    let mut sender = Sender::new(wire, head, framing);
    let produced = match guarded_from(|| source.produce.produce(&mut sender)) {
        Ok(producing) => producing.await,
        Err(panic) => Err(panic),
    };
    let produced = produced.unwrap_or_else(|panic| {
        tracing::error!(panic, "a response panicked");
        Err(Kind::Internal.told("internal error"))
    });
    if let Err(error) = produced {
        if error.kind() == Kind::Internal {
            tracing::warn!(%error, "a response was cut off");
        }
        if sender.is_untouched() && !is_gone(error.kind()) {
            return send(wire, &Whole::error(&error, form), *manner, visit).await;
        }
        if framing == Delimiter::Close {
            // Only a reset tells this client that the end it sees is not the end of the body.
            wire.socket.reset_on_close();
        }
        return Err(error);
    }
    sender.finish().await
}

/// True for failures of the connection, after which nothing can be said.
fn is_gone(kind: Kind) -> bool {
    matches!(kind, Kind::ClientGone | Kind::ClientStalled)
}

/// Reads the rest of a refused body away; true when the connection is then at the next request.
async fn drain(wire: &Rc<Wire>, progress: &Rc<Progress>, limit: u64) -> bool {
    progress.allow(limit);
    let mut body = Body::new(Rc::clone(wire), Rc::clone(progress));
    let mut scratch = Vec::with_capacity(SCRATCH);
    while let Ok(count) = body.read(&mut scratch).await {
        scratch.clear();
        if count == 0 {
            return progress.is_done();
        }
    }
    false
}

/// Half-closes, and reads away what still comes, so that the response is not lost to a reset.
async fn linger(wire: &Wire) {
    wire.socket.finish_sending();
    wire.socket.set_low_water(1);
    let rest = async {
        let mut scratch = Vec::with_capacity(SCRATCH);
        let mut seen = 0;
        while let Ok(count @ 1..) = wire.socket.recv(&mut scratch).await {
            scratch.clear();
            seen += count;
            if seen > MOST_LINGERED {
                return;
            }
        }
    };
    within(LINGER, rest).await;
}

thread_local! {
    /// The buffer of a connection that has gone idle, for the one that reads next.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A head shorter than this is parsed each time bytes arrive, so that garbage is refused at once.
const EARLY: usize = 2048;
/// How often somebody looks whether the client of a read that takes its time is still there.
const ROUND: Duration = Duration::from_secs(1);
const HEAD_READ: usize = 8 * 1024;
const SCRATCH: usize = 64 * 1024;
const DRAIN: Duration = Duration::from_secs(1);
const LINGER: Duration = Duration::from_secs(1);
/// More than the buffers of a connection hold, so what was under way when we refused is read away.
const MOST_LINGERED: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Access;
    use crate::ring::{self, flow};

    static DOOMED: Row = Row {
        name: "test.doomed",
        method: Method::Get,
        path: "/",
        access: Access::Open,
        form: Form::Text,
        about: "panics before it answers with a future",
        errors: &[],
        run: |_, _| panic!("on purpose"),
    };

    #[test]
    fn an_operation_that_panics_is_a_500() {
        let outcome = ring::start(ring::Choice::Epoll, async {
            let (config, _) = crate::config::Config::read(&[], |_| None).expect("the defaults");
            let app = Rc::new(App::new(config, None));
            let call = Call {
                id: String::new(),
                query: Query::default(),
                fields: head::Fields::default(),
                head_only: false,
                body: Box::new(flow::Ready::new(Vec::new())),
            };
            let Reaction::Whole(whole) = perform(&app, &DOOMED, call).await else {
                panic!("a panic has no body to stream");
            };
            assert_eq!(whole.status, StatusCode::INTERNAL_SERVER_ERROR);
            0
        });
        assert_eq!(outcome.expect("epoll is everywhere"), 0);
    }
}
