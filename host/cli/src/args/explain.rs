//! What `explain` takes.

use crate::args::{EngineArgs, ModelArg, OutputArgs, StrategyArgs};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
With the options of `run`, it shows what `run` would do with them, and why. Nothing is loaded: the model file is \
looked at and the memory is planned.

Each setting has its value, where that comes from (an option, a variable of the environment, a file and a line, a \
default), and what it overrides. `--why KEY` tells the whole way to one value, with the rules that did not hold.")]
pub struct ExplainArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Positions of the context, for prompt and continuation; what the model was trained for, at most 8192, if left
    /// out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,

    /// Tell all about one setting, such as `mtp-chain.depth`
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    pub why: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub strategies: StrategyArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}
