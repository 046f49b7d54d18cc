//! The 256 characters that byte-level vocabularies write bytes with.
//!
//! Printable bytes of Latin-1 stand for themselves; the others are numbered from U+0100 in order
//! of their value, so that a token never holds a space or a control character.

/// One more than the largest character of the alphabet: 256 plus the 68 unprintable bytes.
const ALPHABET_END: usize = 256 + 68;
const NOT_A_BYTE: u16 = u16::MAX;

const BYTE_OF_CHAR: [u16; ALPHABET_END] = byte_of_char_table();

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn byte_of_char_table() -> [u16; ALPHABET_END] {
    let mut table = [NOT_A_BYTE; ALPHABET_END];
    let mut next_stand_in = 256;
    let mut byte = 0;
    while byte < 256 {
        if stands_for_itself(byte as u8) {
            table[byte] = byte as u16;
        } else {
            table[next_stand_in] = byte as u16;
            next_stand_in += 1;
        }
        byte += 1;
    }
    table
}

/// The byte that a character of the alphabet stands for.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    let entry = *BYTE_OF_CHAR.get(character as usize)?;
    u8::try_from(entry).ok()
}

/// The bytes that a token stands for. A token with any character outside the alphabet was added
/// by hand, and stands for its own text.
pub(crate) fn bytes_of_token(token: &str) -> Vec<u8> {
    token.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut seen: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_characters() {
        assert_eq!(bytes_of_token("Ġhi"), b" hi");
        assert_eq!(bytes_of_token("Ċ"), b"\n");
        assert_eq!(bytes_of_token("ĉ"), b"\t");
        assert_eq!(bytes_of_token("Ã©"), "é".as_bytes());
        assert_eq!(bytes_of_token("Ń"), [0xAD]);
    }

    #[test]
    fn tokens_outside_the_alphabet_stand_for_themselves() {
        assert_eq!(bytes_of_token("two words"), b"two words");
        assert_eq!(bytes_of_token("日本"), "日本".as_bytes());
        assert_eq!(bytes_of_token(""), b"");
    }
}
