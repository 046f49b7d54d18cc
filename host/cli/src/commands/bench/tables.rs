//! The tables of a report, as text for people.

use super::model::{Report, SplitSeconds};
use super::statistics::{Interval, MedianEstimate, Proportion, Spread};
use super::summary::{Summary, summaries};
use crate::text;

/// What stands where there is no number.
const NOTHING: &str = "-";

/// A table with a title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it is about, in a few words.
    pub title: &'static str,
    /// How to read it.
    pub note: &'static str,
    /// Names of the columns.
    pub columns: Vec<Column>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Whether it holds figures, which stand at the right.
    pub is_right: bool,
}

/// All tables of a report that have rows.
pub fn tables(report: &Report) -> Vec<Table> {
    let summaries = summaries(report);
    let shows_temperature = summaries.iter().any(|it| it.temperature != summaries[0].temperature);
    let tables = [
        speed(&summaries, shows_temperature),
        acceptance(&summaries, shows_temperature),
        positions(&summaries, shows_temperature),
        costs(&summaries, shows_temperature),
        verify_cost(report),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The machine, as names and values.
pub fn machine(report: &Report) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    vec![
        ("model", machine.model.clone()),
        ("processor", machine.cpu.clone()),
        ("threads", machine.threads.to_string()),
        ("system", machine.os.clone()),
        ("version", machine.version.clone()),
        ("command", machine.command.clone()),
    ]
}

fn speed(summaries: &[Summary], shows_temperature: bool) -> Table {
    let mut table = Table {
        title: "Speed",
        note: "Tokens per second of generation: median, smallest to largest, and median absolute deviation. Speed-up is \
               the median of the ratios to the first arm for the same prompt and repetition, with its 95 % interval \
               (from order statistics; it takes 6 pairs). Identical counts runs with the tokens of the first arm.",
        columns: key_columns(shows_temperature),
        ..Table::default()
    };
    table.add_columns(&[
        "runs",
        "tokens/s",
        "range",
        "deviation",
        "speed-up",
        "95 %",
        "prompt ms",
        "prompt tokens/s",
        "identical",
    ]);
    for summary in summaries {
        let rate = |of: fn(&Spread) -> f64| or_nothing(summary.rate.as_ref().map(|rate| figure(of(rate))));
        let mut cells = key_cells(summary, shows_temperature);
        cells.extend([
            summary.runs.to_string(),
            rate(|rate| rate.median),
            or_nothing(summary.rate.map(|it| format!("{} to {}", figure(it.least), figure(it.most)))),
            rate(|rate| rate.deviation),
            or_nothing(summary.speed_up.map(|it| format!("{:.2}", it.median))),
            or_nothing(
                summary.speed_up.and_then(|it: MedianEstimate| it.interval).map(|it| interval(it, 1.0, 2)),
            ),
            or_nothing(summary.prompt_seconds.map(|it| figure(it.median * 1e3))),
            or_nothing(summary.prompt_rate.map(|it| figure(it.median))),
            match summary.compared {
                0 => NOTHING.to_owned(),
                compared => format!("{} of {compared}", summary.identical),
            },
        ]);
        table.rows.push(cells);
    }
    table
}

fn acceptance(summaries: &[Summary], shows_temperature: bool) -> Table {
    let mut table = Table {
        title: "Acceptance",
        note: "Accepted guesses of those that were verified, with Wilson's 95 % interval. Tokens per round count the \
               target model's own token too. Coverage is the share of rounds that had a guess.",
        columns: key_columns(shows_temperature),
        ..Table::default()
    };
    table.add_columns(&[
        "rounds",
        "drafted",
        "verified",
        "accepted",
        "acceptance",
        "95 %",
        "tokens/round",
        "coverage",
    ]);
    for summary in summaries.iter().filter(|summary| summary.rounds > 0) {
        let verified = summary.acceptance;
        let mut cells = key_cells(summary, shows_temperature);
        cells.extend([
            text::count(summary.rounds),
            text::count(summary.drafted),
            text::count(verified.map_or(0, |it| it.cases)),
            text::count(verified.map_or(0, |it| it.hits)),
            or_nothing(verified.map(percent)),
            or_nothing(verified.map(|it| percent_interval(it.interval))),
            or_nothing(summary.tokens_per_round.map(|it| format!("{it:.2}"))),
            or_nothing(summary.coverage.map(percent)),
        ]);
        table.rows.push(cells);
    }
    table
}

fn positions(summaries: &[Summary], shows_temperature: bool) -> Table {
    let deepest = summaries.iter().map(|summary| summary.positions.len()).max().unwrap_or(0);
    let mut table = Table {
        title: "Acceptance by position",
        note: "For each place of a draft: rounds that took the guess there, of rounds that guessed so far.",
        columns: key_columns(shows_temperature),
        ..Table::default()
    };
    let places: Vec<String> = (1..=deepest).map(|place| place.to_string()).collect();
    table.add_columns(&places);
    for summary in summaries.iter().filter(|summary| !summary.positions.is_empty()) {
        let at = |place: usize| or_nothing(summary.positions.get(place).copied().flatten().map(percent));
        let mut cells = key_cells(summary, shows_temperature);
        cells.extend((0..deepest).map(at));
        table.rows.push(cells);
    }
    table
}

fn costs(summaries: &[Summary], shows_temperature: bool) -> Table {
    let mut table = Table {
        title: "Where the time goes",
        note: "Milliseconds a round: guessing, the target model's run, keeping what was taken, everything else. Launches, \
               waits and uploads are those of a round, memory is what the strategy takes on the device.",
        columns: key_columns(shows_temperature),
        ..Table::default()
    };
    table.add_columns(&["draft", "verify", "commit", "host", "launches", "waits", "uploads", "memory"]);
    for summary in summaries.iter().filter(|summary| summary.rounds > 0) {
        let rounds = summary.rounds as f64;
        let milliseconds = |of: fn(&SplitSeconds) -> f64| format!("{:.3}", of(&summary.split) * 1e3 / rounds);
        let count = |count: u64| format!("{:.1}", count as f64 / rounds);
        let mut cells = key_cells(summary, shows_temperature);
        cells.extend([
            milliseconds(|split| split.draft),
            milliseconds(|split| split.verify),
            milliseconds(|split| split.commit),
            milliseconds(|split| split.host),
            count(summary.launches),
            count(summary.waits),
            count(summary.uploads),
            text::bytes(summary.strategy_bytes),
        ]);
        table.rows.push(cells);
    }
    table
}

fn verify_cost(report: &Report) -> Table {
    let mut table = Table {
        title: "Cost of verifying",
        note: "Time of one run of the target model by its number of rows, and as a multiple of that for one row; beside it, \
               the time of such runs in rounds, where there were any. Guessing pays while tokens per round grow faster \
               than this.",
        ..Table::default()
    };
    table.add_columns(&["rows", "ms", "ratio", "ms in rounds"]);
    table.rows = report
        .verify_cost
        .iter()
        .map(|cost| {
            let ratio =
                if cost.ratio.is_finite() { format!("{:.2}", cost.ratio) } else { NOTHING.to_owned() };
            let milliseconds = |seconds: f64| format!("{:.3}", seconds * 1e3);
            vec![
                cost.rows.to_string(),
                milliseconds(cost.median_seconds),
                ratio,
                or_nothing(cost.in_rounds_seconds.map(milliseconds)),
            ]
        })
        .collect();
    table
}

impl Table {
    fn add_columns(&mut self, names: &[impl AsRef<str>]) {
        let right = |name: &str| Column { name: name.to_owned(), is_right: true };
        self.columns.extend(names.iter().map(|name| right(name.as_ref())));
    }
}

fn key_columns(shows_temperature: bool) -> Vec<Column> {
    let mut columns = vec![
        Column { name: "kind".to_owned(), is_right: false },
        Column { name: "arm".to_owned(), is_right: false },
    ];
    if shows_temperature {
        columns.insert(0, Column { name: "temperature".to_owned(), is_right: true });
    }
    columns
}

fn key_cells(summary: &Summary, shows_temperature: bool) -> Vec<String> {
    let mut cells = vec![text::name(&summary.kind).into_owned(), text::name(&summary.arm).into_owned()];
    if shows_temperature {
        cells.insert(0, summary.temperature.to_string());
    }
    cells
}

/// The cell, or a mark that there is no number.
pub fn or_nothing(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| NOTHING.to_owned())
}

/// A number with three digits or all of its whole part.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A share, as a percentage.
pub fn percent(proportion: Proportion) -> String {
    format!("{:.1} %", proportion.rate * 100.0)
}

fn percent_interval(bounds: Interval) -> String {
    format!("{} %", interval(bounds, 100.0, 1))
}

/// An interval, its ends multiplied by a factor.
pub fn interval(bounds: Interval, factor: f64, decimals: usize) -> String {
    format!("{:.decimals$} to {:.decimals$}", bounds.low * factor, bounds.high * factor)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        let mut report = example::report();
        report.runs[0].temperature = 0.7;
        let tables = tables(&report);
        assert_eq!(tables.len(), 5);
        for table in &tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
        assert_eq!(tables[0].columns[0].name, "temperature");
    }

    #[test]
    fn an_empty_report_has_no_tables() {
        assert!(tables(&Report::default()).is_empty());
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.0, 1.234, 12.34, 99.96, 1234.5].map(figure), ["0.00", "1.23", "12.3", "100", "1234"]);
    }
}
