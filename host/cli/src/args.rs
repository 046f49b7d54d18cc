//! What can be typed. Definitions only: what they do is in `commands`.

mod bench;
mod chat;
mod config;
mod engine;
mod eval;
mod explain;
mod generated;
mod plugins;
mod plugins_new;
mod plugins_store;
mod run;
mod strategy;
mod tools;

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use crate::exit::EXIT_CODES_HELP;

#[cfg(test)]
pub use bench::sweep;
pub use bench::{Axis, BenchArgs, StrategyList};
pub use chat::ChatArgs;
pub use config::{ConfigCheckArgs, ConfigCommand, ConfigSchemaArgs, ConfigShowArgs};
pub use engine::{BackendArgs, EngineArgs, PromptArgs, SettingArg};
pub use eval::{EvalCommand, KernelsArgs, PerplexityArgs, TopArgs};
pub use explain::ExplainArgs;
pub use generated::{CompletionsArgs, ManArgs};
pub use plugins::{
    PluginsCommand, PluginsInspectArgs, PluginsListArgs, PluginsPathsArgs, PluginsTestArgs, PluginsVerifyArgs,
};
pub use plugins_new::{NewPluginKind, PluginsNewArgs};
pub use plugins_store::{PluginsInstallArgs, PluginsRemoveArgs, PluginsSwitchArgs, PluginsUseArgs};
pub use run::{RunArgs, SamplingArgs};
pub use strategy::{StrategyArgs, StrategyChoice};
pub use tools::{ExportStatesArgs, ToolsCommand, TrimHeadArgs};

const EXAMPLES: &str = "\
Examples:
  paceline run demo -p \"fn main() {\"        continue a text
  paceline chat model.gguf                  talk with a model
  paceline bench demo                       what guessing ahead gains
  paceline explain demo                     where it would run, how, and why
  paceline models inspect demo              what is in a model file
  paceline models verify model.gguf         every fault of a file, before it is trusted
  paceline tokenize demo \"Hello, world\"     text to token ids
  paceline devices                          what models could run on
  paceline plugins list                     which plugins there are

`demo` is a small model inside this program; it works wherever a MODEL is asked for.";

/// Runs language models from GGUF files.
#[derive(Debug, Parser)]
#[command(
    name = "paceline",
    version,
    about,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES_HELP}"),
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true
)]
pub struct Args {
    /// Options that every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options for every command")]
pub struct GlobalArgs {
    /// Load the plugin in this shared library; may be given several times
    ///
    /// It takes the place of a built-in plugin with the same id, and is preferred to the built-in ones. Commands
    /// that use no plugin do not load it.
    #[arg(long, global = true, value_name = "PATH")]
    pub plugin: Vec<PathBuf>,

    /// Tell more on standard error; -vv tells authors of plugins more, -vvv everything
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Write nothing but data, warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Log what this filter lets through, such as `warn,paceline_registry=debug`
    ///
    /// Parts are separated by commas: a level (error, warn, info, debug, trace, off) for everything, or
    /// `target=level` for one crate, module or plugin. Takes the place of --verbose.
    #[arg(long, global = true, value_name = "FILTER", env = "PACELINE_LOG", hide_env_values = true)]
    pub log: Option<String>,

    /// Show no progress, not even on a terminal
    #[arg(long, global = true)]
    pub no_progress: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text
    Run(RunArgs),
    /// Talk with a model
    Chat(ChatArgs),
    /// Measure a model on a text
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure what strategies gain
    Bench(BenchArgs),
    /// Show what a model would run on, with which settings, and why
    Explain(ExplainArgs),
    /// Check and show the files of settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look into model files
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Show the token ids of a text
    Tokenize(TokenizeArgs),
    /// Show the text of token ids
    Detokenize(DetokenizeArgs),
    /// Show, install and write plugins
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// List the devices that models can run on
    Devices(DevicesArgs),
    /// Look at the machine, its drivers and the plugins, and say what to put right
    Doctor(DoctorArgs),
    /// Make model files out of others
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Write what makes a shell complete this program's arguments
    Completions(CompletionsArgs),
    /// Write the manual page
    Man(ManArgs),
}

/// Commands on model files.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Show the metadata and tensors of a model file
    Inspect(InspectArgs),
    /// List every fault of a model file; exit code 3 if there is one
    Verify(VerifyArgs),
    /// Say whether a DFlash drafter's file belongs to a model, and if not, why; exit code 3 then
    ///
    /// Both files are looked at, and the memory is planned; nothing is loaded.
    Pair(PairArgs),
}

/// The model that a command works on.
#[derive(Debug, clap::Args)]
pub struct ModelArg {
    /// A GGUF file, any part of a split one, or `demo` for the model inside this program
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
}

/// How results are written.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `models inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// List all tensors too
    #[arg(long)]
    pub tensors: bool,
    /// Write the chat template and nothing else
    #[arg(long, conflicts_with_all = ["tensors", "json"])]
    pub template: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `models verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub model: ModelArg,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `models pair`.
#[derive(Debug, clap::Args)]
pub struct PairArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The drafter's GGUF file
    #[arg(value_name = "DRAFT")]
    pub draft: PathBuf,
    /// Positions of the context for which memory is planned; what the model was trained for, at most 8192, if left out
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Arguments of `tokenize`.
#[derive(Debug, clap::Args)]
pub struct TokenizeArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The text; read from standard input if left out
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// Take control tokens that are written out in the text, such as `<|im_end|>`, as those tokens
    #[arg(long)]
    pub special: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `detokenize`.
#[derive(Debug, clap::Args)]
pub struct DetokenizeArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Token ids; read from standard input, with white space or commas between, if left out
    #[arg(value_name = "ID", value_parser = token_id)]
    pub ids: Vec<u32>,
    /// Write control tokens out, such as `<|im_end|>`; they are left out otherwise
    #[arg(long)]
    pub special: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Reads a token id.
pub fn token_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a token id is a whole number, 0 or greater".to_owned())
}

/// Arguments of `devices`.
#[derive(Debug, clap::Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Args::command().debug_assert();
    }

    /// No argument without a sentence that says what it is for.
    #[test]
    fn everything_is_documented() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "`{}` has no help", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "`{}` has no help", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
