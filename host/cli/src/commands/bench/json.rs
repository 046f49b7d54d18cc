//! A report as JSON.

use serde_json::{Value, json};

use super::model::{Report, Run};
use super::statistics::{Interval, Proportion, Spread};
use super::summary::{Summary, summaries};
use crate::text;

/// Machine, runs, what they say together, and the cost of verifying. A number that does not exist is null.
pub fn json(report: &Report) -> Value {
    let machine = &report.machine;
    json!({
        "machine": {
            "os": machine.os,
            "cpu": machine.cpu,
            "threads": machine.threads,
            "model": machine.model,
            "version": machine.version,
            "command": machine.command,
        },
        "arms": report.arms,
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
        "summaries": summaries(report).iter().map(summary).collect::<Vec<_>>(),
        "verify_cost": report.verify_cost.iter().map(|cost| json!({
            "rows": cost.rows,
            "median_seconds": cost.median_seconds,
            "ratio": cost.ratio,
            "in_rounds_seconds": cost.in_rounds_seconds,
        })).collect::<Vec<_>>(),
    })
}

fn run(run: &Run) -> Value {
    json!({
        "arm": run.arm,
        "kind": run.kind,
        "prompt": run.prompt,
        "repetition": run.repetition,
        "temperature": text::decimal(run.temperature),
        "generated_tokens": run.generated_tokens,
        "prompt_tokens": run.prompt_tokens,
        "prompt_seconds": run.prompt_seconds,
        "generation_seconds": run.generation_seconds,
        "tokens_per_second": run.rate(),
        "rounds": run.rounds,
        "drafted": run.drafted,
        "verified": run.verified,
        "accepted": run.accepted,
        "positions": run.positions.iter().map(|position| json!({
            "drafted": position.drafted,
            "accepted": position.accepted,
        })).collect::<Vec<_>>(),
        "split_seconds": {
            "draft": run.split.draft,
            "verify": run.split.verify,
            "commit": run.split.commit,
            "host": run.split.host,
        },
        "identical": run.identical,
        "strategy_bytes": run.strategy_bytes,
        "uploads": run.uploads,
        "waits": run.waits,
        "launches": run.launches,
    })
}

fn summary(summary: &Summary) -> Value {
    json!({
        "arm": summary.arm,
        "kind": summary.kind,
        "temperature": text::decimal(summary.temperature),
        "runs": summary.runs,
        "tokens_per_second": summary.rate.map(spread),
        "speed_up": summary.speed_up.map(|speed_up| json!({
            "median": speed_up.median,
            "interval": speed_up.interval.map(interval),
            "pairs": speed_up.samples,
        })),
        "prompt_seconds": summary.prompt_seconds.map(spread),
        "prompt_tokens_per_second": summary.prompt_rate.map(spread),
        "rounds": summary.rounds,
        "drafted": summary.drafted,
        "acceptance": summary.acceptance.map(proportion),
        "tokens_per_round": summary.tokens_per_round,
        "coverage": summary.coverage.map(proportion),
        "positions": summary.positions.iter().map(|it| it.map(proportion)).collect::<Vec<_>>(),
        "split_seconds": {
            "draft": summary.split.draft,
            "verify": summary.split.verify,
            "commit": summary.split.commit,
            "host": summary.split.host,
        },
        "identical": summary.identical,
        "compared": summary.compared,
        "strategy_bytes": summary.strategy_bytes,
        "uploads": summary.uploads,
        "waits": summary.waits,
        "launches": summary.launches,
    })
}

fn spread(spread: Spread) -> Value {
    json!({
        "median": spread.median,
        "least": spread.least,
        "most": spread.most,
        "deviation": spread.deviation,
    })
}

fn proportion(share: Proportion) -> Value {
    json!({ "hits": share.hits, "cases": share.cases, "rate": share.rate, "interval": interval(share.interval) })
}

fn interval(interval: Interval) -> Value {
    json!([interval.low, interval.high])
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn runs_and_summaries_are_there() {
        let report = example::report();
        let value = json(&report);
        assert_eq!(value["runs"].as_array().unwrap().len(), report.runs.len());
        // Three arms on two kinds and on all.
        assert_eq!(value["summaries"].as_array().unwrap().len(), 9);
        assert_eq!(value["summaries"][0]["speed_up"], Value::Null);
        assert_eq!(value["summaries"][1]["speed_up"]["pairs"], 6);
        assert_eq!(value["runs"][1]["positions"][0], json!({ "drafted": 120, "accepted": 110 }));
        assert_eq!(value["verify_cost"][3]["rows"], 8);
    }

    #[test]
    fn what_is_no_number_is_null() {
        let mut report = example::report();
        report.verify_cost[0].ratio = f64::NAN;
        assert_eq!(json(&report)["verify_cost"][0]["ratio"], Value::Null);
    }
}
