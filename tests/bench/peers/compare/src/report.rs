//! What was measured, where, and the table.

use crate::statistics::{Spread, common_length};
use bench_measure::{Measurement, source_revision};
use serde::Serialize;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Serialize)]
pub struct Report {
    /// Seconds since 1970.
    started: u64,
    processor: String,
    processors: usize,
    /// The revision of our source, with `-dirty` if files were changed since.
    revision: String,
    command: Vec<String>,
    pub rows: Vec<Row>,
}

/// One of the rates of a sample.
type Rate = fn(&Measurement) -> f64;

/// The samples of one model with one number of threads.
#[derive(Serialize)]
pub struct Row {
    /// The system's load before and after, which the measurement itself raises too.
    pub load_average: [Option<f64>; 2],
    pub ours: Vec<Measurement>,
    pub peer: Vec<Measurement>,
}

impl Report {
    pub fn begin() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let command = std::env::args().map(|argument| match argument.rsplit_once('/') {
            Some((_, name)) => name.to_owned(),
            None => argument,
        });
        Self {
            started,
            processor: processor_name().unwrap_or_else(|| "unknown".into()),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            revision: source_revision(),
            command: command.collect(),
            rows: Vec::new(),
        }
    }

    /// Everything, with a line for each sample.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        Ok(text.replace("{\"engine\"", "\n{\"engine\"") + "\n")
    }

    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_markdown(&mut text);
        text
    }

    fn write_markdown(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "Processor: {}, {} processors. Our revision: {}.",
            self.processor, self.processors, self.revision
        )?;
        if let Some(sample) = self.rows.first().and_then(|row| row.peer.first()) {
            writeln!(text, "Peer: {}.", sample.version)?;
        }
        writeln!(text, "Command: `{}`\n", self.command.join(" "))?;
        writeln!(
            text,
            "| model | threads | measure | ours, tokens/s | llama.cpp, tokens/s | ratio | ratio by round | same tokens | load average |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            row.write_markdown(text)?;
        }
        writeln!(
            text,
            "\n| model | threads | load, s: ours | llama.cpp | processor s of all threads: ours | llama.cpp | of the busiest: ours | llama.cpp | peak memory, MiB: ours | llama.cpp |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            row.write_resources(text)?;
        }
        Ok(())
    }
}

impl Row {
    fn write_markdown(&self, text: &mut String) -> std::fmt::Result {
        let Some((first, peer_first)) = self.ours.first().zip(self.peer.first()) else { return Ok(()) };
        let same = common_length(&first.ids, &peer_first.ids);
        let load =
            self.load_average.map(|load| load.map_or("?".into(), |load| format!("{load:.1}"))).join(" to ");
        let measures: [(String, Rate); 2] = [
            (format!("prompt {}", first.prompt_tokens), |sample| sample.prompt_per_second),
            (format!("generation {}", first.generated), |sample| sample.generation_per_second),
        ];
        for (measure, rate) in measures {
            let [ours, peer] = [&self.ours, &self.peer].map(|samples| Spread::of(samples.iter().map(rate)));
            let by_round =
                Spread::of(self.ours.iter().zip(&self.peer).map(|(ours, peer)| rate(ours) / rate(peer)));
            writeln!(
                text,
                "| {} | {} | {measure} | {} | {} | **{:.2}** | {:.2} to {:.2} | {same} of {} | {load} |",
                first.model,
                first.threads,
                rates(ours),
                rates(peer),
                ours.median / peer.median,
                by_round.least,
                by_round.most,
                first.generated,
            )?;
        }
        Ok(())
    }
}

impl Row {
    /// Time to load, processor time of a repetition (prompt and generation), memory; medians.
    fn write_resources(&self, text: &mut String) -> std::fmt::Result {
        let Some(first) = self.ours.first() else { return Ok(()) };
        write!(text, "| {} | {} |", first.model, first.threads)?;
        let measures: [(Rate, usize); 4] = [
            (|sample| sample.load_seconds, 2),
            (|sample| sample.thread_seconds.iter().sum(), 2),
            (|sample| sample.thread_seconds.first().copied().unwrap_or(f64::NAN), 2),
            (|sample| sample.peak_memory.map_or(f64::NAN, |bytes| bytes as f64 / (1 << 20) as f64), 0),
        ];
        for (measure, digits) in measures {
            for samples in [&self.ours, &self.peer] {
                write!(text, " {:.digits$} |", Spread::of(samples.iter().map(measure)).median)?;
            }
        }
        writeln!(text)
    }
}

/// A median with the spread behind it.
fn rates(spread: Spread) -> String {
    let digits = if spread.median < 100.0 { 1 } else { 0 };
    format!("{:.digits$} ({:.digits$} to {:.digits$})", spread.median, spread.least, spread.most)
}

/// The load of the last minute, where the system tells it.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    // Virtual machines hide the model's name, not its numbers.
    let model = match (field("cpu family"), field("model\t")) {
        (Some(family), Some(model)) => format!(" (family {family}, model {model})"),
        _ => String::new(),
    };
    Some(field("model name")? + &model)
}
