//! Packing of F32, F16 and BF16: for each `k`, the values of the 16 rows.

use super::PANEL_ROWS;

/// Writes a row of values of `size` bytes into a lane of a panel.
pub(super) fn pack_row(row: &[u8], size: usize, lane: usize, panel: &mut [u8]) {
    for (value, column) in row.chunks_exact(size).zip(panel.chunks_exact_mut(size * PANEL_ROWS)) {
        column[lane * size..(lane + 1) * size].copy_from_slice(value);
    }
}

/// Reads value `index` of a lane of a panel.
pub(super) fn unpack_element(panel: &[u8], size: usize, lane: usize, index: usize, value: &mut [u8]) {
    let start = (index * PANEL_ROWS + lane) * size;
    value.copy_from_slice(&panel[start..start + size]);
}
