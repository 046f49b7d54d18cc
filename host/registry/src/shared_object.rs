//! A look at a shared library before the system's loader runs it.
//!
//! The loader maps a file by what its tables say; one that was cut short then ends the process when a missing page
//! is touched. So the tables are held against the file's length first. Only ELF is known; elsewhere the loader
//! decides alone.

use std::fs::File;
use std::io::{self, Read};

use crate::FileFault;
use crate::bytes::{read_range, u16_at, u32_at, u64_at};

const MAGIC: &[u8; 4] = b"\x7fELF";
const HEADER_BYTES: usize = 64;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const SHARED_OBJECT: u16 = 3;
const SEGMENT_BYTES: usize = 56;
const SEGMENT_LOAD: u32 = 1;
const SECTION_BYTES: usize = 64;
const SECTION_NO_BITS: u32 = 8;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;

/// Section in which a plugin's descriptor lies.
pub(crate) const DESCRIPTOR_SECTION: &str = ".paceline.plugin";
/// A descriptor is a page or two of text.
pub(crate) const DESCRIPTOR_LIMIT: u64 = 1 << 20;
/// Names are read whole; no library has more of them.
const NAMES_LIMIT: u64 = 256 << 20;
/// Entry symbols of all versions begin with this.
const ENTRY_PREFIX: &[u8] = b"paceline_plugin_entry_v";

/// Whether shared libraries of this system are ELF files, which can be looked into.
pub(crate) const KNOWN: bool = cfg!(all(unix, not(target_vendor = "apple"))) && HOST.is_some();

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

/// A whole shared library: everything that its tables speak of lies inside the file.
pub(crate) struct SharedObject {
    file: File,
    length: u64,
    machine: u16,
    sections: Vec<Section>,
}

struct Section {
    name: Vec<u8>,
    kind: u32,
    offset: u64,
    bytes: u64,
    link: usize,
}

impl SharedObject {
    /// Checks that `file`, of `length` bytes, is a whole shared library, be it for this machine or for another.
    pub fn read(mut file: File, length: u64) -> Result<Self, FileFault> {
        let header = read_header(&mut file)?;
        let other = match (header[4], header[5]) {
            (CLASS_64, LITTLE_ENDIAN) => None,
            (CLASS_64, _) => Some("a big-endian machine"),
            _ => Some("a 32-bit machine"),
        };
        if let Some(found) = other {
            return Err(other_machine(found.to_owned()));
        }
        if u16_at(&header, 16) != SHARED_OBJECT {
            return Err(FileFault::NotALibrary(
                "it is an ELF file of another type, such as an object file".to_owned(),
            ));
        }
        check_segments(&mut file, &header, length)?;
        let sections = read_sections(&mut file, &header, length)?;
        Ok(Self { file, length, machine: u16_at(&header, 18), sections })
    }

    /// Checks that the library is for this machine.
    pub fn check_machine(&self) -> Result<(), FileFault> {
        match HOST {
            Some((machine, _)) if machine != self.machine => Err(other_machine(machine_name(self.machine))),
            _ => Ok(()),
        }
    }

    /// The bytes of the section in which a descriptor lies.
    pub fn descriptor_section(&mut self) -> Result<Option<Vec<u8>>, FileFault> {
        let Some(section) =
            self.sections.iter().find(|section| section.name == DESCRIPTOR_SECTION.as_bytes())
        else {
            return Ok(None);
        };
        if section.bytes > DESCRIPTOR_LIMIT {
            return Err(FileFault::Descriptor(format!(
                "its section `{DESCRIPTOR_SECTION}` has {} bytes, and at most {DESCRIPTOR_LIMIT} are read",
                section.bytes
            )));
        }
        let (offset, bytes) = (section.offset, section.bytes);
        read_range(&mut self.file, self.length, offset, bytes, DESCRIPTOR_LIMIT).map_err(unreadable)
    }

    /// Names of the entry symbols, of whatever version; `None` if the library has no section of symbols.
    pub fn entry_symbols(&mut self) -> Result<Option<Vec<String>>, FileFault> {
        let names = self
            .sections
            .iter()
            .find(|section| section.kind == SECTION_DYNAMIC_SYMBOLS)
            .and_then(|symbols| self.sections.get(symbols.link))
            .filter(|names| names.kind != SECTION_NO_BITS);
        let Some((offset, bytes)) = names.map(|names| (names.offset, names.bytes)) else { return Ok(None) };
        let names =
            read_range(&mut self.file, self.length, offset, bytes, NAMES_LIMIT).map_err(unreadable)?;
        Ok(names.map(|names| entry_names(&names)))
    }
}

/// The entry symbols among names that each end with a zero.
fn entry_names(names: &[u8]) -> Vec<String> {
    names
        .split(|byte| *byte == 0)
        .filter(|name| {
            name.strip_prefix(ENTRY_PREFIX)
                .is_some_and(|major| !major.is_empty() && major.iter().all(u8::is_ascii_digit))
        })
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
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

/// Checks that the tables, and all that is loaded, lie inside the file.
fn check_segments(file: &mut File, header: &[u8], length: u64) -> Result<(), FileFault> {
    let (segments, sections) = (u64_at(header, 32), u64_at(header, 40));
    let segment_count = u64::from(u16_at(header, 56));
    if usize::from(u16_at(header, 54)) != SEGMENT_BYTES || segment_count == 0 {
        return Err(FileFault::NotALibrary("its table of segments is damaged".to_owned()));
    }
    let table_bytes = segment_count * SEGMENT_BYTES as u64;
    let section_bytes = u64::from(u16_at(header, 58)) * u64::from(u16_at(header, 60));
    let mut needed = segments.saturating_add(table_bytes).max(sections.saturating_add(section_bytes));
    if let Some(table) = read_range(file, length, segments, table_bytes, u64::MAX).map_err(unreadable)? {
        for segment in table.chunks_exact(SEGMENT_BYTES) {
            if u32_at(segment, 0) == SEGMENT_LOAD {
                needed = needed.max(u64_at(segment, 8).saturating_add(u64_at(segment, 32)));
            }
        }
    }
    within(needed, length)
}

/// The sections with their names, each of which lies inside the file. A library may have none.
fn read_sections(file: &mut File, header: &[u8], length: u64) -> Result<Vec<Section>, FileFault> {
    let damaged = || FileFault::NotALibrary("its table of sections is damaged".to_owned());
    let (offset, count) = (u64_at(header, 40), u64::from(u16_at(header, 60)));
    if count == 0 {
        return Ok(Vec::new());
    }
    if usize::from(u16_at(header, 58)) != SECTION_BYTES {
        return Err(damaged());
    }
    let table = read_range(file, length, offset, count * SECTION_BYTES as u64, u64::MAX)
        .map_err(unreadable)?
        .ok_or_else(damaged)?;
    let mut sections: Vec<(u32, Section)> = table
        .chunks_exact(SECTION_BYTES)
        .map(|entry| {
            let section = Section {
                name: Vec::new(),
                kind: u32_at(entry, 4),
                offset: u64_at(entry, 24),
                bytes: u64_at(entry, 32),
                link: u32_at(entry, 40) as usize,
            };
            (u32_at(entry, 0), section)
        })
        .collect();
    // Number 0 is no section; its fields have other meanings.
    for (_, section) in sections.iter().skip(1).filter(|(_, section)| section.kind != SECTION_NO_BITS) {
        within(section.offset.saturating_add(section.bytes), length)?;
    }
    let (_, names) = sections.get(usize::from(u16_at(header, 62))).ok_or_else(damaged)?;
    let names = read_range(file, length, names.offset, names.bytes, NAMES_LIMIT)
        .map_err(unreadable)?
        .ok_or_else(damaged)?;
    for (name_at, section) in &mut sections {
        let name = names.get(*name_at as usize..).ok_or_else(damaged)?;
        section.name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    }
    Ok(sections.into_iter().map(|(_, section)| section).collect())
}

fn within(needed: u64, found: u64) -> Result<(), FileFault> {
    if needed > found { Err(FileFault::CutShort { needed, found }) } else { Ok(()) }
}

fn unreadable(source: io::Error) -> FileFault {
    FileFault::io("read it", source)
}

fn other_machine(found: String) -> FileFault {
    FileFault::OtherMachine { found, wanted: HOST.map_or(std::env::consts::ARCH, |(_, name)| name) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_versions_are_found_among_the_names() {
        let names =
            b"\0malloc\0paceline_plugin_entry_v2\0paceline_plugin_entry_vx\0paceline_plugin_entry_v1\0";
        assert_eq!(entry_names(names), ["paceline_plugin_entry_v2", "paceline_plugin_entry_v1"]);
    }
}
