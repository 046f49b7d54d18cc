//! The main figures of a report, for a terminal.

use super::model::Report;
use super::statistics::Spread;
use super::summary::{ALL_KINDS, Summary, summaries};
use super::tables::{figure, interval, or_nothing, percent};
use crate::app::App;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// Shows a table with a row for each arm and kind, and a sentence for each arm that is compared.
pub fn print(report: &Report, app: &mut App) -> Result<(), Failure> {
    let summaries = summaries(report);
    let header =
        ["kind", "arm", "tokens/s", "speed-up", "95 %", "accepted", "tokens/round", "prompt tokens/s"];
    let mut columns = Columns::new(&header, &[2, 3, 4, 5, 6, 7]);
    for summary in &summaries {
        let median = |spread: Option<Spread>| or_nothing(spread.map(|it| figure(it.median)));
        columns.row([
            text::name(&summary.kind).into_owned(),
            text::name(&summary.arm).into_owned(),
            median(summary.rate),
            or_nothing(summary.speed_up.map(|it| format!("{:.2}", it.median))),
            or_nothing(summary.speed_up.and_then(|it| it.interval).map(|it| interval(it, 1.0, 2))),
            or_nothing(summary.acceptance.map(percent)),
            or_nothing(summary.tokens_per_round.map(|it| format!("{it:.2}"))),
            median(summary.prompt_rate),
        ]);
    }
    columns.print(&mut app.printer, "")?;
    let kinds = summaries.iter().any(|it| it.kind == ALL_KINDS);
    for summary in summaries.iter().filter(|it| !kinds || it.kind == ALL_KINDS) {
        if let Some(sentence) = sentence(report, summary) {
            app.printer.line(text::name(&sentence))?;
        }
    }
    Ok(())
}

fn sentence(report: &Report, summary: &Summary) -> Option<String> {
    let first = report.arms.first()?;
    let speed_up = summary.speed_up?.median;
    let compared = if summary.compared == 0 {
        "texts were not compared".to_owned()
    } else if summary.identical == summary.compared {
        format!("with the same text in all {}", text::counted(summary.compared, "run"))
    } else {
        let different = summary.compared - summary.identical;
        format!("with ANOTHER text in {different} of {}", text::counted(summary.compared, "run"))
    };
    Some(format!("{} is {speed_up:.2} times as fast as {first}, {compared}", summary.arm))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_sentence_says_how_much_faster_an_arm_is() {
        let report = example::report();
        let summaries = summaries(&report);
        let all: Vec<String> = summaries[6..].iter().filter_map(|it| sentence(&report, it)).collect();
        assert_eq!(
            all,
            [
                "mtp-chain is 1.35 times as fast as none, with the same text in all 12 runs",
                "ngram-adaptive+mtp-chain is 1.70 times as fast as none, with ANOTHER text in 1 of 12 runs",
            ]
        );
    }
}
