//! What is wrong with a descriptor, and where.

/// What is wrong with a descriptor, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct DescriptorFault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, one line.
    pub message: String,
}

impl DescriptorFault {
    /// A fault at a byte of `text`.
    pub(super) fn new(text: &str, at: usize, message: &str) -> Self {
        let (line, column) = line_and_column(text, at);
        // The parser explains itself on several lines.
        let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
        Self { line, column, message: message.join(", ") }
    }
}

/// Line and column, from 1, of a byte of a text.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
