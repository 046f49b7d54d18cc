//! Splits text into the pieces that merging never crosses.
//!
//! The published tokenizers define the split by a regular expression. It is scanned by hand here:
//! the expression needs look-ahead, and the engines that have it give up on a million spaces in a
//! row. The tests hold the scanner to the expressions.
//!
//! In the order in which they are tried, `L` letters, `M` marks, `N` numbers, `S` white space:
//!
//! ```text
//! qwen2:  (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\nLN]?L+    | N |  ?[^SLN]+[\r\n]*  | S*[\r\n]+ | S+(?!\S) | S+
//! qwen35: the same                     | [^\r\nLN]?[LM]+ | N |  ?[^SLMN]+[\r\n]* | the same
//! ```

use unicode_general_category::{GeneralCategory, get_general_category};

use crate::error::{TokenizerError, excerpt};

/// The values of `tokenizer.ggml.pre` that are supported.
const SUPPORTED: [(&str, Pretokenizer); 2] = [
    ("qwen2", Pretokenizer { marks_are_letters: false }),
    ("qwen35", Pretokenizer { marks_are_letters: true }),
];

/// The values of `tokenizer.ggml.pre` that [`Tokenizer::new`](crate::Tokenizer::new) accepts.
pub fn supported_pretokenizers() -> impl Iterator<Item = &'static str> {
    SUPPORTED.iter().map(|(name, _)| *name)
}

/// One way of splitting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pretokenizer {
    /// Whether combining marks belong to the word they stand in, or are symbols.
    marks_are_letters: bool,
}

impl Pretokenizer {
    /// The one that `tokenizer.ggml.pre` names.
    pub(crate) fn named(pre: Option<&str>) -> Result<Pretokenizer, TokenizerError> {
        let supported = || supported_pretokenizers().collect::<Vec<_>>().join(", ");
        let pre = pre
            .filter(|name| !name.is_empty())
            .ok_or_else(|| TokenizerError::MissingPretokenizer { supported: supported() })?;
        SUPPORTED.iter().find(|(name, _)| *name == pre).map(|(_, pretokenizer)| *pretokenizer).ok_or_else(
            || TokenizerError::UnsupportedPretokenizer { pre: excerpt(pre), supported: supported() },
        )
    }

    /// The pieces of `text`; joined, they are `text`.
    pub(crate) fn pieces(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let (piece, after) = rest.split_at(self.piece_length(first, rest));
            rest = after;
            Some(piece)
        })
    }

    /// The length of the piece that `text` begins with; `first` is its first character.
    fn piece_length(self, first: char, text: &str) -> usize {
        let after_first = &text[first.len_utf8()..];
        if let Some(length) = contraction_length(text) {
            return length;
        }
        match self.class(first) {
            Class::Letter => return self.run_length(text, Class::Letter),
            Class::Number => return first.len_utf8(),
            Class::Space | Class::Symbol => {}
        }
        if !is_line_end(first) {
            let word = self.run_length(after_first, Class::Letter);
            if word > 0 {
                return first.len_utf8() + word;
            }
        }
        let lead = usize::from(first == ' ');
        let symbols = self.run_length(&text[lead..], Class::Symbol);
        if symbols > 0 {
            let end = lead + symbols;
            return end + prefix_length(&text[end..], is_line_end);
        }
        space_length(text)
    }

    fn run_length(self, text: &str, class: Class) -> usize {
        prefix_length(text, |character| self.class(character) == class)
    }

    fn class(self, character: char) -> Class {
        use GeneralCategory as Category;
        if character.is_ascii() {
            return match character {
                'a'..='z' | 'A'..='Z' => Class::Letter,
                '0'..='9' => Class::Number,
                _ if character.is_whitespace() => Class::Space,
                _ => Class::Symbol,
            };
        }
        match get_general_category(character) {
            Category::UppercaseLetter
            | Category::LowercaseLetter
            | Category::TitlecaseLetter
            | Category::ModifierLetter
            | Category::OtherLetter => Class::Letter,
            Category::NonspacingMark | Category::SpacingMark | Category::EnclosingMark
                if self.marks_are_letters =>
            {
                Class::Letter
            }
            Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber => Class::Number,
            _ if character.is_whitespace() => Class::Space,
            _ => Class::Symbol,
        }
    }
}

/// What the splitting distinguishes. A character is exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Symbol,
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\r' | '\n')
}

fn prefix_length(text: &str, accepted: impl Fn(char) -> bool) -> usize {
    text.find(|character| !accepted(character)).unwrap_or(text.len())
}

/// The length of an English contraction such as `'re` at the beginning of `text`.
fn contraction_length(text: &str) -> Option<usize> {
    let mut characters = text.strip_prefix('\'')?.chars();
    let first = characters.next()?;
    match first.to_ascii_lowercase() {
        // The long s is an s to a regular expression that ignores case.
        's' | 't' | 'm' | 'd' | 'ſ' => Some(1 + first.len_utf8()),
        lower @ ('r' | 'v' | 'l') => {
            let expected = if lower == 'l' { 'l' } else { 'e' };
            (characters.next()?.to_ascii_lowercase() == expected).then_some(3)
        }
        _ => None,
    }
}

/// The length of the piece at the beginning of `text`, which begins with white space that belongs
/// to no word or symbol.
fn space_length(text: &str) -> usize {
    let run = &text[..prefix_length(text, char::is_whitespace)];
    if let Some(last_line_end) = run.rfind(is_line_end) {
        return last_line_end + 1;
    }
    let last_space = run.chars().next_back().map_or(0, char::len_utf8);
    // The last space before a word goes with the word, unless it is all there is.
    if run.len() == text.len() || run.len() == last_space { run.len() } else { run.len() - last_space }
}

#[cfg(test)]
mod tests {
    use fancy_regex::Regex;
    use proptest::prelude::*;

    use super::*;

    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    fn assert_split_as_published(text: &str) {
        use std::sync::LazyLock;
        static PUBLISHED: LazyLock<[(&str, Regex); 2]> = LazyLock::new(|| {
            [("qwen2", QWEN2), ("qwen35", QWEN35)].map(|(name, pattern)| (name, Regex::new(pattern).unwrap()))
        });
        for (name, pattern) in PUBLISHED.iter() {
            let expected: Vec<&str> = pattern.find_iter(text).map(|found| found.unwrap().as_str()).collect();
            let pieces: Vec<&str> = Pretokenizer::named(Some(name)).unwrap().pieces(text).collect();
            assert_eq!(pieces, expected, "{name}: {text:?}");
        }
    }

    #[test]
    fn splits_as_published() {
        for text in [
            "",
            "Hello, world! It's fine; WE'LL see, they'd've DON'T 'ſ 'ſt 'rx 'L",
            "Café déjà vu — 123 😊",
            "Cafe\u{301} \u{301} \u{301}a \u{301}1 -\u{301}",
            "a  b   c\t\td \t e\u{a0}f\u{2003} g",
            "line\r\n\r\n  next\n \n\t x\n",
            "\n\n   trailing   ",
            "!!!\r\n\n x ... \n",
            "½ Ⅷ ٣ x² 3½",
            "नमस्ते किसान كِتَاب ไทย 日本語",
            "\u{2028}a\u{2029}\u{85} b",
            "👩‍👩‍👧 \u{200d}a",
            " 1 -1 (x) $y #z",
        ] {
            assert_split_as_published(text);
        }
    }

    #[test]
    fn every_character_is_split_as_published() {
        // In a word, alone and doubled.
        let mut all = String::new();
        for character in (0..=0x10FFFF).filter_map(char::from_u32) {
            all.extend(['a', character, ' ', character, character]);
        }
        assert_split_as_published(&all);
    }

    #[test]
    fn long_runs_are_split_in_linear_time() {
        let spaces = " ".repeat(3_000_000) + "x";
        let pieces: Vec<&str> = Pretokenizer { marks_are_letters: true }.pieces(&spaces).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1], " x");
    }

    #[test]
    fn other_names_are_refused() {
        assert!(matches!(Pretokenizer::named(None), Err(TokenizerError::MissingPretokenizer { .. })));
        assert!(matches!(Pretokenizer::named(Some("")), Err(TokenizerError::MissingPretokenizer { .. })));
        let error = Pretokenizer::named(Some("new-thing")).unwrap_err().to_string();
        assert!(error.contains("`new-thing`") && error.contains("qwen2, qwen35"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_split_as_published(text in any::<String>()) {
            assert_split_as_published(&text);
        }

        #[test]
        fn awkward_text_is_split_as_published(text in "[ \t\r\n\u{a0}a-cZ1½'slLrReEvVſ.!\u{301}\u{93f}कé😊\u{2029}]{0,40}") {
            assert_split_as_published(&text);
        }
    }
}
