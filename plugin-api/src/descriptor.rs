//! The descriptor: one TOML text that says what a plugin is, readable without running it.
//!
//! In a shared library it stands in the section `.paceline.plugin`: the magic `PACELINE-PLUGIN1`, the length of the
//! text as u64, its CRC-32 as u32, four zero bytes, then the text; numbers are little-endian.

/// First bytes of the section.
pub const MAGIC: &[u8; 16] = b"PACELINE-PLUGIN1";
/// Bytes before the text.
pub const HEADER_BYTES: usize = 32;

/// Length of the section for a descriptor.
pub const fn section_length(descriptor: &str) -> usize {
    HEADER_BYTES + descriptor.len()
}

/// The section's bytes, made at compile time.
pub const fn section<const N: usize>(descriptor: &str) -> [u8; N] {
    let text = descriptor.as_bytes();
    assert!(N == HEADER_BYTES + text.len(), "the section has another length");
    let mut bytes = [0; N];
    let mut i = 0;
    while i < MAGIC.len() {
        bytes[i] = MAGIC[i];
        i += 1;
    }
    let length = (text.len() as u64).to_le_bytes();
    let checksum = crc32(text).to_le_bytes();
    i = 0;
    while i < 8 {
        bytes[16 + i] = length[i];
        if i < 4 {
            bytes[24 + i] = checksum[i];
        }
        i += 1;
    }
    i = 0;
    while i < text.len() {
        bytes[HEADER_BYTES + i] = text[i];
        i += 1;
    }
    bytes
}

/// Why a section does not hold a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// The magic is missing.
    #[error("the plugin section does not begin with {}", String::from_utf8_lossy(MAGIC))]
    Magic,
    /// The text is shorter than stated.
    #[error("the plugin section states a descriptor of {stated} bytes but holds {held}")]
    Length {
        /// Bytes that the header states.
        stated: u64,
        /// Bytes that are there.
        held: usize,
    },
    /// The checksum does not fit.
    #[error("the descriptor's checksum is wrong: the file is damaged")]
    Checksum,
    /// The text is not UTF-8.
    #[error("the descriptor is not UTF-8")]
    Text,
}

/// Reads the text out of a section's bytes.
///
/// # Errors
/// What is wrong with the section.
pub fn read_section(section: &[u8]) -> Result<&str, DescriptorError> {
    let header =
        section.get(..HEADER_BYTES).filter(|h| h.starts_with(MAGIC)).ok_or(DescriptorError::Magic)?;
    let stated = u64::from_le_bytes(header[16..24].try_into().map_err(|_| DescriptorError::Magic)?);
    let checksum = u32::from_le_bytes(header[24..28].try_into().map_err(|_| DescriptorError::Magic)?);
    let held = &section[HEADER_BYTES..];
    let text = usize::try_from(stated)
        .ok()
        .and_then(|length| held.get(..length))
        .ok_or(DescriptorError::Length { stated, held: held.len() })?;
    if crc32(text) != checksum {
        return Err(DescriptorError::Checksum);
    }
    std::str::from_utf8(text).map_err(|_| DescriptorError::Text)
}

/// CRC-32 (IEEE 802.3, reflected), usable at compile time.
const fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut i = 0;
    while i < bytes.len() {
        crc ^= bytes[i] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        i += 1;
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "id = \"x\"\n";
    const SECTION: [u8; section_length(TEXT)] = section(TEXT);

    #[test]
    fn a_section_reads_back() {
        assert_eq!(read_section(&SECTION), Ok(TEXT));
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        for length in 0..SECTION.len() {
            assert!(read_section(&SECTION[..length]).is_err(), "cut at {length}");
        }
        // Bytes 28..32 are padding.
        for index in (0..SECTION.len()).filter(|i| !(28..32).contains(i)) {
            let mut damaged = SECTION;
            damaged[index] ^= 1;
            assert!(read_section(&damaged).is_err(), "flipped byte {index}");
        }
    }
}
