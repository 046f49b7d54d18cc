//! A report as one page of HTML that needs nothing else: no scripts, no fonts, no other files.

use super::model::Report;
use super::plots::{self, escaped};
use super::summary::{Summary, summaries};
use super::tables::{Table, machine, tables};

/// Colours of arms: told apart also by those who see few colours, on light and on dark ground.
const LIGHT: [&str; plots::COLOURS] =
    ["#5b6470", "#0072b2", "#c45500", "#00805a", "#a6457f", "#8a6d00", "#2a8ab8", "#7a5195"];
const DARK: [&str; plots::COLOURS] =
    ["#9aa4b0", "#56a9e8", "#f09a50", "#3cc497", "#e08cc0", "#dcc04a", "#7fd0f5", "#b592d6"];

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fff; --text: #1c2126; --soft: #5b6470; --line: #d8dde3; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181c; --text: #e3e7eb; --soft: #9aa4b0; --line: #333b44; --panel: #1b2127; }
}
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { color: var(--soft); max-width: 48rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .right { text-align: right; }
figure { background: var(--panel); border-radius: .4rem; margin: 1rem 0; padding: 1rem; max-width: 46rem; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; margin: .4rem 0 0; padding: 0; font-size: .85rem; }
.key svg { display: inline-block; height: .8rem; margin-right: .4rem; vertical-align: -.05rem; width: .8rem; }
svg { display: block; height: auto; width: 100%; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); } .one { stroke: var(--text); stroke-dasharray: 5 4; } .whisker { fill: none; stroke: var(--text); stroke-width: 1.5; }
polyline { fill: none; stroke-width: 2; }
";

/// Writes the page.
pub fn html(report: &Report) -> String {
    let title = format!("Benchmark of {}", report.machine.model);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>\n{STYLE}{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<dl>\n",
        escaped(&title),
        colours()
    );
    for (name, value) in machine(report) {
        page.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(&value)));
    }
    page.push_str("</dl>\n");
    add_plots(report, &mut page);
    tables(report).iter().for_each(|table| add_table(table, &mut page));
    page.push_str("</body>\n</html>\n");
    page
}

fn colours() -> String {
    let classes = |colours: &[&str]| -> String {
        let class = |(index, colour): (usize, &&str)| {
            format!(".s{index} {{ fill: {colour}; }} .l{index} {{ stroke: {colour}; }}\n")
        };
        colours.iter().enumerate().map(class).collect()
    };
    format!("{}@media (prefers-color-scheme: dark) {{\n{}}}\n", classes(&LIGHT), classes(&DARK))
}

/// The plots of each temperature, and that of the cost of verifying, which has none.
fn add_plots(report: &Report, page: &mut String) {
    let summaries = summaries(report);
    let mut temperatures: Vec<f32> = summaries.iter().map(|it| it.temperature).collect();
    temperatures.dedup();
    for temperature in &temperatures {
        let shown: Vec<&Summary> = summaries.iter().filter(|it| it.temperature == *temperature).collect();
        let of = match temperatures.len() {
            1 => String::new(),
            _ => format!(", temperature {temperature}"),
        };
        if let Some(plot) = plots::speed_up(&shown, &report.arms) {
            let caption = format!("Speed-up by kind of prompt, with 95 % intervals{of}");
            let drawn = |arm: &str| shown.iter().any(|it| it.arm == arm && it.speed_up.is_some());
            add_figure(&caption, &plot, &key(report, drawn), page);
        }
        if let Some(plot) = plots::positions(&shown, &report.arms) {
            let caption = format!("Acceptance by position{of}");
            let drawn = |arm: &str| shown.iter().any(|it| it.arm == arm && !it.positions.is_empty());
            add_figure(&caption, &plot, &key(report, drawn), page);
        }
    }
    if let Some(plot) = plots::verify_cost(&report.verify_cost) {
        add_figure("Cost of verifying by number of rows", &plot, &[], page);
    }
}

/// The arms that a plot shows, with their numbers.
fn key(report: &Report, is_drawn: impl Fn(&str) -> bool) -> Vec<(usize, &str)> {
    report.arms.iter().map(String::as_str).enumerate().filter(|(_, arm)| is_drawn(arm)).collect()
}

/// A plot with its caption and a key of its colours.
fn add_figure(caption: &str, plot: &str, key: &[(usize, &str)], page: &mut String) {
    page.push_str(&format!("<figure>\n<figcaption>{}</figcaption>\n{plot}", escaped(caption)));
    if !key.is_empty() {
        page.push_str("<ul class=\"key\">\n");
        for (index, arm) in key {
            let colour = index % plots::COLOURS;
            page.push_str(&format!(
                "<li><svg viewBox=\"0 0 8 8\" aria-hidden=\"true\"><rect class=\"s{colour}\" width=\"8\" height=\"8\"/></svg>{}</li>\n",
                escaped(arm)
            ));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</figure>\n");
}

fn add_table(table: &Table, page: &mut String) {
    page.push_str(&format!(
        "<h2>{}</h2>\n<p>{}</p>\n<div class=\"table\">\n<table>\n<thead>\n<tr>",
        escaped(table.title),
        escaped(table.note)
    ));
    let class = |right: bool| if right { " class=\"right\"" } else { "" };
    for column in &table.columns {
        page.push_str(&format!("<th{}>{}</th>", class(column.is_right), escaped(&column.name)));
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            page.push_str(&format!("<td{}>{}</td>", class(column.is_right), escaped(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_example() {
        insta::assert_snapshot!(html(&example::report()));
    }

    #[test]
    fn the_page_is_well_formed() {
        let mut report = example::report();
        report.runs[0].temperature = 0.7;
        report.machine.command = "<script>\"'&".to_owned();
        for report in [report, Report::default()] {
            let page = html(&report);
            assert!(!page.contains("<script"), "{page}");
            assert_well_formed(&page);
        }
    }

    /// Every element is closed in its turn, and there is no stray `<` or `&`.
    fn assert_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut parts = page.split('<');
        assert_eq!(parts.next(), Some(""));
        for part in parts {
            let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("<{part} has no end"));
            let name = tag.split([' ', '\n']).next().unwrap_or_default();
            match name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "</{name}> closes another element"),
                None if matches!(name, "!DOCTYPE" | "meta") || tag.ends_with('/') => {}
                None => open.push(name),
            }
            for entity in text.split('&').skip(1) {
                assert!(entity.split_once(';').is_some_and(|(name, _)| name.len() <= 5), "&{entity}");
            }
        }
        assert!(open.is_empty(), "{open:?} are not closed");
    }
}
