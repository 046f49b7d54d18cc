//! A reader over bytes that checks every step against what is left.

use std::fmt;

use crate::Fault;

/// Position in a file's bytes. Descriptions are passed as [`fmt::Arguments`], which cost
/// nothing until a fault is built.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, position: 0 }
    }

    /// Offset of the next byte from the start of the file.
    pub(crate) fn offset(&self) -> u64 {
        self.position as u64
    }

    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// Fails unless `needed` bytes are left.
    pub(crate) fn expect(&self, needed: u128, what: fmt::Arguments<'_>) -> Result<(), Fault> {
        if needed <= u128::from(self.left()) {
            return Ok(());
        }
        Err(Fault::CutShort { what: what.to_string(), offset: self.offset(), needed, left: self.left() })
    }

    pub(crate) fn take(&mut self, count: u64, what: fmt::Arguments<'_>) -> Result<&'a [u8], Fault> {
        self.expect(u128::from(count), what)?;
        // Lossless: `count` is at most what is left of a slice.
        let end = self.position + count as usize;
        let taken = &self.bytes[self.position..end];
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: fmt::Arguments<'_>) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self, what: fmt::Arguments<'_>) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: fmt::Arguments<'_>) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length as u64, then its bytes, of any encoding.
    pub(crate) fn string(&mut self, limit: u64, what: fmt::Arguments<'_>) -> Result<&'a [u8], Fault> {
        let offset = self.offset();
        let length = self.u64(what)?;
        if length > limit {
            return Err(Fault::TooLong { what: what.to_string(), offset, length, limit });
        }
        self.take(length, what)
    }
}
