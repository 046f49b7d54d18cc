//! Tables for people: columns with two spaces between, nothing drawn.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};

use crate::failure::Failure;
use crate::printer::Printer;

/// A table under construction.
pub struct Columns {
    table: Table,
    right: &'static [usize],
}

impl Columns {
    /// A table with a header, or without one if it is empty; the columns numbered in `right` hold figures.
    pub fn new(header: &[&str], right: &'static [usize]) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING);
        let mut columns = Self { table, right };
        if !header.is_empty() {
            let cells = columns.cells(header.iter().map(|text| (*text).to_owned()));
            columns.table.set_header(cells);
        }
        columns
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = self.cells(cells);
        self.table.add_row(cells);
    }

    fn cells(&self, texts: impl IntoIterator<Item = String>) -> Vec<Cell> {
        let alignment = |column| {
            if self.right.contains(&column) { CellAlignment::Right } else { CellAlignment::Left }
        };
        texts
            .into_iter()
            .enumerate()
            .map(|(column, text)| Cell::new(text).set_alignment(alignment(column)))
            .collect()
    }

    /// Writes the table as data, each line after `indent`.
    pub fn print(&self, printer: &mut Printer, indent: &str) -> Result<(), Failure> {
        for line in self.table.lines() {
            // Cells have a space on both sides.
            let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
            printer.line(format_args!("{indent}{line}"))?;
        }
        Ok(())
    }
}
