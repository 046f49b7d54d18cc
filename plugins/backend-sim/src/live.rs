//! What hosts hold of this plugin now, over all devices of the process. A host that freed everything leaves zeros.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of live objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveObjects {
    /// Opened devices.
    pub devices: u64,
    /// Arenas.
    pub arenas: u64,
    /// Bytes of all arenas.
    pub arena_bytes: u64,
    /// Plans.
    pub plans: u64,
    /// Executables.
    pub executables: u64,
    /// Semaphores.
    pub semaphores: u64,
}

/// Kinds of objects.
#[derive(Clone, Copy)]
pub(crate) enum Object {
    Device,
    Arena,
    ArenaBytes,
    Plan,
    Executable,
    Semaphore,
}

static LIVE: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// What is alive now.
pub fn objects() -> LiveObjects {
    let count = |object: Object| LIVE[object as usize].load(Ordering::SeqCst);
    LiveObjects {
        devices: count(Object::Device),
        arenas: count(Object::Arena),
        arena_bytes: count(Object::ArenaBytes),
        plans: count(Object::Plan),
        executables: count(Object::Executable),
        semaphores: count(Object::Semaphore),
    }
}

/// Counts an object, or its bytes, as long as it is alive.
pub(crate) struct Alive {
    object: Object,
    amount: u64,
}

impl Alive {
    /// One object.
    pub fn new(object: Object) -> Self {
        Self::amount(object, 1)
    }

    /// So many bytes.
    pub fn amount(object: Object, amount: u64) -> Self {
        LIVE[object as usize].fetch_add(amount, Ordering::SeqCst);
        Self { object, amount }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        LIVE[self.object as usize].fetch_sub(self.amount, Ordering::SeqCst);
    }
}
