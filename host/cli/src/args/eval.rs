//! What `eval` takes.

use std::path::PathBuf;

use crate::args::{EngineArgs, ModelArg, OutputArgs, PromptArgs, token_id};

/// Measurements.
#[derive(Debug, clap::Subcommand)]
pub enum EvalCommand {
    /// Show the most likely tokens after each token of a text, with their logits
    Top(TopArgs),
    /// Compute how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Show which kernels run a model, and what each takes of a run
    Kernels(KernelsArgs),
}

/// Arguments of `eval top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub model: ModelArg,

    #[command(flatten)]
    pub prompt: PromptArgs,

    /// Token ids in place of a text, with commas between
    #[arg(
        long,
        value_name = "ID,...",
        value_delimiter = ',',
        value_parser = token_id,
        conflicts_with_all = ["prompt", "file", "special"],
    )]
    pub ids: Vec<u32>,

    /// How many tokens to show for each position
    #[arg(short = 'k', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,

    /// Positions of the context; what the model was trained for, at most 8192, if left out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,

    /// Take control tokens that are written out in the text, such as `<|im_end|>`, as those tokens
    #[arg(long)]
    pub special: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Arguments of `eval perplexity`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The text is cut into windows of --ctx tokens, the last of which may be shorter. Each window starts with an empty \
context, so its first token cannot be predicted and is not scored. The perplexity is the exponential of the mean \
negative log-likelihood (natural logarithm) of the scored tokens; its standard error takes them as independent.")]
pub struct PerplexityArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Read the text from this file; from standard input if left out
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Tokens of a window; 512, or what the model was trained for if that is less, if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub ctx: Option<u32>,

    /// Use only this many tokens from the beginning of the text
    #[arg(long, value_name = "N")]
    pub tokens: Option<usize>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Arguments of `eval kernels`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Times are those of all threads together, divided by their number, with a clock around each piece of work, which makes \
a run a little slower. The rate is that of the weights' bytes, and is held against the rate at which this machine reads \
memory, measured right afterwards; weights that stay in a cache may be faster than that.")]
pub struct KernelsArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Rows of a run: 1 to generate, more to verify guesses or to read a prompt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,

    /// Measure this many runs
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,

    /// Show each kernel by itself, in the order in which they run
    #[arg(long)]
    pub all: bool,

    /// Positions of the context; what the model was trained for, at most 8192, if left out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}
