//! What the programs of the benchmark share: the job, its prompt, a repetition, the JSON lines.
//!
//! A program for one engine implements [`Engine`] and calls [`serve`]. It prints one [`Measurement`] a line, either
//! as many as its arguments ask for, or one for each line that it reads, so that another program can let several
//! engines take turns with their models loaded; or, where it is asked for, one [`Perplexity`] of a text.

mod perplexity;
mod resources;

pub use perplexity::Perplexity;

use clap::Parser;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A result with an error that is only shown.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Prompt ids are below this, so that they exist in every model but the tiniest.
const PROMPT_VOCABULARY: u64 = 8000;

/// What to measure; these are the arguments of a program for one engine.
#[derive(Clone, Debug, Parser)]
pub struct Job {
    /// GGUF file.
    pub model: PathBuf,
    /// Threads for prompt and generation.
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 512)]
    pub prompt: usize,
    /// Tokens to generate, at least 2.
    #[arg(long, default_value_t = 96)]
    pub generate: usize,
    /// Repetitions after one that is not reported.
    #[arg(long, default_value_t = 3)]
    pub repetitions: usize,
    /// Measure once for each line on standard input, from the first on, instead.
    #[arg(long)]
    pub on_request: bool,
    /// Measure how well the text is predicted whose token ids this file has, as `paceline tokenize` writes them, instead,
    /// in windows of `--prompt` tokens.
    #[arg(long, conflicts_with = "on_request")]
    pub perplexity: Option<PathBuf>,
}

impl Job {
    /// Positions that the context needs.
    pub fn context(&self) -> u32 {
        u32::try_from(self.prompt + self.generate).unwrap_or(u32::MAX)
    }

    /// Outputs of a run that all rows have.
    pub fn outputs(&self) -> u32 {
        if self.perplexity.is_some() { 64 } else { 1 }
    }

    /// The job as arguments of a program that measures the perplexity of a text.
    pub fn to_arguments_for_perplexity(&self, ids: &Path) -> Vec<String> {
        let mut arguments = self.to_arguments_on_request();
        arguments.retain(|argument| argument != "--on-request");
        arguments.push(format!("--perplexity={}", ids.display()));
        arguments
    }

    /// The job as arguments of a program that measures on request.
    pub fn to_arguments_on_request(&self) -> Vec<String> {
        let number = |name: &str, value: usize| format!("--{name}={value}");
        vec![
            self.model.display().to_string(),
            format!("--threads={}", self.threads),
            number("prompt", self.prompt),
            number("generate", self.generate),
            "--on-request".into(),
        ]
    }
}

/// One repetition, as a JSON line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the engine.
    pub engine: String,
    /// Its version and what it says about its build.
    pub version: String,
    /// File name of the model.
    pub model: String,
    /// Threads.
    pub threads: u32,
    /// Seconds to load the model.
    pub load_seconds: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens per second.
    pub prompt_per_second: f64,
    /// Generated tokens.
    pub generated: usize,
    /// Generated tokens per second. The first comes from the prompt's run and does not count.
    pub generation_per_second: f64,
    /// Processor seconds of each thread in this repetition, the busiest first; empty where the system does not tell.
    pub thread_seconds: Vec<f64>,
    /// The most memory that was resident so far, in bytes, mapped files included, where the system tells.
    pub peak_memory: Option<u64>,
    /// Ids of the generated tokens.
    pub ids: Vec<u32>,
}

/// What an engine reports for one repetition.
#[derive(Clone, Debug)]
pub struct Repetition {
    /// From the start until the first token was known.
    pub prompt_time: Duration,
    /// For all generated tokens but the first.
    pub generation_time: Duration,
    /// The generated tokens.
    pub ids: Vec<u32>,
}

/// An engine with a loaded model.
pub trait Engine {
    /// Version, and what matters about the build.
    fn version(&self) -> String;

    /// Processes a prompt in an empty sequence, then generates tokens greedily, whatever they are.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn repeat(&mut self, prompt: &[u32], generate: usize) -> Result<Repetition>;

    /// Processes ids in an empty sequence and gives out the logits after each, in their order.
    ///
    /// # Errors
    /// Whatever the engine or the receiver reports.
    fn logits(&mut self, ids: &[u32], receive: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()>;
}

/// The ids of a prompt: the same for all engines, scattered, without meaning.
pub fn prompt_ids(count: usize) -> Vec<u32> {
    // Multiples of 2^32 divided by the golden ratio are spread evenly modulo 2^32; that is scaled to the vocabulary.
    let id = |index: u64| ((index * 2_654_435_761 % (1 << 32)) * PROMPT_VOCABULARY) >> 32;
    (1..=count as u64).map(|index| id(index) as u32).collect()
}

/// Loads an engine and measures as the program's arguments say.
///
/// # Errors
/// Whatever the engine reports; an output that is closed.
pub fn serve<E: Engine>(name: &str, load: impl FnOnce(&Job) -> Result<E>) -> Result<()> {
    let job = Job::parse();
    if job.prompt == 0 || job.generate < 2 {
        return Err("a prompt of at least 1 token and 2 generated tokens are needed".into());
    }
    let start = Instant::now();
    let mut engine = load(&job)?;
    let load_seconds = start.elapsed().as_secs_f64();
    if let Some(ids) = &job.perplexity {
        let ids = perplexity::read_ids(ids)?;
        return print_line(&Perplexity::measure(name, &mut engine, &ids, job.prompt)?);
    }
    let prompt = prompt_ids(job.prompt);
    let measure = |engine: &mut E| -> Result<()> {
        let before = resources::thread_seconds();
        let repetition = engine.repeat(&prompt, job.generate)?;
        let thread_seconds = resources::thread_seconds_since(&before);
        let generated = repetition.ids.len();
        print_line(&Measurement {
            engine: name.into(),
            version: engine.version(),
            model: job.model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            threads: job.threads,
            load_seconds,
            prompt_tokens: prompt.len(),
            prompt_per_second: prompt.len() as f64 / repetition.prompt_time.as_secs_f64(),
            generated,
            generation_per_second: generated.saturating_sub(1) as f64
                / repetition.generation_time.as_secs_f64(),
            thread_seconds,
            peak_memory: resources::peak_memory(),
            ids: repetition.ids,
        })
    };
    if job.on_request {
        for request in std::io::stdin().lock().lines() {
            request?;
            measure(&mut engine)?;
        }
        return Ok(());
    }
    engine.repeat(&prompt, job.generate)?;
    (0..job.repetitions).try_for_each(|_| measure(&mut engine))
}

/// The revision that is checked out here, with `-dirty` if files were changed since: ours, if it was built just now.
pub fn source_revision() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match git {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".into(),
    }
}

fn print_line(measurement: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, measurement)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_ids_are_distinct_and_small() {
        let ids = prompt_ids(512);
        assert!(ids.iter().all(|&id| u64::from(id) < PROMPT_VOCABULARY));
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(distinct.len() > 500);
        assert_eq!(ids[..8], prompt_ids(8));
    }
}
