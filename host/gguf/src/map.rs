//! The memory map: the only unsafe code of the crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a whole file for reading.
///
/// The file must stay as it is while the map lives. If another program shortens it, touching
/// the lost part ends this process; `Load::Read` avoids that at the price of memory.
pub(crate) fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this crate, which holds it as bytes and decodes
    // by value. It keeps no reference to text or numbers checked earlier: each access checks anew.
    // Nothing can keep other programs from changing the file, as with every map of a file; callers
    // are told so and have `Load::Read`.
    unsafe { Mmap::map(file) }
}

/// Gives back the memory of a mapped file's pages; they are read again when they are touched.
pub(crate) fn release_pages(map: &Mmap) {
    #[cfg(unix)]
    // SAFETY: the map is one of a file and read-only, so what is read anew is what was there. A system that refuses
    // leaves the pages where they are.
    let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    #[cfg(not(unix))]
    let _ = map;
}
