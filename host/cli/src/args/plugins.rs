//! What commands on plugins take.

use std::path::PathBuf;

use clap::Subcommand;

use super::{
    OutputArgs, PluginsInstallArgs, PluginsNewArgs, PluginsRemoveArgs, PluginsSwitchArgs, PluginsUseArgs,
    SettingArg,
};

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
    ///
    /// Those that panicked while a model ran stay distrusted: `plugins enable` trusts one again.
    Rescan(PluginsListArgs),
    /// Say what is wrong with a plugin file, or which installed ones have changed; exit code 5 if something is
    ///
    /// The file is looked at, then loaded in a process of its own, where the plugin is held against its descriptor. A
    /// strategy then has to leave texts of a model as they are: four of them, without temperature and with, are generated
    /// with and without it, in a process of their own, and tokens and logits must be the same to the bit.
    /// Without a file, every plugin that was installed is held against the hash that it had.
    Verify(PluginsVerifyArgs),
    /// Run the conformance suite on a backend, or hold a strategy against its contract; exit code 1 if a case fails
    ///
    /// What a backend says that it cannot do counts as refused, not as failed. Of a strategy only what needs no model is
    /// tested: its tables, its settings, and a text that is followed; what it guesses, `paceline bench` shows on a model.
    /// The plugin runs in this process.
    Test(PluginsTestArgs),
    /// Copy a plugin into this user's plugin folder
    ///
    /// It is examined and tried in a process of its own first; of a directory all plugins are installed, or none. Versions
    /// lie side by side; the highest one is used, unless `plugins use` chooses others. The lock file `plugins.lock` in the
    /// folder keeps where each came from and its SHA-256: a file that changes later is refused.
    Install(PluginsInstallArgs),
    /// Remove an installed plugin, or one version of it
    Remove(PluginsRemoveArgs),
    /// Use a plugin again that was switched off, or that is not trusted as it panicked
    ///
    /// A plugin whose code panics while a model runs is remembered by the hash of its file, and not used from the next start
    /// on, until it is another build or this is said.
    Enable(PluginsSwitchArgs),
    /// Use a plugin no more, neither a file nor a built-in one
    Disable(PluginsSwitchArgs),
    /// Choose which version of a plugin is used
    ///
    /// The highest version is used of those that were chosen. A file in one of them is used in the place of a built-in
    /// plugin, also of a newer one.
    Use(PluginsUseArgs),
    /// Write the crate of a new plugin, which builds and works
    New(PluginsNewArgs),
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
    /// A shared library; if left out, every installed plugin
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The model that a strategy is tried on
    #[arg(long, value_name = "MODEL", default_value = "demo")]
    pub model: PathBuf,

    /// A GGUF file with the model of a strategy that drafts with one
    #[arg(long, value_name = "FILE")]
    pub draft: Option<PathBuf>,

    /// Set a setting of the strategy, such as `echo.fails=on`; may be given several times
    #[arg(long, value_name = "PLUGIN.KEY=VALUE")]
    pub set: Vec<SettingArg>,

    /// End the trial of a strategy after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub time_limit: u64,

    /// Try the strategy here, and write what came of it
    #[arg(long, hide = true)]
    pub in_this_process: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `plugins test`.
#[derive(Debug, clap::Args)]
pub struct PluginsTestArgs {
    /// Id of a plugin, or the path of its shared library
    #[arg(value_name = "PLUGIN")]
    pub backend: PathBuf,

    /// Test only this operation, or this part of the contract: plan, load, launch, semaphore, device, captures, peers or
    /// state; may be given several times
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
