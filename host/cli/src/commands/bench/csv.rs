//! The runs of a report as CSV.

use std::borrow::Cow;

use super::model::{Position, Report, Run};

const HEADER: &str = "arm,kind,prompt,repetition,temperature,generated_tokens,prompt_tokens,prompt_seconds,generation_seconds,\
                      tokens_per_second,rounds,drafted,verified,accepted,drafted_at,accepted_at,draft_seconds,\
                      verify_seconds,commit_seconds,host_seconds,identical,strategy_bytes,uploads,waits,launches";

/// One line for each run, after a header. Lists have semicolons between, what was not measured is empty.
pub fn csv(report: &Report) -> String {
    let lines = report.runs.iter().map(line);
    [HEADER.to_owned()].into_iter().chain(lines).map(|line| line + "\r\n").collect()
}

fn line(run: &Run) -> String {
    let list = |of: fn(&Position) -> u64| {
        run.positions.iter().map(|position| of(position).to_string()).collect::<Vec<_>>().join(";")
    };
    let cells = [
        run.arm.clone(),
        run.kind.clone(),
        run.prompt.clone(),
        run.repetition.to_string(),
        run.temperature.to_string(),
        run.generated_tokens.to_string(),
        run.prompt_tokens.to_string(),
        run.prompt_seconds.to_string(),
        run.generation_seconds.to_string(),
        run.rate().map_or_else(String::new, |rate| rate.to_string()),
        run.rounds.to_string(),
        run.drafted.to_string(),
        run.verified.to_string(),
        run.accepted.to_string(),
        list(|position| position.drafted),
        list(|position| position.accepted),
        run.split.draft.to_string(),
        run.split.verify.to_string(),
        run.split.commit.to_string(),
        run.split.host.to_string(),
        run.identical.map_or_else(String::new, |identical| identical.to_string()),
        run.strategy_bytes.to_string(),
        run.uploads.to_string(),
        run.waits.to_string(),
        run.launches.to_string(),
    ];
    cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",")
}

/// RFC 4180: a field with a comma, a quote or a line break stands in quotes.
fn quoted(cell: &str) -> Cow<'_, str> {
    if cell.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::super::model::SplitSeconds;
    use super::*;

    #[test]
    fn a_line_for_each_run() {
        let mut report = example::report();
        report.runs[1].generation_seconds = 0.25;
        report.runs[1].split = SplitSeconds { draft: 0.0625, verify: 0.125, commit: 0.03125, host: 0.03125 };
        let text = csv(&report);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), report.runs.len() + 2);
        assert!(lines[..lines.len() - 1].iter().all(|line| line.split(',').count() == 25), "{text}");
        assert_eq!(
            lines[2],
            "mtp-chain,code,ring_buffer,0,0,241,36,0.03,0.25,960,120,240,240,210,120;120,110;100,0.0625,0.125,0.03125,0.03125,\
             true,3145728,240,120,360"
        );
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("a b;c"), "a b;c");
    }
}
