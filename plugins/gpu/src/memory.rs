//! Arenas: memory of the device, and pinned memory of the host for what both read and write.

use crate::device::Shared;
use crate::driver::Address;
use paceline_plugin_api::Result;
use paceline_plugin_api::backend::{Arena, ArenaClass, Span};
use std::sync::Arc;

/// What the driver aligns allocations to.
pub(crate) const ALIGNMENT: u64 = 256;

#[derive(Clone, Copy)]
enum Place {
    Device(Address),
    /// An address in host memory, which is the device's address of it as well.
    Host(*mut u8),
}

/// Contiguous memory. It keeps the device open.
pub struct GpuArena {
    place: Place,
    bytes: u64,
    device: Arc<Shared>,
}

// SAFETY: the pointer is of pinned memory that the arena owns; the arena itself never reads or writes it.
unsafe impl Send for GpuArena {}
// SAFETY: as above.
unsafe impl Sync for GpuArena {}

impl GpuArena {
    pub(crate) fn allocate(device: &Arc<Shared>, class: ArenaClass, bytes: u64) -> Result<Self> {
        let size = bytes.max(1);
        let what = format!("allocating {bytes} bytes ({class:?})");
        let driver = device.driver();
        let place = match class {
            ArenaClass::Io => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let memory = driver.allocate_pinned(size).map_err(|e| device.error(&e, &what))?;
                // SAFETY: just allocated with this size. Blocks begin as zeros, so that no run reads what was there.
                unsafe { memory.write_bytes(0, size) };
                Place::Host(memory)
            }
            _ => Place::Device(driver.allocate(size).map_err(|e| device.error(&e, &what))?),
        };
        let arena = Self { place, bytes: size, device: Arc::clone(device) };
        device.counters.arena_made(size);
        if let Place::Device(address) = place {
            // States begin as zeros, as in memory that the system gives out.
            device.clear(address, size, &what)?;
        }
        Ok(arena)
    }

    /// The device that it is of.
    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }
}

impl Drop for GpuArena {
    fn drop(&mut self) {
        self.device.counters.arena_freed(self.bytes);
        // Without a context nothing can be freed, and the driver does it when the process ends.
        if self.device.bind().is_err() {
            return;
        }
        match self.place {
            Place::Device(address) => self.device.driver().free(address),
            // SAFETY: allocated so; what was bound to the arena is gone by the contract of the ABI.
            Place::Host(memory) => unsafe { self.device.driver().free_pinned(memory) },
        }
    }
}

impl Arena for GpuArena {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host_address(&self) -> Option<*mut u8> {
        match self.place {
            Place::Host(memory) => Some(memory),
            Place::Device(_) => None,
        }
    }
}

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub address: Address,
    pub bytes: u64,
}

/// The device memory of a span that the shim found to lie in its arena; none for one in host memory.
pub(crate) fn region(span: &Span<'_, GpuArena>) -> Option<Region> {
    match span.arena.place {
        Place::Device(address) => Some(Region { address: address + span.offset, bytes: span.bytes }),
        Place::Host(_) => None,
    }
}

/// The host memory of such a span; none for one in device memory.
pub(crate) fn host_region(span: &Span<'_, GpuArena>) -> Option<*mut u8> {
    match span.arena.place {
        Place::Host(memory) => Some(memory.wrapping_add(span.offset as usize)),
        Place::Device(_) => None,
    }
}
