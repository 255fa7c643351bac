//! One at a time: those who judge what has a name and then change it.

use std::collections::HashSet;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// Device and inode number of a directory, and a name in it.
type Key = ((u64, u64), Vec<u8>);

/// The right to change what has a name, until it is dropped. For helper threads: getting it may wait.
///
/// It is held for the few calls between a look and a rename; while bytes are copied only where a name cannot be given
/// to another file.
pub(in crate::fs) struct Turn(Key);

impl Turn {
    /// Waits until nobody else has the turn at the name `leaf` of the directory `home`.
    pub(in crate::fs) fn at(home: (u64, u64), leaf: &[u8]) -> Self {
        let key = (home, leaf.to_vec());
        let mut taken = taken();
        while taken.keys.contains(&key) {
            taken.waiting += 1;
            taken = FREE.wait(taken).unwrap_or_else(PoisonError::into_inner);
            taken.waiting -= 1;
        }
        taken.keys.insert(key.clone());
        Self(key)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = taken();
        taken.keys.remove(&self.0);
        if taken.waiting > 0 {
            FREE.notify_all();
        }
    }
}

#[derive(Default)]
struct Taken {
    keys: HashSet<Key>,
    /// Those who wait for any of them.
    waiting: usize,
}

fn taken() -> MutexGuard<'static, Taken> {
    // Nobody panics while holding it, so it is whole.
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

static TAKEN: LazyLock<Mutex<Taken>> = LazyLock::new(Mutex::default);
static FREE: Condvar = Condvar::new();

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn only_one_has_the_turn_at_a_name() {
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = Turn::at((1, 2), b"f");
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }

    #[test]
    fn other_names_do_not_wait() {
        let _one = Turn::at((1, 3), b"f");
        let _two = Turn::at((1, 3), b"g");
        let _three = Turn::at((1, 4), b"f");
    }
}
