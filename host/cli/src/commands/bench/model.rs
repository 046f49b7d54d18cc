//! The data of a benchmark.

/// Everything that a benchmark measured, and where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it ran on.
    pub machine: Machine,
    /// Names of the arms in the order in which they were given. The first is the one that others are compared with.
    pub arms: Vec<String>,
    /// All runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// What a run of several rows costs; empty if it was not measured.
    pub verify_cost: Vec<VerifyCost>,
}

/// What a benchmark ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Operating system.
    pub os: String,
    /// Processor.
    pub cpu: String,
    /// Threads that computed.
    pub threads: u32,
    /// The model file.
    pub model: String,
    /// Version of this program.
    pub version: String,
    /// The command line, to run it again.
    pub command: String,
}

/// One continuation of one prompt with one arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Name of the arm.
    pub arm: String,
    /// Kind of the prompt.
    pub kind: String,
    /// Name of the prompt.
    pub prompt: String,
    /// Number of the repetition, from 0. Runs of the same prompt and repetition are compared with each other.
    pub repetition: u32,
    /// Temperature of sampling; 0 for none.
    pub temperature: f32,
    /// Tokens that were generated. The first comes with the prompt, all others from rounds.
    pub generated_tokens: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Time until the first token was known.
    pub prompt_seconds: f64,
    /// Time for all other tokens.
    pub generation_seconds: f64,
    /// Runs of the target model after the prompt.
    pub rounds: u64,
    /// Tokens that were guessed.
    pub drafted: u64,
    /// Guesses that the target model looked at.
    pub verified: u64,
    /// Guesses that it took.
    pub accepted: u64,
    /// What became of the first guess of a round, of the second, and so on.
    pub positions: Vec<Position>,
    /// Where the time of generation went.
    pub split: SplitSeconds,
    /// Whether the tokens are those of the first arm for the same prompt and repetition; `None` if that was not
    /// looked at or cannot be expected.
    pub identical: Option<bool>,
    /// Device memory that the strategy took.
    pub strategy_bytes: u64,
    /// Uploads to the device.
    pub uploads: u64,
    /// Waits for the device.
    pub waits: u64,
    /// Launches on the device.
    pub launches: u64,
}

/// Guesses at one place of a draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Rounds that guessed at least so many tokens.
    pub drafted: u64,
    /// Rounds that took the guess at this place.
    pub accepted: u64,
}

/// Where the time of generation went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SplitSeconds {
    /// Guessing.
    pub draft: f64,
    /// The target model's runs.
    pub verify: f64,
    /// Keeping what was taken and dropping the rest.
    pub commit: f64,
    /// Everything else: sampling, text, bookkeeping.
    pub host: f64,
}

/// What one run of the target model costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VerifyCost {
    /// Rows of the run.
    pub rows: u32,
    /// Median time.
    pub median_seconds: f64,
    /// This time as a multiple of that for one row.
    pub ratio: f64,
    /// Time of such runs in rounds of texts, as far as there were any.
    pub in_rounds_seconds: Option<f64>,
}

impl Run {
    /// Tokens that came from rounds.
    pub fn emitted(&self) -> u64 {
        self.generated_tokens.saturating_sub(1)
    }

    /// Tokens per second of generation; `None` if there were none.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.emitted() as f64 / self.generation_seconds;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Prompt tokens per second; `None` if the time is not known.
    pub fn prompt_rate(&self) -> Option<f64> {
        let rate = self.prompt_tokens as f64 / self.prompt_seconds;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Rounds with a guess.
    pub fn rounds_with_draft(&self) -> u64 {
        self.positions.first().map_or(0, |first| first.drafted)
    }

    /// Whether two runs did the same task.
    pub fn is_same_task(&self, other: &Self) -> bool {
        (&self.kind, &self.prompt, self.repetition, self.temperature.to_bits())
            == (&other.kind, &other.prompt, other.repetition, other.temperature.to_bits())
    }
}

impl VerifyCost {
    /// Rows of the table of costs, from rows and median times; the ratios are to the time of one row. Without that
    /// they are NaN.
    pub fn table(medians: &[(u32, f64)]) -> Vec<Self> {
        let one = medians.iter().find(|(rows, _)| *rows == 1).map_or(f64::NAN, |(_, seconds)| *seconds);
        let cost = |&(rows, median_seconds)| Self {
            rows,
            median_seconds,
            ratio: median_seconds / one,
            in_rounds_seconds: None,
        };
        medians.iter().map(cost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_not_a_round_s() {
        let run = Run { generated_tokens: 101, generation_seconds: 0.5, ..Run::default() };
        assert_eq!((run.emitted(), run.rate()), (100, Some(200.0)));
        assert_eq!(Run { generated_tokens: 1, ..run.clone() }.rate(), None);
        assert_eq!(Run { generation_seconds: 0.0, ..run }.rate(), None);
    }

    #[test]
    fn costs_are_relative_to_one_row() {
        let ratios: Vec<f64> =
            VerifyCost::table(&[(1, 2.0), (4, 3.0)]).iter().map(|cost| cost.ratio).collect();
        assert_eq!(ratios, [1.0, 1.5]);
        assert!(VerifyCost::table(&[(2, 2.0)])[0].ratio.is_nan());
    }
}
