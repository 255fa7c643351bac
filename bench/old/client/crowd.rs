//! Many connections moved on by one epoll loop with one large buffer.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};

/// Large enough to take what a socket holds in one go, small enough to stay in the cache.
const SCRATCH_BYTES: usize = 256 << 10;
const PATIENCE_S: i64 = 60;
const EVENTS: usize = 128;

/// One that is moved on when its descriptor is readable.
pub(crate) trait Member: AsFd {
    fn step(&mut self, scratch: &mut [u8]) -> Result<()>;
}

pub(crate) struct Crowd<M> {
    poll: OwnedFd,
    pub(crate) members: Vec<M>,
    scratch: Vec<u8>,
}

impl<M: Member> Crowd<M> {
    pub(crate) fn gather(members: Vec<M>) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, member) in members.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poll, member.as_fd(), data, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            poll,
            members,
            scratch: vec![0; SCRATCH_BYTES],
        })
    }

    /// Moves everyone on until all are as wanted.
    pub(crate) fn run(&mut self, is_as_wanted: impl Fn(&M) -> bool) -> Result<()> {
        let mut left = self.members.iter().filter(|one| !is_as_wanted(one)).count();
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let patience = Timespec {
            tv_sec: PATIENCE_S,
            tv_nsec: 0,
        };
        while left > 0 {
            let ready = epoll::wait(&self.poll, &mut events, Some(&patience))?;
            if ready == 0 {
                bail!("nothing came for {PATIENCE_S} s, {left} are not done");
            }
            for event in &events[..ready] {
                let index = usize::try_from(event.data.u64())?;
                let member = &mut self.members[index];
                let was = is_as_wanted(member);
                member
                    .step(&mut self.scratch)
                    .with_context(|| format!("connection {index}"))?;
                if !was && is_as_wanted(member) {
                    left -= 1;
                }
            }
        }
        Ok(())
    }
}
