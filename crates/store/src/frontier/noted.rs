//! What is noted with a block of the sieve, in order.
//!
//! A snapshot writes millions of these while more are noted: it gets what there is by reference, and what follows is kept apart
//! until it is done.

use std::sync::Arc;

use super::op::Op;

/// When there is no room for another one, this part more is made: what is noted is most of the memory of a sieve, and twice as
/// much room as needed would be paid for.
const GROWTH_PART: usize = 4;
const GROWTH_MIN: usize = 16;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Noted {
    /// What a snapshot was given.
    frozen: Option<Arc<Vec<Op>>>,
    ops: Vec<Op>,
}

impl Noted {
    pub(super) fn push(&mut self, op: Op) {
        push_all(&mut self.ops, &[op]);
    }

    pub(super) fn len(&self) -> usize {
        self.frozen.as_ref().map_or(0, |frozen| frozen.len()) + self.ops.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.frozen.iter().flat_map(|frozen| frozen.iter()).chain(&self.ops)
    }

    /// Everything, which is not noted any more.
    pub(super) fn take(&mut self) -> Vec<Op> {
        let ops = std::mem::take(&mut self.ops);
        match self.frozen.take() {
            None => ops,
            Some(frozen) => {
                let mut all = Arc::try_unwrap(frozen).unwrap_or_else(|frozen| frozen.to_vec());
                push_all(&mut all, &ops);
                all
            }
        }
    }

    /// Notes again what was taken.
    pub(super) fn put_back(&mut self, ops: Vec<Op>) {
        self.ops = ops;
    }

    /// What there is now, for a snapshot. Goes on to count.
    pub(super) fn freeze(&mut self) -> Arc<Vec<Op>> {
        let frozen = Arc::new(self.take());
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// Brings everything together again, once the snapshot is done.
    pub(super) fn thaw(&mut self) {
        self.ops = self.take();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.capacity());
        (frozen + self.ops.capacity()) * size_of::<Op>()
    }
}

fn push_all(ops: &mut Vec<Op>, more: &[Op]) {
    if ops.capacity() - ops.len() < more.len() {
        ops.reserve_exact((ops.len() / GROWTH_PART).max(GROWTH_MIN).max(more.len()));
    }
    ops.extend_from_slice(more);
}
