//! Copies of rows.

use super::SharedSlice;
use core::ops::Range;

/// `out[i] = x[rows[i]]` for `i` in `range`; `x[n][width]`, `out[rows.len()][width]`. A row index
/// outside `x` gives a row of zeros. Returns how many of these there were.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn select_rows(
    x: &[f32],
    width: usize,
    rows: &[i32],
    out: SharedSlice<'_, f32>,
    range: Range<usize>,
) -> usize {
    let mut outside = 0;
    for index in range {
        // SAFETY: the row belongs to the caller's work range.
        let out = unsafe { out.part(index * width..(index + 1) * width) };
        let source = usize::try_from(rows[index]).ok().filter(|&row| row < x.len() / width.max(1));
        match source {
            Some(row) => out.copy_from_slice(&x[row * width..(row + 1) * width]),
            None => {
                out.fill(0.0);
                outside += 1;
            }
        }
    }
    outside
}

/// `state[cells[i]] = x[i]` in the order of the rows, over some columns; `x[cells.len()][width]`,
/// `state[n][width]`. A cell outside of `state` drops its row.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn store_rows(
    x: &[f32],
    width: usize,
    cells: &[i32],
    state: SharedSlice<'_, f32>,
    columns: Range<usize>,
) {
    assert!(columns.end <= width);
    for (row, &cell) in x.chunks_exact(width).zip(cells) {
        let cell = usize::try_from(cell).ok().filter(|&cell| cell < state.len() / width);
        let Some(start) = cell.map(|cell| cell * width) else { continue };
        // SAFETY: these columns belong to the caller's work range.
        let entry = unsafe { state.part(start + columns.start..start + columns.end) };
        entry.copy_from_slice(&row[columns.clone()]);
    }
}

/// Copies a column span of each row in `rows`: `out[row][to..to + count] = x[row][from..from +
/// count]`. Rows of `x` have `width` elements, rows of `out` have `out_width`. Slices and
/// concatenations over the last axis are made of it.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn copy_columns(
    x: &[f32],
    (width, from): (usize, usize),
    out: SharedSlice<'_, f32>,
    (out_width, to): (usize, usize),
    count: usize,
    rows: Range<usize>,
) {
    assert!(from + count <= width && to + count <= out_width);
    for row in rows {
        let x = &x[row * width + from..][..count];
        let start = row * out_width + to;
        // SAFETY: these columns of the row belong to the caller's work range.
        unsafe { out.part(start..start + count) }.copy_from_slice(x);
    }
}

/// `out = x` over a range of elements.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn copy(x: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>) {
    // SAFETY: the range is the caller's.
    unsafe { out.part(range.clone()) }.copy_from_slice(&x[range]);
}
