//! Many keep-alive connections driven by one epoll loop: one request in flight on each.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use anyhow::{Result, bail};
use rustix::event::{Timespec, epoll};

use super::{Client, Manner};

/// Sends `requests` GETs of `target` over `connections` connections and returns when all are answered with 200.
pub(crate) fn drive(
    address: SocketAddr,
    token: &str,
    target: &str,
    connections: u64,
    requests: u64,
) -> Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for index in 0..connections {
        let client = Client::connect(address, token, Manner::Spin)?;
        epoll::add(
            &poll,
            client.stream.as_fd(),
            epoll::EventData::new_u64(index),
            epoll::EventFlags::IN,
        )?;
        clients.push(client);
    }
    let mut asked = 0;
    for client in &mut clients {
        client.send_head("GET", target, 0)?;
        asked += 1;
    }
    let mut answered = 0;
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }; 64];
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    while answered < requests.max(connections) {
        let ready = epoll::wait(&poll, &mut events, Some(&patience))?;
        if ready == 0 {
            bail!("no answer for 30 s, {answered} of {requests} so far");
        }
        for event in &events[..ready] {
            let client = &mut clients[usize::try_from(event.data.u64())?];
            let Some(reply) = client.try_reply()? else {
                continue;
            };
            if reply.status != 200 {
                bail!("{target} answered {}", reply.status);
            }
            answered += 1;
            if asked < requests {
                client.send_head("GET", target, 0)?;
                asked += 1;
            }
        }
    }
    Ok(())
}
