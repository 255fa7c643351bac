//! Texts that are made once, when they are first asked for, and kept.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::Result;
use crate::ring::notify::Event;
use crate::ring::pool;
use crate::wire::digest::Hasher;

/// A text, and a tag that no other text has.
pub struct Described {
    /// The text.
    pub text: Vec<u8>,
    /// A strong validator, quotes included.
    pub etag: String,
}

/// Where one text is kept. Nothing is made, or held, before somebody asks.
#[derive(Default)]
pub struct Shelf {
    kept: RefCell<Option<Rc<Described>>>,
    is_being_made: Cell<bool>,
    /// Happens when it has been made, or could not be.
    settled: Event,
}

impl Shelf {
    /// The text; `make` makes it on a helper thread unless it is there, once however many ask.
    ///
    /// # Errors
    /// Those of the pool.
    pub async fn text(
        &self,
        make: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Rc<Described>> {
        while self.is_being_made.get() {
            self.settled.next().await;
        }
        if let Some(kept) = &*self.kept.borrow() {
            return Ok(Rc::clone(kept));
        }
        let work = Work::begin(self);
        let described = pool::run(move || Described::new(make())).await?;
        let kept = Rc::new(described);
        *self.kept.borrow_mut() = Some(Rc::clone(&kept));
        drop(work);
        Ok(kept)
    }
}

impl Described {
    fn new(text: Vec<u8>) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(&text);
        let digits = hasher.finish().into_iter().take(TAG);
        let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
        Self {
            text,
            etag: format!("\"{digits}\""),
        }
    }
}

/// The making of a text; dropped, also half-way, it lets the next one try.
struct Work<'a>(&'a Shelf);

impl<'a> Work<'a> {
    fn begin(shelf: &'a Shelf) -> Self {
        shelf.is_being_made.set(true);
        Self(shelf)
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.is_being_made.set(false);
        self.0.settled.happen();
    }
}

/// Bytes of a digest that tell texts apart.
const TAG: usize = 8;
