//! A report as Markdown, with columns that also line up on a terminal.

use super::model::Report;
use super::tables::{Table, machine, tables};
use crate::text;

/// Writes the report.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    for (name, value) in machine(report) {
        out.push_str(&format!("- {name}: {}\n", escaped(&text::name(&value))));
    }
    for table in tables(report) {
        out.push_str(&format!("\n## {}\n\n{}\n\n", table.title, table.note));
        write_table(&table, &mut out);
    }
    out
}

fn write_table(table: &Table, out: &mut String) {
    let header: Vec<String> = table.columns.iter().map(|column| escaped(&column.name)).collect();
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect()).collect();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).chain([&header[column]]);
            // Three is the least for the dashes below a header.
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        })
        .collect();
    let mut line = |cells: &[String]| {
        for ((cell, column), &width) in cells.iter().zip(&table.columns).zip(&widths) {
            let padded =
                if column.is_right { format!("| {cell:>width$} ") } else { format!("| {cell:<width$} ") };
            out.push_str(&padded);
        }
        out.push_str("|\n");
    };
    let dashes = |right: bool, width: usize| {
        if right { format!("{}:", "-".repeat(width - 1)) } else { "-".repeat(width) }
    };
    let rule: Vec<String> =
        table.columns.iter().zip(&widths).map(|(column, &width)| dashes(column.is_right, width)).collect();
    line(&header);
    line(&rule);
    rows.iter().for_each(|row| line(row));
}

/// Names come from files and may have characters that mean something here.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '|' | '<' | '*' | '`' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_example() {
        insta::assert_snapshot!(markdown(&example::report()));
    }

    #[test]
    fn names_cannot_break_the_table() {
        let mut report = example::report();
        report.arms[1] = "a|b\n<i>".to_owned();
        report.runs.iter_mut().filter(|run| run.arm == "mtp-chain").for_each(|run| {
            run.arm = "a|b\n<i>".to_owned();
        });
        let text = markdown(&report);
        assert!(text.contains(r"a\|b\\n\<i>"), "{text}");
    }
}
