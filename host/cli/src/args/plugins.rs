//! What commands on plugins take.

use std::path::PathBuf;

use clap::Subcommand;

use super::{OutputArgs, SettingArg};

/// Commands on plugins.
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// List the plugins, used or not, and why not
    ///
    /// A plugin that was found in a directory is used if `--backend` asks for it, or if it is newer than the built-in
    /// one with the same id.
    List(PluginsListArgs),
    /// Show all that a plugin says about itself
    Inspect(PluginsInspectArgs),
    /// Show the directories in which plugins are looked for
    ///
    /// The variable `PACELINE_PLUGIN_DIRS` adds some in front: absolute paths with colons between.
    Paths(PluginsPathsArgs),
    /// Try all plugins anew, whatever came of it before, and list them
    Rescan(PluginsListArgs),
    /// Say what is wrong with a plugin file; exit code 5 if something is
    ///
    /// The file is looked at, then loaded in a process of its own, where the plugin is held against its descriptor.
    Verify(PluginsVerifyArgs),
    /// Run the conformance suite on a backend, or hold a strategy against its contract; exit code 1 if a case fails
    ///
    /// What a backend says that it cannot do counts as refused, not as failed. Of a strategy only what needs no model is
    /// tested: its tables, its settings, and a text that is followed; what it guesses, `paceline bench` shows on a model.
    /// The plugin runs in this process.
    Test(PluginsTestArgs),
}

/// Arguments of `plugins list` and `plugins rescan`.
#[derive(Debug, clap::Args)]
pub struct PluginsListArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins inspect`.
#[derive(Debug, clap::Args)]
pub struct PluginsInspectArgs {
    /// Id of a plugin; if left out, all that are built in or given with --plugin
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins paths`.
#[derive(Debug, clap::Args)]
pub struct PluginsPathsArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins verify`.
#[derive(Debug, clap::Args)]
pub struct PluginsVerifyArgs {
    /// A shared library
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins test`.
#[derive(Debug, clap::Args)]
pub struct PluginsTestArgs {
    /// Id of a plugin, or the path of its shared library
    #[arg(value_name = "PLUGIN")]
    pub backend: PathBuf,

    /// Test only this operation, or this part of the contract: plan, load, launch, semaphore, device or state; may be
    /// given several times
    #[arg(long, value_name = "NAME")]
    pub operation: Vec<String>,

    /// Set a setting of the plugin, such as `cpu.threads=2`; may be given several times
    #[arg(long, value_name = "PLUGIN.KEY=VALUE")]
    pub set: Vec<SettingArg>,

    /// Write what came of each case to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}
