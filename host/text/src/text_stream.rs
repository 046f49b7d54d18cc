//! Token bytes to the text that is shown.

use crate::stop::StopMatcher;
use crate::utf8_stream::Utf8Stream;

/// Text that one token rarely exceeds; longer tokens make the buffers grow once.
const RESERVED: usize = 256;

/// Turns the bytes of one token after another into text, and ends it at a stop string.
///
/// Once its buffers have the size of the longest token, pushing does not allocate.
#[derive(Clone, Debug)]
pub struct TextStream {
    characters: Utf8Stream,
    stops: StopMatcher,
    decoded: String,
    delta: String,
}

/// What one push adds to the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextDelta<'a> {
    /// Text to append to what was shown before.
    pub text: &'a str,
    /// The stop string that has ended the text. Nothing comes after it.
    pub stop: Option<&'a str>,
}

impl TextStream {
    /// A stream that ends at one of these stop strings.
    pub fn new(stops: StopMatcher) -> TextStream {
        TextStream {
            characters: Utf8Stream::new(),
            stops,
            decoded: String::with_capacity(RESERVED),
            delta: String::with_capacity(RESERVED),
        }
    }

    /// Adds the bytes of a token.
    pub fn push(&mut self, token_bytes: &[u8]) -> TextDelta<'_> {
        self.decoded.clear();
        self.delta.clear();
        self.characters.push(token_bytes, &mut self.decoded);
        let stop = self.stops.push(&self.decoded, &mut self.delta);
        TextDelta { text: &self.delta, stop }
    }

    /// Ends the text: gives what was held back for the rest of a character or a stop string. To
    /// be called once, also after a stop.
    pub fn finish(&mut self) -> TextDelta<'_> {
        self.decoded.clear();
        self.delta.clear();
        self.characters.finish(&mut self.decoded);
        if self.stops.push(&self.decoded, &mut self.delta).is_none() {
            self.stops.finish(&mut self.delta);
        }
        TextDelta { text: &self.delta, stop: self.stops.matched() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn run(pieces: &[&[u8]], stops: &[&str]) -> (String, Option<String>) {
        let mut stream = TextStream::new(StopMatcher::new(stops.iter().copied()));
        let mut text = String::new();
        for piece in pieces {
            text.push_str(stream.push(piece).text);
        }
        let end = stream.finish();
        text.push_str(end.text);
        (text, end.stop.map(String::from))
    }

    #[test]
    fn characters_and_stops_split_over_tokens() {
        let pieces: Vec<&[u8]> = "Zürich 😀END tail".as_bytes().chunks(1).collect();
        assert_eq!(run(&pieces, &["😀END"]), ("Zürich ".into(), Some("😀END".into())));
        assert_eq!(run(&pieces[..13], &["😀END"]), ("Zürich 😀E".into(), None));
    }

    #[test]
    fn a_stop_can_be_an_incomplete_character() {
        assert_eq!(run(&[b"a", &[0xE2]], &["\u{FFFD}"]), ("a".into(), Some("\u{FFFD}".into())));
    }

    #[test]
    fn pushing_does_not_allocate() {
        let mut stream = TextStream::new(StopMatcher::new(["never said", "nevermore"]));
        let capacities = |stream: &TextStream| (stream.decoded.capacity(), stream.delta.capacity());
        let before = capacities(&stream);
        for _ in 0..10_000 {
            for piece in "it is never sad, 😀 never mor".as_bytes().chunks(5) {
                assert_eq!(stream.push(piece).stop, None);
            }
        }
        assert_eq!(capacities(&stream), before);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_text(
            bytes in vec(prop_oneof![any::<u8>(), Just(0xC3), Just(0xA9), Just(b'a')], 0..24),
            cuts in vec(0usize..24, 0..6),
            stops in vec("[aé\u{FFFD}]{1,3}", 0..3),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(run(&pieces, &stops), run(&[&bytes], &stops));
        }
    }
}
