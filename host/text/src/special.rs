//! Finds tokens that are written out in the text, before it is split and merged.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::TokenizerError;

/// A set of tokens to look for.
pub(crate) struct SpecialTokens {
    /// `None` when there is nothing to look for.
    search: Option<AhoCorasick>,
    /// The token of each pattern of `search`.
    ids: Vec<u32>,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    /// Text without any of the tokens, and where it begins.
    Text {
        text: &'a str,
        offset: usize,
    },
    Token(u32),
}

impl SpecialTokens {
    /// Looks for these tokens; of two with the same text, for the first.
    pub(crate) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a str)>,
    ) -> Result<SpecialTokens, TokenizerError> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.filter(|(_, text)| !text.is_empty()).unzip();
        if ids.is_empty() {
            return Ok(SpecialTokens { search: None, ids });
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|error| TokenizerError::SpecialTokensTooLarge { reason: error.to_string() })?;
        Ok(SpecialTokens { search: Some(search), ids })
    }

    /// The parts of `text` in order, without empty ones.
    pub(crate) fn segments<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Segment<'a>> {
        let matches = self.search.iter().flat_map(move |search| search.find_iter(text));
        let tokens = matches.map(|found| (found.range(), Some(self.ids[found.pattern().as_usize()])));
        let mut end_of_last = 0;
        tokens.chain([(text.len()..text.len(), None)]).flat_map(move |(range, id)| {
            let before = Segment::Text { text: &text[end_of_last..range.start], offset: end_of_last };
            let has_before = end_of_last < range.start;
            end_of_last = range.end;
            [has_before.then_some(before), id.map(Segment::Token)].into_iter().flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(tokens: &[&'static str], text: &'static str) -> Vec<Segment<'static>> {
        let tokens = SpecialTokens::new((0..).zip(tokens.iter().copied())).unwrap();
        // Leaked so that the helper can return borrowed segments.
        Box::leak(Box::new(tokens)).segments(text).collect()
    }

    #[test]
    fn text_around_tokens_is_kept() {
        assert_eq!(
            segments(&["<s>"], "a<s> b<s><s>"),
            [
                Segment::Text { text: "a", offset: 0 },
                Segment::Token(0),
                Segment::Text { text: " b", offset: 4 },
                Segment::Token(0),
                Segment::Token(0),
            ]
        );
    }

    #[test]
    fn the_longest_token_wins_and_empty_ones_are_ignored() {
        assert_eq!(segments(&["", "ab", "abc", "abc"], "abc"), [Segment::Token(2)]);
        assert_eq!(segments(&[""], "x"), [Segment::Text { text: "x", offset: 0 }]);
        assert_eq!(segments(&["a"], ""), []);
    }
}
