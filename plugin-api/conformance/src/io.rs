//! The host's side of an IO arena: the one place of this crate that touches memory by address.
#![allow(unsafe_code)]

use paceline_plugin_api::Result;
use paceline_plugin_api::backend::ArenaClass;
use paceline_plugin_api::client::{ArenaClient, DeviceClient, SpanClient};

/// Distance to which blocks are rounded up, so that no two share a cache line.
const BLOCK_ALIGNMENT: u64 = 256;

/// Blocks of equal size in an IO arena, one per slot.
///
/// A block is written or read by the host only while no launch of its slot is pending.
pub(crate) struct Blocks {
    arena: ArenaClient,
    stride: u64,
    slots: u32,
}

impl Blocks {
    /// Room for `slots` blocks of `bytes`.
    pub fn new(device: &DeviceClient, bytes: u64, slots: u32) -> Result<Self> {
        let stride = bytes.max(1).next_multiple_of(BLOCK_ALIGNMENT);
        let arena = device.create_arena(ArenaClass::Io, stride * u64::from(slots))?;
        Ok(Self { arena, stride, slots })
    }

    /// All blocks.
    pub fn span(&self) -> SpanClient<'_> {
        self.arena.span(0, self.stride * u64::from(self.slots))
    }

    /// Distance of two blocks.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    fn address(&self, slot: u32, bytes: usize) -> *mut u8 {
        assert!(slot < self.slots && bytes as u64 <= self.stride, "outside of the blocks");
        self.arena.host_address().wrapping_add((u64::from(slot) * self.stride) as usize)
    }

    /// Writes the beginning of a block.
    pub fn write(&self, slot: u32, bytes: &[u8]) {
        let target = self.address(slot, bytes.len());
        // SAFETY: the range lies in the arena by the check in `address`; the arena's memory is the host's to use while
        // no launch of the slot is pending, and does not overlap a slice of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Reads the beginning of a block.
    pub fn read(&self, slot: u32, bytes: usize) -> Vec<u8> {
        let source = self.address(slot, bytes);
        let mut out = vec![0; bytes];
        // SAFETY: as in `write`; an arena's memory is initialised by its allocation.
        unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), bytes) };
        out
    }
}
