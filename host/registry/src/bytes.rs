//! Little-endian numbers and bounded reads of a file that may say anything about itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Reads `length` bytes at `offset`; `None` if they do not lie inside the file of `file_length` bytes or are more
/// than `limit`.
pub(crate) fn read_range(
    file: &mut File,
    file_length: u64,
    offset: u64,
    length: u64,
    limit: u64,
) -> io::Result<Option<Vec<u8>>> {
    if length > limit || offset.checked_add(length).is_none_or(|end| end > file_length) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(length).read_to_end(&mut bytes)?;
    // A file that shrinks while it is read is as short as what came.
    Ok((bytes.len() as u64 == length).then_some(bytes))
}

/// The number of two bytes at `at`; 0 where there are none.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    array_at(bytes, at).map_or(0, u16::from_le_bytes)
}

/// The number of four bytes at `at`; 0 where there are none.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array_at(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The number of eight bytes at `at`; 0 where there are none.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array_at(bytes, at).map_or(0, u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_end_are_zero() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((u16_at(&bytes, 0), u32_at(&bytes, 4)), (0x0201, 0x0807_0605));
        assert_eq!(u64_at(&bytes, 0), 0x0807_0605_0403_0201);
        assert_eq!((u16_at(&bytes, 7), u32_at(&bytes, 5), u64_at(&bytes, usize::MAX)), (0, 0, 0));
    }
}
