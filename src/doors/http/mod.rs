//! The HTTP door: listeners, and a task for each connection.

mod body;
mod connection;
mod outflow;
mod respond;

use std::rc::Rc;
use std::time::Duration;

use crate::app::{App, Entry};
use crate::ring::clock::sleep;
use crate::ring::listener::Listener;
use crate::ring::socket::Socket;
use crate::ring::spawn;

/// Accepts connections until the daemon drains; the listener is closed on return.
pub async fn serve(listener: Listener, app: Rc<App>) {
    let slots = Rc::new(());
    loop {
        let next = async {
            // Each connection holds a clone of `slots`, so its count is the load of this listener.
            while Rc::strong_count(&slots) > app.config.limits.max_connections {
                app.connections.ended.next().await;
            }
            listener.accept().await
        };
        let accepted = monoio::select! {
            accepted = next => accepted,
            () = app.connections.drain.after(0) => return,
        };
        match accepted {
            Ok(fd) => match Socket::new(fd, app.config.limits.body_timeout) {
                Ok(socket) => {
                    let socket = socket.counted(&app.traffic.network);
                    let entry = Entry::new(&app);
                    let held = Rc::clone(&slots);
                    spawn("connection", async move {
                        connection::serve(socket, &entry).await;
                        drop(held);
                    });
                }
                Err(error) => {
                    app.traffic.accept_failed();
                    tracing::warn!(%error, "a connection could not be taken");
                }
            },
            Err(error) => {
                app.traffic.accept_failed();
                tracing::warn!(%error, "accept failed; trying again");
                sleep(BREATH).await;
            }
        }
    }
}

/// How long accepting rests when descriptors or memory run out.
const BREATH: Duration = Duration::from_millis(50);
