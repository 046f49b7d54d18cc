//! Columns of text.

/// Between columns.
const GAP: usize = 2;

/// Writes rows whose columns are as wide as their widest cell; the last one ends where it ends.
pub(super) fn write(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + GAP));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
