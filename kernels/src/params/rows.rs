//! Rows that go elsewhere, tables of indices, and states of rows.

use super::{Launch, View};

parameters! {
    /// out\[m\] = x\[list\[m\]\]; an index that is no row of x gives zeros.
    pub struct SelectRows {
        /// Rows `[x_rows][width]`; `item` is not used.
        pub x: View,
        /// Rows `[rows][width]`; `item` is not used.
        pub out: View,
        /// Indices i32 `[rows]`.
        pub list: u64,
        /// Address of the live count of the list.
        pub live: u64,
        /// Indices.
        pub rows: u32,
        /// Rows of x.
        pub x_rows: u32,
        /// Elements of a row.
        pub width: u32,
        /// 0.
        pub reserved: u32,
    }

    /// out\[m\] = table\[ids\[m\]\], all i32; 0 for an id out of range.
    pub struct Lookup {
        /// Ids i32 `[rows]`.
        pub ids: u64,
        /// Table i32 `[entries]`.
        pub table: u64,
        /// Result i32 `[rows]`.
        pub out: u64,
        /// Address of the live count.
        pub live: u64,
        /// Ids.
        pub rows: u32,
        /// Entries of the table.
        pub entries: u32,
    }

    /// state\[cells\[r\]\] = x\[r\]; of two rows with one cell the later stays. A cell outside of the state drops its row.
    pub struct RowsStore {
        /// Rows `[rows][width]`; `item` is not used.
        pub x: View,
        /// State f32 `[entries][width]`.
        pub state: u64,
        /// Cells i32 `[rows]`.
        pub cells: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Entries of the state.
        pub entries: u32,
        /// Elements of a row.
        pub width: u32,
        /// 0.
        pub reserved: u32,
    }

    /// out\[m\] = state\[cells\[m\]\]; zeros for a cell outside of the state.
    pub struct RowsLoad {
        /// Rows `[rows][width]`; `item` is not used.
        pub out: View,
        /// State f32 `[entries][width]`.
        pub state: u64,
        /// Cells i32 `[rows]`.
        pub cells: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Entries of the state.
        pub entries: u32,
        /// Elements of a row.
        pub width: u32,
        /// 0.
        pub reserved: u32,
    }

    /// table\[row\]\[column\] = value for each update (row, column, value), as if in the order of the list. Updates outside
    /// of the table do nothing.
    pub struct TableUpdate {
        /// Table i32 `[rows][columns]`.
        pub table: u64,
        /// Updates i32 `[count][3]`.
        pub updates: u64,
        /// Address of the live count of updates.
        pub live: u64,
        /// Updates.
        pub count: u32,
        /// Rows of the table.
        pub rows: u32,
        /// Columns of the table.
        pub columns: u32,
        /// 0.
        pub reserved: u32,
    }
}

fn over_rows(entry: &'static str, rows: u32, width: u32) -> Launch {
    Launch::new(entry, [width.div_ceil(1024).max(1), rows.max(1), 1], 256)
}

launches! {
    SelectRows(p) => over_rows("select_rows", p.rows, p.width);
    Lookup(p) => Launch::new("lookup", [p.rows.div_ceil(256).max(1), 1, 1], 256);
    RowsStore(p) => over_rows("rows_store", p.rows, p.width);
    RowsLoad(p) => over_rows("rows_load", p.rows, p.width);
    TableUpdate(_p) => Launch::new("table_update", [1, 1, 1], 256);
}
