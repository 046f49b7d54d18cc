//! Tells apart what a tag of a template consists of.

use std::ops::Range;

use super::error::TemplateError;

/// Words, numbers, texts and signs in one tag. The engine recurses with the length of chains such
/// as `a.b.c`.
const MAX_TOKENS_PER_TAG: usize = 8_192;

/// A tag, from its `{%` or `{{` to the end.
pub(super) struct Tag {
    pub(super) range: Range<usize>,
    /// Without the delimiters and their signs.
    pub(super) inner: Range<usize>,
    pub(super) tokens: Vec<Token>,
    /// What to write into it: places and texts.
    pub(super) insertions: Vec<(usize, String)>,
}

pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) range: Range<usize>,
    /// Brackets around it. An opening bracket is outside of itself, and so is a closing one.
    pub(super) depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Text,
    Sign,
}

/// Reads the tag at a place; `None` where it does not end.
pub(super) fn read_tag(source: &str, start: usize, close: u8) -> Result<Option<Tag>, TemplateError> {
    let bytes = source.as_bytes();
    let mut place = start + 2;
    if matches!(bytes.get(place), Some(b'-' | b'+')) {
        place += 1;
    }
    let inner_start = place;
    let (mut tokens, mut brackets) = (Vec::new(), Vec::new());
    while let Some(&byte) = bytes.get(place) {
        let signed = usize::from(matches!(byte, b'-' | b'+'));
        if brackets.is_empty()
            && bytes.get(place + signed) == Some(&close)
            && bytes.get(place + signed + 1) == Some(&b'}')
        {
            let (inner, range) = (inner_start..place, start..place + signed + 2);
            return Ok(Some(Tag { range, inner, tokens, insertions: Vec::new() }));
        }
        if byte.is_ascii_whitespace() {
            place += 1;
            continue;
        }
        if tokens.len() == MAX_TOKENS_PER_TAG {
            let reason = format!("a tag has more than {MAX_TOKENS_PER_TAG} words and signs");
            return Err(refused(source, start, reason));
        }
        if let b')' | b']' | b'}' = byte {
            let open = match byte {
                b')' => b'(',
                b']' => b'[',
                _ => b'{',
            };
            if brackets.pop() != Some(open) {
                return Err(refused(
                    source,
                    place,
                    format!("the bracket `{}` does not match what is open", char::from(byte)),
                ));
            }
        }
        let depth = brackets.len();
        let (kind, end) = match byte {
            b'"' | b'\'' => match end_of_text(bytes, place) {
                Some(end) => (Kind::Text, end),
                None => return Ok(None),
            },
            _ if is_word(byte) => {
                let length = bytes[place..].iter().take_while(|byte| is_word(**byte)).count();
                (Kind::Word, place + length)
            }
            _ => (Kind::Sign, place + 1),
        };
        if let b'(' | b'[' | b'{' = byte {
            brackets.push(byte);
        }
        tokens.push(Token { kind, range: place..end, depth });
        place = end;
    }
    Ok(None)
}

/// A refusal of what is at a place.
pub(super) fn refused(source: &str, place: usize, reason: String) -> TemplateError {
    let line = 1 + source[..place].bytes().filter(|byte| *byte == b'\n').count();
    TemplateError::Syntax { line: Some(line), reason }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where a quoted text that begins at a place ends.
fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    let mut place = start + 1;
    loop {
        match *bytes.get(place)? {
            b'\\' => place += 2,
            byte if byte == bytes[start] => return Some(place + 1),
            _ => place += 1,
        }
    }
}

/// The length of raw text with the `endraw` tag at its end.
pub(super) fn end_of_raw(text: &str) -> Option<usize> {
    text.match_indices("{%").find_map(|(start, _)| {
        let inner = text[start + 2..].trim_start_matches(['-', '+']).trim_start();
        let after = inner.strip_prefix("endraw")?.trim_start().trim_start_matches(['-', '+']);
        after.starts_with("%}").then(|| text.len() - after.len() + 2)
    })
}
