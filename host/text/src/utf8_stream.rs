//! Whole characters from bytes that arrive in pieces.

use std::str::from_utf8;

/// The longest beginning of a character that may have to wait for its end.
const MAX_PENDING: usize = 3;

/// Puts together characters that were split over tokens.
///
/// The text is that of [`String::from_utf8_lossy`] over all bytes together, wherever they are
/// split: what can never become a character is one U+FFFD.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character.
    pending: [u8; MAX_PENDING],
    pending_length: usize,
}

impl Utf8Stream {
    /// A stream before its first byte.
    pub fn new() -> Utf8Stream {
        Utf8Stream::default()
    }

    /// Appends the characters that are complete with these bytes to `text`.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        let rest = self.complete_pending(bytes, text);
        let mut consumed = 0;
        for chunk in rest.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            consumed += chunk.valid().len() + invalid.len();
            if consumed == rest.len() && is_beginning_of_character(invalid) {
                self.keep(invalid);
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// Ends the stream: a character that is still incomplete is one U+FFFD. The next byte begins
    /// a new stream.
    pub fn finish(&mut self, text: &mut String) {
        if self.pending_length > 0 {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        self.pending_length = 0;
    }

    /// Feeds bytes to the character that waits, and returns those that are not part of it.
    fn complete_pending<'a>(&mut self, bytes: &'a [u8], text: &mut String) -> &'a [u8] {
        let mut rest = bytes;
        while self.pending_length > 0
            && let Some((&byte, after)) = rest.split_first()
        {
            let mut buffer = [0; MAX_PENDING + 1];
            buffer[..self.pending_length].copy_from_slice(&self.pending[..self.pending_length]);
            buffer[self.pending_length] = byte;
            let candidate = &buffer[..=self.pending_length];
            if let Ok(character) = from_utf8(candidate) {
                text.push_str(character);
                self.pending_length = 0;
            } else if is_beginning_of_character(candidate) {
                self.keep(candidate);
            } else {
                // The byte belongs to what follows; it may begin a character.
                self.finish(text);
                return rest;
            }
            rest = after;
        }
        rest
    }

    fn keep(&mut self, beginning: &[u8]) {
        self.pending_length = beginning.len();
        self.pending[..beginning.len()].copy_from_slice(beginning);
    }
}

/// Whether these bytes are not a character, but may become one.
fn is_beginning_of_character(bytes: &[u8]) -> bool {
    from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn streamed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut stream, mut text) = (Utf8Stream::new(), String::new());
        for piece in pieces {
            stream.push(piece, &mut text);
        }
        stream.finish(&mut text);
        text
    }

    #[test]
    fn a_character_comes_with_its_last_byte() {
        let (mut stream, mut text) = (Utf8Stream::new(), String::new());
        for byte in [0xF0, 0x9F, 0x98] {
            stream.push(&[byte], &mut text);
            assert_eq!(text, "");
        }
        stream.push(&[0x80], &mut text);
        assert_eq!(text, "😀");
        stream.finish(&mut text);
        assert_eq!(text, "😀");
    }

    #[test]
    fn an_incomplete_end_is_one_replacement() {
        assert_eq!(streamed([&[0xE2][..]]), "\u{FFFD}");
        assert_eq!(streamed([&[0xE2][..], &[0x82]]), "\u{FFFD}");
        assert_eq!(streamed([&[b'a', 0xF0, 0x9F][..], &[0x98]]), "a\u{FFFD}");
    }

    #[test]
    fn a_stream_can_be_used_again_after_its_end() {
        let (mut stream, mut text) = (Utf8Stream::new(), String::new());
        stream.push(&[0xE2], &mut text);
        stream.finish(&mut text);
        stream.push(&[0x82, b'x'], &mut text);
        assert_eq!(text, "\u{FFFD}\u{FFFD}x");
    }

    /// Ill-formed sequences of tables 3-8 to 3-11 of the Unicode standard, at every split.
    #[test]
    fn ill_formed_sequences_at_every_split() {
        for bytes in [
            &[0xC0, 0xAF, 0xE0, 0x80, 0xBF, 0xF0, 0x81, 0x82, 0x41][..],
            &[0xED, 0xA0, 0x80, 0xED, 0xBF, 0xBF, 0xED, 0xAF, 0x41],
            &[0xF4, 0x91, 0x92, 0x93, 0xFF, 0x41, 0x80, 0xBF, 0x42],
            &[0xE1, 0x80, 0xE2, 0xF0, 0x91, 0x92, 0xF1, 0xBF, 0x41],
        ] {
            let whole = String::from_utf8_lossy(bytes);
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(streamed(pieces), whole, "{bytes:x?} at {first} and {second}");
                }
            }
        }
    }

    /// Bytes that meet often enough to make characters, nearly make them, and break them.
    fn awkward_byte() -> impl Strategy<Value = u8> {
        prop_oneof![any::<u8>(), 0x80..=0xBFu8, 0xE0..=0xF4u8, Just(b'a')]
    }

    proptest! {
        #[test]
        fn any_split_gives_the_text_of_the_whole(
            pieces in vec(vec(awkward_byte(), 0..6), 0..20),
        ) {
            let whole = pieces.concat();
            prop_assert_eq!(streamed(pieces.iter().map(Vec::as_slice)), String::from_utf8_lossy(&whole));
        }

        #[test]
        fn any_text_survives_byte_by_byte(text in any::<String>()) {
            prop_assert_eq!(streamed(text.as_bytes().chunks(1)), text);
        }
    }
}
