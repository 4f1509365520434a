//! What is left half done by an error.
//!
//! An operation that fails in the middle leaves memory as it should never be: a URL may be known to the sieve and in no queue.
//! The journal has it all the same, so that nothing is lost as long as nothing of that memory is written down in the place of
//! the journal. Hence what can fail is changed through [`Guarded::change`] only, and after the first error not at all.

use std::ops::Deref;

use crate::{Error, Result};

/// A value that is given up at the first error of a change of it. It can still be looked at.
pub(crate) struct Guarded<T> {
    value: T,
    /// Why it was given up.
    failed: Option<Error>,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Guarded<T> {
        Guarded { value, failed: None }
    }

    /// Changes it, unless a change has failed before.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        if let Some(first) = &self.failed {
            return Err(first.again());
        }
        let changed = change(&mut self.value);
        if let Err(error) = &changed {
            self.failed = Some(error.again());
        }
        changed
    }

    /// Whether a change has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
