//! Values as views: rows of items of elements, which a slice or a reshape need not copy.

use super::{Id, Ref};
use paceline_kernels::params::View;
use paceline_plugin_api::graph::Value;

/// Bytes of an element of an activation.
pub(super) const ELEMENT: u64 = 4;

/// Rows of a value, and elements of a row. A value of one dimension without a live count is one row.
pub(super) fn rows_of(value: &Value) -> (u32, u32) {
    match (value.shape.rank(), value.live) {
        (0 | 1, None) => (1, value.shape.elements().unwrap_or(1) as u32),
        _ => (value.shape.first(), value.shape.row_elements() as u32),
    }
}

/// How the elements of a value lie in another value's memory. Rows have `items` runs of `width` elements without gaps;
/// strides count elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lie {
    pub root: Id,
    /// Elements before the first.
    pub offset: u64,
    pub rows: u32,
    pub row: u32,
    pub items: u32,
    pub item: u32,
    pub width: u32,
}

impl Lie {
    /// Without gaps, in memory of its own.
    pub fn dense(root: Id, rows: u32, row_elements: u32) -> Self {
        Self { root, offset: 0, rows, row: row_elements, items: 1, item: row_elements, width: row_elements }
    }

    pub fn row_elements(&self) -> u32 {
        self.items * self.width
    }

    /// True if a row has no gaps.
    pub fn has_dense_rows(&self) -> bool {
        self.items == 1 || self.item == self.width
    }

    /// True if there are no gaps at all.
    pub fn is_dense(&self) -> bool {
        self.has_dense_rows() && (self.rows == 1 || self.row == self.row_elements())
    }

    /// The same elements as rows of `items` of `width` elements; none if that takes a copy.
    pub fn split(&self, items: u32, width: u32) -> Option<Self> {
        debug_assert_eq!(items * width, self.row_elements());
        if items == self.items && width == self.width {
            return Some(*self);
        }
        self.has_dense_rows().then_some(Self { items, item: width, width, ..*self })
    }

    /// The same elements as other rows; none if that takes a copy.
    pub fn rearrange(&self, rows: u32, row_elements: u32) -> Option<Self> {
        if rows == self.rows {
            return Some(*self);
        }
        self.is_dense().then(|| Self { offset: self.offset, ..Self::dense(self.root, rows, row_elements) })
    }

    /// Elements `offset..offset + length` of every run of `last` elements.
    pub fn slice(&self, last: u32, offset: u32, length: u32) -> Option<Self> {
        let split = self.split(self.row_elements() / last, last)?;
        Some(Self { offset: split.offset + u64::from(offset), width: length, ..split })
    }

    /// What stands for it in a kernel's structure.
    pub fn view(&self) -> View {
        View { address: self.address(), row: self.row, item: self.item }
    }

    /// What stands for the address of its first element.
    pub fn address(&self) -> u64 {
        Ref::new(self.root, self.offset * ELEMENT).token()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_rows_stay_views() {
        let qkv = Lie::dense(3, 5, 48);
        let k = qkv.slice(48, 32, 8).unwrap();
        assert_eq!((k.offset, k.row, k.row_elements()), (32, 48, 8));
        assert!(k.has_dense_rows() && !k.is_dense());
        let heads = k.split(2, 4).unwrap();
        assert_eq!((heads.items, heads.item, heads.width, heads.row), (2, 4, 4, 48));
    }

    #[test]
    fn halves_of_heads_are_views_of_heads_only() {
        let both = Lie::dense(0, 2, 4 * 16);
        let gate = both.slice(16, 8, 8).unwrap();
        assert_eq!((gate.items, gate.item, gate.width, gate.offset), (4, 16, 8, 8));
        assert_eq!(gate.split(4, 8), Some(gate));
        assert_eq!(gate.split(1, 32), None);
        assert_eq!(gate.split(8, 4), None);
        assert_eq!(gate.slice(8, 2, 3).map(|lie| (lie.offset, lie.width)), Some((10, 3)));
    }

    #[test]
    fn other_rows_want_no_gaps() {
        let dense = Lie::dense(0, 6, 4);
        assert_eq!(dense.rearrange(2, 12).map(|lie| (lie.rows, lie.row)), Some((2, 12)));
        let part = dense.slice(4, 0, 2).unwrap();
        assert_eq!(part.rearrange(2, 6), None);
        assert_eq!(part.rearrange(6, 2), Some(part));
    }
}
