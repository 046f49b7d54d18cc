//! What `run` and `chat` say about guessing ahead.

use std::time::Duration;

use paceline_engine::{DrafterReport, Engine, MemoryRow, RunCounts, SpeculationReport, TimeSplit};
use serde_json::{Value, json};

use crate::text;

/// What happened in a generation, if there were drafters.
pub struct Speculation {
    report: SpeculationReport,
    /// Runs that were neither verifications nor guesses: the prompt, and telling drafters what was kept.
    other_runs: RunCounts,
    /// Memory that is there for strategies.
    memory: Vec<MemoryRow>,
}

impl Speculation {
    /// Of the rounds since the engine's report was begun; `before` are its counts at that time. `None` without drafters.
    pub fn of(engine: &Engine, before: RunCounts) -> Option<Self> {
        let report = engine.speculation_report();
        if report.drafters.is_empty() {
            return None;
        }
        let all = engine.run_counts().since(before);
        let other_runs = all.since(report.target_runs).since(report.strategy_runs);
        let memory = engine.memory().rows().iter().filter(|row| row.what.contains("strategies"));
        Some(Self { other_runs, memory: memory.cloned().collect(), report })
    }

    /// The line of statistics.
    pub fn line(&self) -> String {
        let report = &self.report;
        let names: Vec<&str> = report.drafters.iter().map(|it| it.plugin.as_str()).collect();
        let mut line = format!("{}: ", names.join("+"));
        match report.acceptance() {
            None => line.push_str("guessed nothing"),
            Some(acceptance) => line.push_str(&format!(
                "{:.2} tokens a round; {} of {} accepted, {}; guesses in {} of {}",
                report.mean_length(),
                text::count(report.accepted()),
                text::counted(report.verified(), "guess"),
                percent(acceptance),
                text::count(report.rounds_with_draft),
                text::counted(report.rounds, "round"),
            )),
        }
        let disabled = report.drafters.iter().filter(|it| it.disabled.is_some()).map(|it| it.plugin.as_str());
        disabled.for_each(|plugin| line.push_str(&format!("; `{plugin}` failed and was not asked any more")));
        line
    }

    /// What only someone who looks closely wants to know, line by line.
    pub fn details(&self) -> Vec<String> {
        let report = &self.report;
        let mut lines: Vec<String> = report.drafters.iter().map(drafter_line).collect();
        lines.push(format!(
            "rounds {}: {} with a guess, {} in which the controller did not ask",
            text::count(report.rounds),
            text::count(report.rounds_with_draft),
            text::count(report.rounds_off),
        ));
        let TimeSplit { draft, verify, commit, host } = report.time;
        let [draft, verify, commit, host] = [draft, verify, commit, host].map(milliseconds);
        lines.push(format!(
            "time of rounds: guessing {draft:.1} ms, verifying {verify:.1} ms, keeping {commit:.1} ms, host {host:.1} ms"
        ));
        lines.push(counts_line("verifying", &report.target_runs));
        lines.push(counts_line("guessing", &report.strategy_runs));
        lines.push(counts_line("prompt and keeping", &self.other_runs));
        let rows: Vec<String> =
            self.memory.iter().map(|row| format!("{} {}", row.what, text::bytes(row.bytes))).collect();
        if !rows.is_empty() {
            lines.push(format!("memory: {}", rows.join(", ")));
        }
        lines
    }

    /// Everything, for programs.
    pub fn as_json(&self) -> Value {
        let report = &self.report;
        let time = &report.time;
        json!({
            "rounds": report.rounds,
            "rounds_with_draft": report.rounds_with_draft,
            "rounds_off": report.rounds_off,
            "emitted": report.emitted,
            "drafted": report.drafted(),
            "verified": report.verified(),
            "accepted": report.accepted(),
            "acceptance": report.acceptance(),
            "tokens_per_round": report.mean_length(),
            "coverage": report.coverage(),
            "time_ms": {
                "draft": milliseconds(time.draft),
                "verify": milliseconds(time.verify),
                "commit": milliseconds(time.commit),
                "host": milliseconds(time.host),
            },
            "runs": {
                "verify": counts_json(&report.target_runs),
                "draft": counts_json(&report.strategy_runs),
                "prompt_and_commit": counts_json(&self.other_runs),
            },
            "memory_bytes": self.memory.iter().map(|row| row.bytes).sum::<u64>(),
            "drafters": report.drafters.iter().map(drafter_json).collect::<Vec<_>>(),
        })
    }
}

/// Positions of a draft that were verified at least once.
pub fn positions(drafter: &DrafterReport) -> impl Iterator<Item = [u64; 2]> {
    drafter.positions.iter().copied().take_while(|[verified, _]| *verified > 0)
}

fn drafter_line(drafter: &DrafterReport) -> String {
    let mut line = format!(
        "`{}`: {} with {} guessed, {} verified, {} accepted",
        drafter.plugin,
        text::counted(drafter.drafts, "draft"),
        text::counted(drafter.drafted, "token"),
        text::count(drafter.verified),
        text::count(drafter.accepted),
    );
    let places: Vec<String> =
        positions(drafter).map(|[verified, accepted]| percent(accepted as f64 / verified as f64)).collect();
    if !places.is_empty() {
        line.push_str(&format!("; by position {}", places.join(", ")));
    }
    if drafter.quarantined > 0 {
        let dropped = text::counted(drafter.quarantined, "draft");
        line.push_str(&format!("; {dropped} dropped that made no sense"));
    }
    if !drafter.explanation.is_empty() {
        line.push_str(&format!("; {}", text::name(&drafter.explanation)));
    }
    if let Some(reason) = &drafter.disabled {
        line.push_str(&format!("; not asked any more: {}", text::name(reason)));
    }
    line
}

fn drafter_json(drafter: &DrafterReport) -> Value {
    let positions = positions(drafter);
    json!({
        "id": drafter.plugin,
        "drafts": drafter.drafts,
        "drafted": drafter.drafted,
        "verified": drafter.verified,
        "accepted": drafter.accepted,
        "positions": positions
            .map(|[verified, accepted]| json!({ "verified": verified, "accepted": accepted }))
            .collect::<Vec<_>>(),
        "quarantined": drafter.quarantined,
        "disabled": drafter.disabled,
        "explanation": drafter.explanation,
    })
}

fn counts_line(what: &str, counts: &RunCounts) -> String {
    format!(
        "{what}: {}, {}, {}; {} to the device, {} from it",
        text::counted(counts.launches, "launch"),
        text::counted(counts.uploads, "upload"),
        text::counted(counts.waits, "wait"),
        text::bytes(counts.bytes_to_device),
        text::bytes(counts.bytes_from_device),
    )
}

fn counts_json(counts: &RunCounts) -> Value {
    json!({
        "launches": counts.launches,
        "uploads": counts.uploads,
        "waits": counts.waits,
        "bytes_to_device": counts.bytes_to_device,
        "bytes_from_device": counts.bytes_from_device,
        "cpu_copy_bytes": counts.cpu_copy_bytes,
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
