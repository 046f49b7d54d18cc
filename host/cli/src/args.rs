//! What can be typed. Definitions only: what they do is in `commands`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Parser, Subcommand};

use crate::exit::EXIT_CODES_HELP;

const EXAMPLES: &str = "\
Examples:
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
    /// Look into model files
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Show the token ids of a text
    Tokenize(TokenizeArgs),
    /// Show the text of token ids
    Detokenize(DetokenizeArgs),
    /// Show the plugins
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// List the devices that models can run on
    Devices(DevicesArgs),
}

/// Commands on model files.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Show the metadata and tensors of a model file
    Inspect(InspectArgs),
    /// List every fault of a model file; exit code 3 if there is one
    Verify(VerifyArgs),
}

/// Commands on plugins.
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// List the plugins, preferred ones first
    List(PluginsListArgs),
    /// Show all that a plugin says about itself
    Inspect(PluginsInspectArgs),
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

/// What computes, and how it is set up.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// Use the backend plugin with this id
    #[arg(long, value_name = "ID")]
    pub backend: Option<String>,

    /// Set a plugin's setting, such as `cpu.threads=2`; may be given several times
    #[arg(long, value_name = "PLUGIN.KEY=VALUE")]
    pub set: Vec<SettingArg>,
}

impl BackendArgs {
    /// The settings of one plugin, as keys and values.
    pub fn settings_of(&self, plugin: &str) -> Vec<(String, String)> {
        let of_plugin = self.set.iter().filter(|setting| setting.plugin == plugin);
        of_plugin.map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingArg {
    /// Id of the plugin.
    pub plugin: String,
    /// Key of the setting, without the plugin.
    pub key: String,
    /// Value as text; the plugin knows what it may be.
    pub value: String,
}

impl FromStr for SettingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
        match parts {
            Some(((plugin, key), value)) if !plugin.is_empty() && !key.is_empty() => {
                Ok(Self { plugin: plugin.to_owned(), key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err("it must be a plugin, a dot, a key, `=` and a value, as in `cpu.threads=2`".to_owned()),
        }
    }
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

/// Arguments of `plugins list`.
#[derive(Debug, clap::Args)]
pub struct PluginsListArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins inspect`.
#[derive(Debug, clap::Args)]
pub struct PluginsInspectArgs {
    /// Id of a plugin; all of them if left out
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `devices`.
#[derive(Debug, clap::Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    pub backend: BackendArgs,
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

    #[test]
    fn settings_have_a_plugin_a_key_and_a_value() {
        let setting = "cpu.threads=2".parse::<SettingArg>().unwrap();
        assert_eq!((&*setting.plugin, &*setting.key, &*setting.value), ("cpu", "threads", "2"));
        let setting = "cpu.a.b=x=y".parse::<SettingArg>().unwrap();
        assert_eq!((&*setting.key, &*setting.value), ("a.b", "x=y"));
        for text in ["", "cpu", "cpu.threads", "threads=2", ".threads=2", "cpu.=2"] {
            assert!(text.parse::<SettingArg>().is_err(), "{text}");
        }
    }
}
