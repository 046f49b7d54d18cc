//! Spans of blocks, at borders that depend on nothing: eight of one block, eight of two, eight of four, and so on. So
//! their number grows with the logarithm of the context, and a span of several blocks has at most a quarter of what
//! lies before it.

use core::ops::Range;

/// Spans of each size.
const SPANS: usize = 8;

/// The span of a block.
#[inline(always)]
pub fn span_of(block: usize) -> usize {
    let size = (block / SPANS + 1).ilog2() as usize;
    SPANS * size + ((block - first_block(size)) >> size)
}

/// The blocks of a span.
#[inline(always)]
pub fn span_blocks(span: usize) -> Range<usize> {
    let size = span / SPANS;
    let start = first_block(size) + ((span % SPANS) << size);
    start..start + (1 << size)
}

/// First block of the spans of 2^size blocks.
#[inline(always)]
fn first_block(size: usize) -> usize {
    SPANS * ((1 << size) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_all_blocks_once_and_in_order() {
        let mut next = 0;
        for span in 0..100 {
            let blocks = span_blocks(span);
            assert_eq!(blocks.start, next);
            assert!(blocks.len() == 1 || 4 * blocks.len() <= blocks.start, "{span}: {blocks:?}");
            assert!(blocks.clone().take(1000).all(|block| span_of(block) == span));
            assert_eq!(span_of(blocks.end - 1), span);
            next = blocks.end;
        }
    }
}
