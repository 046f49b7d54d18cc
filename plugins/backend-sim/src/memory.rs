//! Memory: what a device has, what one who opened it may take, and arenas.

use crate::device::Shared;
use crate::live::{Alive, Object};
use paceline_conformance::reference_backend::ReferenceArena;
use paceline_plugin_api::backend::{Arena, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of bytes of which some are taken.
pub(crate) struct Pool {
    total: u64,
    used: AtomicU64,
}

impl Pool {
    /// A pool of which nothing is taken.
    pub fn new(total: u64) -> Self {
        Self { total, used: AtomicU64::new(0) }
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// Bytes that are not.
    pub fn free(&self) -> u64 {
        self.total - self.used()
    }

    /// Takes bytes, or none if there are not as many.
    pub fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
            used.checked_add(bytes).filter(|&used| used <= self.total)
        });
        taken.is_ok()
    }

    /// Gives bytes back.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// An arena.
pub struct SimArena {
    reference: ReferenceArena,
    shared: Arc<Shared>,
    _alive: [Alive; 2],
}

impl SimArena {
    /// An arena whose bytes were taken from the device's memory.
    pub(crate) fn new(reference: ReferenceArena, shared: Arc<Shared>) -> Self {
        let alive = [Alive::new(Object::Arena), Alive::amount(Object::ArenaBytes, reference.bytes())];
        Self { reference, shared, _alive: alive }
    }
}

impl Arena for SimArena {
    fn bytes(&self) -> u64 {
        self.reference.bytes()
    }

    fn host_address(&self) -> Option<*mut u8> {
        self.reference.host_address()
    }
}

impl Drop for SimArena {
    fn drop(&mut self) {
        self.shared.give_memory(self.reference.bytes());
    }
}

/// The same span of the reference arena below.
pub(crate) fn below<'a>(span: &Span<'a, SimArena>) -> Span<'a, ReferenceArena> {
    Span { arena: &span.arena.reference, offset: span.offset, bytes: span.bytes }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn a_pool_gives_what_it_has() {
        let pool = Pool::new(10);
        assert!(pool.take(6) && !pool.take(5) && pool.take(4) && !pool.take(u64::MAX));
        assert_eq!((pool.used(), pool.free()), (10, 0));
        pool.give(6);
        assert_eq!((pool.used(), pool.free(), pool.total()), (4, 6, 10));
    }
}
