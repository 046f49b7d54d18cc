//! Memory of the devices, and pinned memory of the host. Both are memory of this process.

use crate::code::{self, Code};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What the library aligns allocations to.
const ALIGNMENT: usize = 256;
/// Blocks up to this size are filled when they are given out; larger ones would take too long.
const MOST_FILLED: usize = 64 << 20;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A device.
    Device(usize),
    /// The host, pinned.
    Pinned,
}

struct Block {
    owner: Owner,
    layout: Layout,
}

/// All blocks, by their addresses.
#[derive(Default)]
pub struct Memory {
    blocks: BTreeMap<usize, Block>,
}

impl Memory {
    /// Bytes that a device has given out.
    pub fn used(&self, device: usize) -> u64 {
        let of_device = self.blocks.values().filter(|block| block.owner == Owner::Device(device));
        of_device.map(|block| block.layout.size() as u64).sum()
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Gives out memory, of at most `free` bytes. What is in it is nothing that anybody may count on.
    pub fn allocate(&mut self, owner: Owner, bytes: usize, free: u64) -> Result<usize, Code> {
        let size = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or(code::OutOfMemory)?;
        if size as u64 > free {
            return Err(code::OutOfMemory);
        }
        let layout = Layout::from_size_align(size, ALIGNMENT).map_err(|_| code::OutOfMemory)?;
        let is_filled = size <= MOST_FILLED;
        // SAFETY: the size is not zero.
        let address = unsafe { if is_filled { alloc(layout) } else { alloc_zeroed(layout) } };
        if address.is_null() {
            return Err(code::OutOfMemory);
        }
        if is_filled {
            // SAFETY: just allocated with this size.
            unsafe { address.write_bytes(0xcd, size) };
        }
        self.blocks.insert(address as usize, Block { owner, layout });
        Ok(address as usize)
    }

    /// Takes memory back.
    pub fn free(&mut self, address: usize, is_device: bool) -> Result<(), Code> {
        let block = self.blocks.get(&address).ok_or(code::InvalidValue)?;
        if matches!(block.owner, Owner::Device(_)) != is_device {
            return Err(code::InvalidValue);
        }
        let layout = block.layout;
        self.blocks.remove(&address);
        // SAFETY: allocated with this layout, and taken out of the list.
        unsafe { dealloc(address as *mut u8, layout) };
        Ok(())
    }

    fn block_of(&self, address: usize) -> Option<(usize, &Block)> {
        let (&start, block) = self.blocks.range((Bound::Unbounded, Bound::Included(address))).next_back()?;
        (address - start < block.layout.size()).then_some((start, block))
    }

    /// Whose memory a range is; none if it is not of a block here. A range that leaves its block is nobody's.
    ///
    /// # Errors
    /// A range that begins in a block and does not end in it.
    pub fn owner(&self, address: usize, bytes: usize) -> Result<Option<Owner>, Code> {
        let Some((start, block)) = self.block_of(address) else { return Ok(None) };
        let fits = bytes <= block.layout.size() - (address - start);
        if fits { Ok(Some(block.owner)) } else { Err(code::InvalidValue) }
    }

    /// The device whose memory a range is.
    ///
    /// # Errors
    /// A range that is not a device's.
    pub fn device(&self, address: usize, bytes: usize) -> Result<usize, Code> {
        match self.owner(address, bytes)? {
            Some(Owner::Device(device)) => Ok(device),
            _ => Err(code::InvalidValue),
        }
    }

    /// Whether a range is memory of the host, pinned or not.
    ///
    /// # Errors
    /// A range that is a device's.
    pub fn host(&self, address: usize, bytes: usize) -> Result<(), Code> {
        match self.owner(address, bytes)? {
            Some(Owner::Device(_)) => Err(code::InvalidValue),
            _ if address == 0 && bytes > 0 => Err(code::InvalidValue),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let mut memory = Memory::default();
        let at = memory.allocate(Owner::Device(1), 1000, 4096).unwrap();
        assert_eq!((at % 256, memory.used(1), memory.used(0)), (0, 1024, 0));
        assert_eq!(memory.device(at + 24, 1000), Ok(1));
        assert_eq!(memory.device(at + 25, 1000), Err(code::InvalidValue));
        assert_eq!(memory.host(at, 1), Err(code::InvalidValue));
        let host = [0u8; 16];
        assert_eq!(memory.host(host.as_ptr() as usize, 16), Ok(()));
        assert_eq!(memory.device(host.as_ptr() as usize, 16), Err(code::InvalidValue));
        let pinned = memory.allocate(Owner::Pinned, 10, u64::MAX).unwrap();
        assert_eq!(memory.host(pinned, 10), Ok(()));
        assert_eq!(memory.allocate(Owner::Device(1), 4096, 4095), Err(code::OutOfMemory));
        assert_eq!(memory.allocate(Owner::Device(1), usize::MAX, u64::MAX), Err(code::OutOfMemory));
        assert_eq!(memory.free(pinned, true), Err(code::InvalidValue));
        assert_eq!(memory.free(at + 256, true), Err(code::InvalidValue));
        assert_eq!((memory.free(at, true), memory.free(pinned, false)), (Ok(()), Ok(())));
        assert_eq!((memory.free(at, true), memory.count()), (Err(code::InvalidValue), 0));
        assert_eq!(memory.device(at, 1), Err(code::InvalidValue));
    }
}
