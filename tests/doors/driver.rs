//! The two drivers of the daemon, and the macro that makes every test run on both.

use std::sync::OnceLock;

use crate::daemon::Setup;

/// Makes two tests of each named function: `name::uring` and `name::epoll`.
macro_rules! both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                crate::driver::run(crate::driver::Driver::Uring, super::$name);
            }

            #[test]
            fn epoll() {
                crate::driver::run(crate::driver::Driver::Epoll, super::$name);
            }
        }
    )+};
}

/// What the daemon waits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Auto,
    Uring,
    Epoll,
}

impl Driver {
    /// The value of `--driver`.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// Runs `test` on `driver`; where this machine forbids io_uring, checks that the daemon says so instead.
pub(crate) fn run(driver: Driver, test: fn(Driver)) {
    if driver == Driver::Uring && !uring_is_allowed() {
        eprintln!("io_uring is forbidden on this machine: only the refusal to start is checked");
        uring_is_refused(Setup::new(driver));
        return;
    }
    test(driver);
}

/// True when this process may make a ring.
pub(crate) fn uring_is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| io_uring::IoUring::new(2).is_ok())
}

/// Checks that the daemon, asked for io_uring where there is none, ends with an error that names it.
pub(crate) fn uring_is_refused(setup: Setup) {
    let refusal = setup.refused();
    assert_ne!(refusal.code, Some(0), "{refusal:?}");
    assert!(refusal.code.is_some(), "ended by a signal: {refusal:?}");
    assert!(refusal.stderr.contains("io_uring"), "{refusal:?}");
}
