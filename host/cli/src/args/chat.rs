//! What `chat` takes.

use std::path::PathBuf;

use crate::args::{EngineArgs, ModelArg, OutputArgs, SamplingArgs, StrategyArgs};

/// Arguments of `chat`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Each line of standard input is a message; a line that ends with a backslash goes on with the next one. `/clear` \
forgets the conversation, `/quit` or the end of the input ends the program. Standard output gets the replies and \
nothing else, each piece as it comes; with --json, one JSON object on a line for each reply. Control tokens that are \
written out in a message, such as `<|im_end|>`, are taken as those tokens.

Ctrl-C ends a reply after the current token; pressed again, or while a message is typed, it ends the program.

A message that does not fit the context gets no reply and is left out; exit code 2 then.")]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Begin the conversation with this as the system's message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,

    /// Read the chat template from this file, in place of the one of the model file
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,

    /// Generate at most this many tokens for a reply; as many as fit the context if left out
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,

    /// Positions of the context, for the whole conversation; what the model was trained for, at most 8192, if left out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub sampling: SamplingArgs,

    #[command(flatten)]
    pub strategies: StrategyArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}
