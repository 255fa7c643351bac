//! A TCP service behind a tunnel: it listens on a free port of 127.0.0.1 and does with each connection what a test says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::process::{PATIENCE, wait_until};

/// A service that runs until the tests end.
pub(crate) struct Service {
    port: u16,
    met: Arc<AtomicUsize>,
}

impl Service {
    /// Each connection is given to `serve`, in a thread of its own.
    #[track_caller]
    pub(crate) fn new(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let met = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&met);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                thread::spawn(move || serve(patient(stream)));
            }
        });
        Self { port, met }
    }

    /// What comes is sent back until it ends.
    #[track_caller]
    pub(crate) fn echo() -> Self {
        Self::new(|mut stream| {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                if stream.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        })
    }

    /// All that comes is read to its end, and only then answered: with how much it was, and the same bytes.
    #[track_caller]
    pub(crate) fn answer_at_the_end() -> Self {
        Self::new(|mut stream| {
            let mut bytes = Vec::new();
            if stream.read_to_end(&mut bytes).is_ok() {
                let _ = write!(stream, "{} bytes:", bytes.len());
                let _ = stream.write_all(&bytes);
            }
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections have come so far.
    pub(crate) fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub(crate) fn meets(&self, count: usize) {
        wait_until("the service is connected to", || self.met() >= count);
    }
}

/// A connection on which nobody waits longer than a test does.
pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_nodelay(true))
        .expect("a socket takes a timeout");
    stream
}
