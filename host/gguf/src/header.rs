//! The first bytes of a file: is it GGUF, of a version and byte order we read?

use crate::Fault;
use crate::cursor::Cursor;

pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// The fixed part at the start of every file.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) tensor_count: u64,
    pub(crate) key_count: u64,
}

impl Header {
    /// Offsets of the two counts, for messages about them.
    pub(crate) const TENSOR_COUNT_OFFSET: u64 = 8;
    pub(crate) const KEY_COUNT_OFFSET: u64 = 16;

    pub(crate) fn read(bytes: &[u8], cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        // A file cut inside the magic is reported as cut, like any other cut.
        if bytes.is_empty() || !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(not_gguf(bytes));
        }
        cursor.take(MAGIC.len() as u64, format_args!("the file's magic number"))?;
        let version = cursor.u32(format_args!("the GGUF version"))?;
        check_version(version)?;
        let tensor_count = cursor.u64(format_args!("the number of tensors"))?;
        let key_count = cursor.u64(format_args!("the number of metadata keys"))?;
        Ok(Header { version, tensor_count, key_count })
    }
}

fn check_version(version: u32) -> Result<(), Fault> {
    match version {
        2 | 3 => Ok(()),
        // Small numbers read in the wrong byte order have their low half empty.
        _ if version != 0 && version & 0xffff == 0 => Err(Fault::BigEndian { version }),
        1 => Err(Fault::Version { version, advice: "convert the model again with a current tool" }),
        _ => Err(Fault::Version {
            version,
            advice: "the file is damaged, or newer than this program: update it or use another copy",
        }),
    }
}

/// Names what a file is that is not GGUF: the usual accidents, each with its remedy.
fn not_gguf(bytes: &[u8]) -> Fault {
    const AGAIN: &str = "download the model again";
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let (found, advice) = if bytes.is_empty() {
        ("an empty file", AGAIN)
    } else if bytes.iter().take(64).all(|byte| *byte == 0) {
        ("with zeros, as an unfinished download does", AGAIN)
    } else if text.starts_with(b"version https://git-lfs") {
        ("a Git LFS pointer", "fetch the file itself with `git lfs pull`")
    } else if text.starts_with(b"<") {
        ("a web page", "download the file itself, not the page about it (a login may be needed)")
    } else if text.starts_with(b"{") {
        ("JSON text, perhaps a server's error message", AGAIN)
    } else if bytes.starts_with(b"FUGG") {
        ("a byte-swapped GGUF file", "use a little-endian copy")
    } else if [&b"lmgg"[..], b"tjgg", b"fmgg", b"algg"].iter().any(|magic| bytes.starts_with(magic)) {
        ("a model in the format before GGUF", "convert it to GGUF")
    } else if bytes.starts_with(b"PK\x03\x04") {
        ("a zip archive, as PyTorch writes", "convert the model to GGUF")
    } else if bytes.get(8) == Some(&b'{') {
        ("a safetensors file", "convert the model to GGUF")
    } else {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(4)]);
        return Fault::NotGguf { found: format!("with {start:?} in place of \"GGUF\""), advice: AGAIN };
    };
    Fault::NotGguf { found: found.to_owned(), advice }
}
