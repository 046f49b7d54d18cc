//! Arenas. Those of class IO have an address that the host reads and writes; the others are private.
#![allow(unsafe_code)]

use super::device::Shared;
use paceline_plugin_api::backend::{Arena, ArenaClass, Span};
use paceline_plugin_api::{Error, Result};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// What fresh memory holds, NaN in every float type: nothing may rely on zeros.
const FRESH: u8 = 0xFF;

enum Storage {
    Private(Mutex<Vec<u8>>),
    Io(Box<[UnsafeCell<u8>]>),
}

/// The memory of an arena; executables keep it alive.
pub(super) struct Memory {
    storage: Storage,
    class: ArenaClass,
}

// SAFETY: private storage is behind a lock. IO storage is only touched through `Memory::read` and `Memory::write`, and
// by the host; the contract of a launch keeps the two from meeting: the host leaves a slot's blocks alone while a
// launch of it is pending.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new(class: ArenaClass, bytes: usize) -> Self {
        let storage = match class {
            ArenaClass::Io => Storage::Io((0..bytes).map(|_| UnsafeCell::new(FRESH)).collect()),
            _ => Storage::Private(Mutex::new(vec![FRESH; bytes])),
        };
        Self { storage, class }
    }

    /// Copies a range out.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        match &self.storage {
            Storage::Private(bytes) => bytes.lock().unwrap_or_else(PoisonError::into_inner)[range].to_vec(),
            // SAFETY: nobody writes the range now, by the contract of a launch; see `Sync` above.
            Storage::Io(cells) => cells[range].iter().map(|cell| unsafe { *cell.get() }).collect(),
        }
    }

    /// Copies bytes in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        match &self.storage {
            Storage::Private(memory) => {
                memory.lock().unwrap_or_else(PoisonError::into_inner)[offset..offset + bytes.len()]
                    .copy_from_slice(bytes);
            }
            Storage::Io(cells) => {
                for (cell, byte) in cells[offset..offset + bytes.len()].iter().zip(bytes) {
                    // SAFETY: nobody else touches the range now, by the contract of a launch; see `Sync` above.
                    unsafe { *cell.get() = *byte };
                }
            }
        }
    }
}

/// A range of an arena that outlives the arena's handle.
#[derive(Clone)]
pub(super) struct Place {
    memory: Arc<Memory>,
    start: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl Place {
    /// The range of a span, which must begin at a multiple of `alignment` and have `needed` bytes in an arena of one
    /// of some classes.
    pub fn new(
        span: &Span<'_, ReferenceArena>,
        what: &str,
        needed: u64,
        alignment: u64,
        is_io: bool,
    ) -> Result<Self> {
        let memory = &span.arena.memory;
        if span.bytes < needed {
            return Err(Error::invalid(format!("{what} needs {needed} bytes, its span has {}", span.bytes)));
        }
        if !span.offset.is_multiple_of(alignment) {
            return Err(Error::invalid(format!(
                "{what} begins at {}, not at a multiple of {alignment}",
                span.offset
            )));
        }
        if (memory.class == ArenaClass::Io) != is_io {
            return Err(Error::invalid(format!("{what} is in an arena of class {:?}", memory.class)));
        }
        // The shim checked that the span lies inside of its arena, whose length is a `usize`.
        Ok(Self { memory: Arc::clone(memory), start: span.offset as usize, bytes: span.bytes as usize })
    }

    /// Copies `length` bytes out, beginning at `offset`.
    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory.read(self.start + offset..self.start + offset + length)
    }

    /// Copies bytes in, beginning at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(self.start + offset, bytes);
    }
}

/// An arena.
pub struct ReferenceArena {
    memory: Arc<Memory>,
    bytes: u64,
    device: Arc<Shared>,
}

impl ReferenceArena {
    pub(super) fn new(device: Arc<Shared>, class: ArenaClass, bytes: u64) -> Result<Self> {
        device.reserve(bytes)?;
        let length = usize::try_from(bytes).map_err(|_| Error::out_of_memory("beyond this machine"))?;
        Ok(Self { memory: Arc::new(Memory::new(class, length)), bytes, device })
    }
}

impl Arena for ReferenceArena {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host_address(&self) -> Option<*mut u8> {
        match &self.memory.storage {
            Storage::Private(_) => None,
            Storage::Io(cells) => Some(cells.as_ptr().cast::<u8>().cast_mut()),
        }
    }
}

impl Drop for ReferenceArena {
    fn drop(&mut self) {
        self.device.release(self.bytes);
    }
}
