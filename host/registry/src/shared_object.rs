//! A look at a shared library before the system's loader runs it.
//!
//! The loader maps a file by what its tables say; one that was cut short then ends the process when a missing page
//! is touched. So the tables are held against the file's length first. Only ELF is known; elsewhere the loader
//! decides alone.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::FileFault;

const MAGIC: &[u8; 4] = b"\x7fELF";
const HEADER_BYTES: usize = 64;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const SHARED_OBJECT: u16 = 3;
const SEGMENT_BYTES: u64 = 56;
const SEGMENT_LOAD: u32 = 1;

/// Number and name of the machine that this program is built for.
const HOST: Option<(u16, &str)> = if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
    Some((62, "x86_64"))
} else if cfg!(target_arch = "aarch64") {
    Some((183, "aarch64"))
} else if cfg!(target_arch = "riscv64") {
    Some((243, "riscv64"))
} else {
    None
};

/// Checks that `file`, of `length` bytes, is a whole shared library for this machine.
pub(crate) fn check(file: &mut File, length: u64) -> Result<(), FileFault> {
    let Some((machine, host_name)) = HOST.filter(|_| cfg!(all(unix, not(target_vendor = "apple")))) else {
        return Ok(());
    };
    let header = read_header(file)?;
    let found = match (header[4], header[5]) {
        (CLASS_64, LITTLE_ENDIAN) if short(&header, 18) == machine => None,
        (CLASS_64, LITTLE_ENDIAN) => Some(machine_name(short(&header, 18))),
        (CLASS_64, _) => Some("a big-endian machine".to_owned()),
        _ => Some("a 32-bit machine".to_owned()),
    };
    if let Some(found) = found {
        return Err(FileFault::OtherMachine { found, wanted: host_name });
    }
    if short(&header, 16) != SHARED_OBJECT {
        return Err(FileFault::NotALibrary(
            "it is an ELF file of another type, such as an object file".to_owned(),
        ));
    }
    let needed = needed_bytes(file, &header, length)?;
    if needed > length {
        return Err(FileFault::CutShort { needed, found: length });
    }
    Ok(())
}

fn read_header(file: &mut File) -> Result<[u8; HEADER_BYTES], FileFault> {
    let mut start = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut start).map_err(unreadable)?;
    if start.is_empty() {
        return Err(FileFault::NotALibrary("the file is empty".to_owned()));
    }
    if !start.starts_with(MAGIC) {
        let shown = String::from_utf8_lossy(&start[..start.len().min(MAGIC.len())]).into_owned();
        return Err(FileFault::NotALibrary(format!("it begins with {shown:?} in place of an ELF header")));
    }
    let found = start.len() as u64;
    start.try_into().map_err(|_| FileFault::CutShort { needed: HEADER_BYTES as u64, found })
}

/// The end of whatever lies furthest back: the two tables and all that is loaded.
fn needed_bytes(file: &mut File, header: &[u8; HEADER_BYTES], length: u64) -> Result<u64, FileFault> {
    let (segments, sections) = (long(header, 32), long(header, 40));
    let segment_count = u64::from(short(header, 56));
    if u64::from(short(header, 54)) != SEGMENT_BYTES || segment_count == 0 {
        return Err(FileFault::NotALibrary("its table of segments is damaged".to_owned()));
    }
    let table_bytes = segment_count * SEGMENT_BYTES;
    let section_bytes = u64::from(short(header, 58)) * u64::from(short(header, 60));
    let mut needed = segments.saturating_add(table_bytes).max(sections.saturating_add(section_bytes));
    if segments.saturating_add(table_bytes) > length {
        return Ok(needed);
    }
    let mut table = Vec::new();
    file.seek(SeekFrom::Start(segments)).map_err(unreadable)?;
    file.take(table_bytes).read_to_end(&mut table).map_err(unreadable)?;
    for segment in table.chunks_exact(SEGMENT_BYTES as usize) {
        if word(segment, 0) == SEGMENT_LOAD {
            needed = needed.max(long(segment, 8).saturating_add(long(segment, 32)));
        }
    }
    Ok(needed)
}

fn unreadable(source: io::Error) -> FileFault {
    FileFault::Io { action: "read it", source }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".to_owned(),
        40 => "arm".to_owned(),
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("ELF machine {other}"),
    }
}

/// Numbers at fixed places of the header or of a segment, all of which lie inside.
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) | u32::from(short(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
