//! Packing of F32, F16 and BF16: for each `k`, the values of the 16 rows.

use super::PANEL_ROWS;

/// Writes a row of values of `size` bytes into a lane of a panel.
pub(super) fn pack_row(row: &[u8], size: usize, lane: usize, panel: &mut [u8]) {
    for (value, column) in row.chunks_exact(size).zip(panel.chunks_exact_mut(size * PANEL_ROWS)) {
        column[lane * size..(lane + 1) * size].copy_from_slice(value);
    }
}

/// Reads a row of values of `size` bytes out of a lane of a panel.
pub(super) fn unpack_row(panel: &[u8], size: usize, lane: usize, row: &mut [u8]) {
    for (value, column) in row.chunks_exact_mut(size).zip(panel.chunks_exact(size * PANEL_ROWS)) {
        value.copy_from_slice(&column[lane * size..(lane + 1) * size]);
    }
}
