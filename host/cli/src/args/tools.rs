//! What `tools` takes.

use std::path::PathBuf;

use crate::args::{EngineArgs, ModelArg, OutputArgs};

/// Commands that make model files.
#[derive(Debug, clap::Subcommand)]
pub enum ToolsCommand {
    /// Give the prediction block of a model a smaller head, with the tokens that a text uses most
    TrimHead(TrimHeadArgs),
    /// Write the hidden states of a model on a text, to train a drafter with
    ExportStates(ExportStatesArgs),
}

/// Arguments of `tools export-states`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The text is cut into windows, each of which starts with an empty context. The new file is a GGUF file with the tensors \
`tokens` (I32), `hidden`, the normed output of the last layer, which the head and a prediction block read, and \
`layer.N.input` for each layer that was asked for, the residual stream before it; all F32, a row for each token. The \
metadata key `hidden-states.window` says how long windows are. All of it is held in memory before it is written.")]
pub struct ExportStatesArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// The text
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Also write the residual stream before these layers; the number of layers means behind the last
    #[arg(long, value_name = "LAYER,...", value_delimiter = ',')]
    pub layers: Vec<u32>,

    /// Tokens of a window, at most as many as the model was trained for
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,

    /// Use only this many tokens from the beginning of the text
    #[arg(long, value_name = "N")]
    pub tokens: Option<usize>,

    /// Write the hidden states to this file
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,

    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Arguments of `tools trim-head`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Guessing a token reads the whole head, a row for each token of the vocabulary. A smaller head makes guessing quicker, \
and tokens that it lacks are never guessed; what the model writes stays the same, since it checks each guess with its \
own head.

The new file has all metadata and tensors of the model, and two more: `blk.L.nextn.draft_head.weight`, the rows that \
were kept, and `blk.L.nextn.draft_head_ids`, their tokens in ascending order. L is the prediction block. Special tokens \
are always kept. A text like those that the model will write is the best corpus.")]
pub struct TrimHeadArgs {
    #[command(flatten)]
    pub model: ModelArg,

    /// Count the tokens of this text
    #[arg(long, value_name = "FILE")]
    pub corpus: PathBuf,

    /// Keep this many of the most frequent tokens, of equal ones those with the lower ids; 32768 or a quarter of the
    /// vocabulary, whichever is less, if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,

    /// Write the new model to this file
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,

    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}
