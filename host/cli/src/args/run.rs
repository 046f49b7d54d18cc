//! What `run` takes.

use clap::builder::NonEmptyStringValueParser;

use crate::args::{EngineArgs, ModelArg, OutputArgs, PromptArgs, StrategyArgs};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Standard output gets the continuation and nothing else, each piece as it comes; with --json, one JSON object at the \
end. Statistics go to standard error, and so does the prompt if both are a terminal; --quiet leaves these out.

Ctrl-C ends the continuation after the current token, with exit code 130; pressed again, or before the first token, \
it ends the program at once.")]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArg,

    #[command(flatten)]
    pub prompt: PromptArgs,

    /// Generate at most this many tokens
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub tokens: usize,

    /// Positions of the context, for prompt and continuation; what the model was trained for, at most 8192, if left
    /// out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,

    /// End the continuation at this text, which is not part of it; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,

    /// Go on when the model ends the text
    #[arg(long)]
    pub ignore_eos: bool,

    /// Take control tokens that are written out in the prompt, such as `<|im_end|>`, as those tokens, and write
    /// generated ones out
    #[arg(long)]
    pub special: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub sampling: SamplingArgs,

    #[command(flatten)]
    pub strategies: StrategyArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature: 0 always takes the most likely token, more gives more variety
    #[arg(long, alias = "temperature", value_name = "F", default_value_t = 0.7, value_parser = number)]
    #[arg(allow_negative_numbers = true)]
    pub temp: f32,

    /// Choose among this many of the most likely tokens; 0 for all
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub top_k: usize,

    /// Choose among the most likely tokens that have this probability together; 1 for all
    #[arg(long, value_name = "F", default_value_t = 0.9, value_parser = number, allow_negative_numbers = true)]
    pub top_p: f32,

    /// Leave out tokens that are less likely than this part of the most likely one; 0 for none
    #[arg(long, value_name = "F", default_value_t = 0.0, value_parser = number, allow_negative_numbers = true)]
    pub min_p: f32,

    /// Make tokens less likely that are among the last 64, by this factor; 1 leaves them as they are
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = number, allow_negative_numbers = true)]
    pub repeat_penalty: f32,

    /// Seed of the choices: the same seed gives the same text; a new one each time, shown with the statistics, if left
    /// out
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Reads a number; which ones make sense, the sampler knows.
fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "it must be a number, such as 0.8".to_owned())
}
