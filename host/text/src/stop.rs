//! Stop strings: texts that end a reply and are not part of it.

/// Ends a text at the first stop string, however text and stop strings are split.
///
/// The stop string that is complete first ends the text; of two that are complete with the same
/// character, the longer one. Text is held back only while it may be the beginning of a stop
/// string.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    /// The end of the text so far, which is the beginning of a stop string.
    held: String,
    /// The stop string that ended the text.
    matched: Option<usize>,
}

#[derive(Clone, Debug)]
struct Stop {
    text: String,
    /// For each length of a beginning of `text`: the length of the longest shorter beginning that
    /// it ends with.
    fallback: Vec<usize>,
    /// The length of the longest beginning of `text` that the text so far ends with.
    progress: usize,
}

impl StopMatcher {
    /// Stops at any of these strings. Empty strings are ignored.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> StopMatcher {
        let stops: Vec<Stop> =
            stops.into_iter().map(Into::into).filter(|text| !text.is_empty()).map(Stop::new).collect();
        let longest = stops.iter().map(|stop| stop.text.len()).max().unwrap_or(0);
        StopMatcher { stops, held: String::with_capacity(longest), matched: None }
    }

    /// Appends what is certain to precede every stop string to `out`. Returns the stop string
    /// that ended the text, now or before; text after it is dropped.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        if self.matched.is_some() {
            return self.matched();
        }
        for (index, byte) in text.bytes().enumerate() {
            for stop in &mut self.stops {
                stop.advance(byte);
            }
            let complete = self.stops.iter().enumerate().filter(|(_, stop)| stop.is_complete());
            if let Some((matched, stop)) = complete.max_by_key(|(_, stop)| stop.text.len()) {
                // All of the stop string is in what was held and in the text up to here.
                let keep = self.held.len() + index + 1 - stop.text.len();
                self.matched = Some(matched);
                self.release(keep, text, out);
                self.held.clear();
                return self.matched();
            }
        }
        let hold = self.stops.iter().map(|stop| stop.progress).max().unwrap_or(0);
        self.release(self.held.len() + text.len() - hold, text, out);
        None
    }

    /// Ends the text: what was held back is part of it after all. The matcher is then as new.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.matched = None;
        self.stops.iter_mut().for_each(|stop| stop.progress = 0);
    }

    /// The stop string that ended the text.
    pub fn matched(&self) -> Option<&str> {
        self.matched.and_then(|index| self.stops.get(index)).map(|stop| stop.text.as_str())
    }

    /// The text that is held back for now.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Moves the first `length` bytes of the held text and `text` to `out` and holds the rest.
    ///
    /// Both ends of a beginning of a stop string are ends of characters, so no character is cut.
    fn release(&mut self, length: usize, text: &str, out: &mut String) {
        if let Some(of_text) = length.checked_sub(self.held.len()) {
            out.push_str(&self.held);
            self.held.clear();
            out.push_str(&text[..of_text]);
            self.held.push_str(&text[of_text..]);
        } else {
            out.extend(self.held.drain(..length));
            self.held.push_str(text);
        }
    }
}

impl Stop {
    fn new(text: String) -> Stop {
        let mut stop = Stop { fallback: vec![0; text.len() + 1], text, progress: 0 };
        // The table for a length is only needed beyond it, so it can be filled by matching the
        // string against itself.
        for length in 2..=stop.text.len() {
            stop.advance(stop.text.as_bytes()[length - 1]);
            stop.fallback[length] = stop.progress;
        }
        stop.progress = 0;
        stop
    }

    fn is_complete(&self) -> bool {
        self.progress == self.text.len()
    }

    fn advance(&mut self, byte: u8) {
        let expected = self.text.as_bytes();
        while self.progress > 0 && expected.get(self.progress) != Some(&byte) {
            self.progress = self.fallback[self.progress];
        }
        if expected.get(self.progress) == Some(&byte) {
            self.progress += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The text and the stop string, by looking at the whole text at once.
    fn truncated<'a>(text: &'a str, stops: &'a [String]) -> (&'a str, Option<&'a str>) {
        for end in 0..=text.len() {
            let complete = stops.iter().filter(|stop| {
                !stop.is_empty() && text.is_char_boundary(end) && text[..end].ends_with(stop.as_str())
            });
            if let Some(stop) = complete.max_by_key(|stop| stop.len()) {
                return (&text[..end - stop.len()], Some(stop));
            }
        }
        (text, None)
    }

    fn assert_streams_as_whole(pieces: &[String], stops: &[String]) {
        let whole = pieces.concat();
        let (expected, expected_stop) = truncated(&whole, stops);
        let mut matcher = StopMatcher::new(stops);
        let (mut out, mut so_far) = (String::new(), String::new());
        for piece in pieces {
            let stop = matcher.push(piece, &mut out).map(String::from);
            so_far.push_str(piece);
            // Never ahead of what is certain, never behind it by more than a true beginning.
            assert!(expected.starts_with(&out), "{out:?} of {expected:?}");
            if stop.is_none() {
                assert_eq!(format!("{out}{}", matcher.held()), so_far);
                let is_beginning = |stop: &String| stop.starts_with(matcher.held());
                assert!(matcher.held().is_empty() || stops.iter().any(is_beginning), "{:?}", matcher.held());
            }
        }
        assert_eq!(matcher.matched(), expected_stop);
        matcher.finish(&mut out);
        assert_eq!(out, expected, "{pieces:?} {stops:?}");
    }

    /// All ways of cutting a text into pieces.
    fn assert_for_every_split(text: &str, stops: &[&str]) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let characters: Vec<char> = text.chars().collect();
        for cuts in 0u32..1 << characters.len().saturating_sub(1) {
            let mut pieces = vec![String::new()];
            for (index, character) in characters.iter().enumerate() {
                if index > 0 && cuts >> (index - 1) & 1 == 1 {
                    pieces.push(String::new());
                }
                pieces.last_mut().unwrap().push(*character);
            }
            assert_streams_as_whole(&pieces, &stops);
        }
    }

    #[test]
    fn every_split_of_texts_with_stops() {
        assert_for_every_split("say STOP now", &["STOP"]);
        assert_for_every_split("aabaabaaab", &["aabaaab"]);
        assert_for_every_split("xabcdy", &["abcd", "bc"]);
        assert_for_every_split("xabcdy", &["bcd", "abcd", "d"]);
        assert_for_every_split("a\n\nUser:", &["\n\nUser:", "\n\n\n"]);
        assert_for_every_split("no stop, ST", &["STOP", "top"]);
        assert_for_every_split("é😊è", &["😊è"]);
        assert_for_every_split("aè", &["é"]);
        assert_for_every_split("anything", &["", ""]);
        assert_for_every_split("anything", &[]);
    }

    #[test]
    fn the_held_tail_is_delivered_at_the_end() {
        let mut matcher = StopMatcher::new(["STOP"]);
        let mut out = String::new();
        assert_eq!(matcher.push("the ST", &mut out), None);
        assert_eq!((out.as_str(), matcher.held()), ("the ", "ST"));
        matcher.finish(&mut out);
        assert_eq!(out, "the ST");
    }

    #[test]
    fn text_after_a_stop_is_dropped() {
        let mut matcher = StopMatcher::new(["STOP"]);
        let mut out = String::new();
        assert_eq!(matcher.push("a STOP b", &mut out), Some("STOP"));
        assert_eq!(matcher.push("c", &mut out), Some("STOP"));
        matcher.finish(&mut out);
        assert_eq!(out, "a ");
    }

    proptest! {
        #[test]
        fn streamed_text_is_truncated_whole_text(
            pieces in vec("[abé]{0,4}", 0..8),
            stops in vec("[abé]{0,4}", 0..4),
        ) {
            assert_streams_as_whole(&pieces, &stops);
        }

        #[test]
        fn any_text_and_stops(pieces in vec(any::<String>(), 0..4), stops in vec(any::<String>(), 0..3)) {
            assert_streams_as_whole(&pieces, &stops);
        }
    }
}
