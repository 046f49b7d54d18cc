//! What `run` and `chat` say about a generation.

use std::time::Duration;

use paceline_engine::{Engine, GenerationReport, MemoryRow, SamplerOptions, StopReason};
use paceline_plugin_api::backend::{ArenaClass, Captures, Counters};
use serde_json::{Value, json};

use crate::commands::speculation_report::Speculation;
use crate::engine_setup::{Context, Recovery, Setup};
use crate::printer::Printer;
use crate::text;

/// Why a generation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended the text.
    EndToken,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
    /// This text was asked to end it.
    StopText(String),
    /// Ctrl-C.
    Interrupted,
}

impl Ending {
    fn in_words(&self) -> &'static str {
        match self {
            Self::EndToken => "ended by the model",
            Self::Length => "stopped at the length",
            Self::ContextFull => "stopped as the context is full (see `--ctx`)",
            Self::StopText(_) => "stopped at a stop text",
            Self::Interrupted => "interrupted",
        }
    }

    /// The word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EndToken => "end_token",
            Self::Length => "length",
            Self::ContextFull => "context_full",
            Self::StopText(_) => "stop_text",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<StopReason> for Ending {
    fn from(stop: StopReason) -> Self {
        match stop {
            StopReason::EndToken => Self::EndToken,
            StopReason::Length => Self::Length,
            StopReason::ContextFull => Self::ContextFull,
            StopReason::Stopped => Self::Interrupted,
        }
    }
}

/// All about a generation that ended.
pub struct Outcome {
    /// Tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Tokens that were generated.
    pub ids: Vec<u32>,
    /// Their text, up to a stop text.
    pub text: String,
    /// Why it ended.
    pub ending: Ending,
    /// Counts and times.
    pub report: GenerationReport,
    /// Time in which the model was loaded.
    pub load_time: Duration,
    /// How tokens were chosen.
    pub sampler: SamplerOptions,
    /// What the device had done before; `None` if it does not count.
    pub counted_before: Option<Counters>,
    /// What guessing ahead did; `None` if nothing guessed.
    pub speculation: Option<Speculation>,
}

impl Outcome {
    /// Shows the statistics.
    pub fn show(&self, printer: &Printer) {
        printer.status(statistics(&self.report, &self.ending, &self.sampler));
        if let Some(speculation) = &self.speculation {
            printer.status(speculation.line());
            speculation.details().into_iter().for_each(|line| printer.detail(line));
        }
    }

    /// Everything, for programs.
    pub fn as_json(&self, setup: &Setup, context: &Context, engine: &Engine) -> Value {
        let stop_text = match &self.ending {
            Ending::StopText(text) => Some(text),
            _ => None,
        };
        let counters = self.counted_before.zip(engine.counters().ok());
        let mut object = setup.as_json(context, engine);
        object.extend([
            ("prompt_tokens".to_owned(), json!(self.prompt_ids.len())),
            ("prompt_ids".to_owned(), json!(self.prompt_ids)),
            ("text".to_owned(), json!(self.text)),
            ("tokens".to_owned(), json!(self.ids)),
            ("stop".to_owned(), json!(self.ending.code())),
            ("stop_text".to_owned(), json!(stop_text)),
            ("seed".to_owned(), json!(self.sampler.seed)),
            ("sampler".to_owned(), sampler_json(&self.sampler)),
            ("timings".to_owned(), self.timings_json()),
            ("memory".to_owned(), engine.memory().rows().iter().map(memory_json).collect()),
            ("speculation".to_owned(), json!(self.speculation.as_ref().map(Speculation::as_json))),
            ("recoveries".to_owned(), setup.recoveries.iter().map(Recovery::as_json).collect()),
            ("counters".to_owned(), json!(counters.map(|(before, after)| counters_json(&before, &after)))),
            ("captures".to_owned(), json!(engine.captures().ok().flatten().map(|it| captures_json(&it)))),
        ]);
        Value::Object(object)
    }

    fn timings_json(&self) -> Value {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let report = &self.report;
        json!({
            "load_ms": milliseconds(self.load_time),
            "prompt_ms": milliseconds(report.prompt_time),
            "prompt_per_second": report.prompt_rate(),
            "generated": report.generated_tokens,
            "generation_ms": milliseconds(report.generation_time),
            "generation_per_second": report.generation_rate(),
        })
    }
}

/// The line of statistics of a generation.
pub fn statistics(report: &GenerationReport, ending: &Ending, sampler: &SamplerOptions) -> String {
    let part = |count: usize, time: Duration, per_second: f64| {
        let mut part = format!("{} in {}", text::counted(count as u64, "token"), text::duration(time));
        if per_second > 0.0 {
            part.push_str(&format!(", {}", text::rate(per_second, "tokens")));
        }
        part
    };
    let mut line = format!(
        "prompt {}; generated {}; {}",
        part(report.prompt_tokens, report.prompt_time, report.prompt_rate()),
        part(report.generated_tokens, report.generation_time, report.generation_rate()),
        ending.in_words()
    );
    // Without temperature nothing is drawn.
    if sampler.temperature > 0.0 {
        line.push_str(&format!("; seed {}", sampler.seed));
    }
    line
}

fn sampler_json(sampler: &SamplerOptions) -> Value {
    json!({
        "temperature": text::decimal(sampler.temperature),
        "top_k": sampler.top_k,
        "top_p": text::decimal(sampler.top_p),
        "min_p": text::decimal(sampler.min_p),
        "repeat_penalty": text::decimal(sampler.repeat_penalty),
        "repeat_window": sampler.repeat_window,
    })
}

fn memory_json(row: &MemoryRow) -> Value {
    let class = match row.class {
        ArenaClass::Weights => "weights",
        ArenaClass::Kv => "kv",
        ArenaClass::State => "state",
        ArenaClass::Workspace => "workspace",
        ArenaClass::Io => "io",
    };
    json!({ "what": row.what, "class": class, "bytes": row.bytes })
}

/// Whether steps are captured, and what was since the device was opened.
fn captures_json(captures: &Captures) -> Value {
    json!({
        "captured": captures.is_captured,
        "captures": captures.captures,
        "replays": captures.replays,
        "rebuilds": captures.rebuilds,
        "reason": captures.reason,
    })
}

/// What the device did meanwhile; `arena_bytes` is what it holds.
fn counters_json(before: &Counters, after: &Counters) -> Value {
    let since = |field: fn(&Counters) -> u64| field(after).saturating_sub(field(before));
    json!({
        "launches": since(|it| it.launches),
        "waits": since(|it| it.waits),
        "uploads": since(|it| it.uploads),
        "upload_bytes": since(|it| it.upload_bytes),
        "downloads": since(|it| it.downloads),
        "download_bytes": since(|it| it.download_bytes),
        "quantized_rows": since(|it| it.quantized_rows),
        "arena_bytes": after.arena_bytes,
    })
}
