//! Programs that are started, followed, and fed.

mod capture;
mod fanout;
mod poll;
mod program;
mod stdin;
mod storm;
mod stream;

use super::Scenario;
use crate::fixture::Writer;
use crate::load::Form;

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "exec-poll",
        title: "a program that only exits is started and polled until its exit is known",
        run: |bench, out| Box::pin(poll::run(bench, out)),
    },
    Scenario {
        name: "exec-stream",
        title: "a program that only exits is started over one connection and followed over another",
        run: |bench, out| Box::pin(stream::run(bench, out)),
    },
    Scenario {
        name: "exec-storm",
        title: "programs that only exit are started and followed, fifty at a time",
        run: |bench, out| Box::pin(storm::run(bench, out)),
    },
    Scenario {
        name: "capture-small",
        title: "a program writes 8 KiB at a time as fast as it can, and nobody follows",
        run: |bench, out| Box::pin(capture::unwatched(bench, out, Writer::Small)),
    },
    Scenario {
        name: "capture-large",
        title: "a program writes 64 KiB at a time as fast as it can, and nobody follows",
        run: |bench, out| Box::pin(capture::unwatched(bench, out, Writer::Large)),
    },
    Scenario {
        name: "capture-events",
        title: "a program writes as fast as it can, and one client follows by server-sent events",
        run: |bench, out| Box::pin(capture::watched(bench, out, Form::Events)),
    },
    Scenario {
        name: "capture-frames",
        title: "a program writes as fast as it can, and one client follows by binary frames",
        run: |bench, out| Box::pin(capture::watched(bench, out, Form::Frames)),
    },
    Scenario {
        name: "fanout-1",
        title: "a program writes lines as fast as it can to one follower",
        run: |bench, out| Box::pin(fanout::run(bench, out, 1)),
    },
    Scenario {
        name: "fanout-50",
        title: "a program writes lines as fast as it can to 50 followers",
        run: |bench, out| Box::pin(fanout::run(bench, out, 50)),
    },
    Scenario {
        name: "fanout-500",
        title: "a program writes lines as fast as it can to 500 followers",
        run: |bench, out| Box::pin(fanout::run(bench, out, 500)),
    },
    Scenario {
        name: "fanout-stalled",
        title: "a program writes lines as fast as it can to 500 followers, a fifth of whom never read",
        run: |bench, out| Box::pin(fanout::stalled(bench, out)),
    },
    Scenario {
        name: "stdin",
        title: "a program that counts bytes is fed in JSON, a MiB at a time",
        run: |bench, out| Box::pin(stdin::encoded(bench, out)),
    },
    Scenario {
        name: "stdin-raw",
        title: "a program that counts bytes is fed by one upload of the bytes as they are",
        run: |bench, out| Box::pin(stdin::raw(bench, out)),
    },
];
