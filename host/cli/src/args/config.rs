//! What `config` takes.

use std::path::PathBuf;

use clap::Subcommand;

use crate::args::OutputArgs;

/// Commands on the files of settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List every fault of the files of settings; exit code 2 if there is one
    ///
    /// The files are the one that is part of the program, /etc/paceline/registry.toml, and paceline/registry.toml in
    /// the user's configuration folder. What has no effect although nothing is wrong with it is a warning.
    Check(ConfigCheckArgs),
    /// Show everything that sets settings, strongest first
    Show(ConfigShowArgs),
    /// Show all settings that there are, of the host and of all plugins
    Schema(ConfigSchemaArgs),
}

/// Arguments of `config check`.
#[derive(Debug, clap::Args)]
pub struct ConfigCheckArgs {
    /// Check these files instead of those of the site and the user; each is checked as if it were the only one
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Arguments of `config show`.
#[derive(Debug, clap::Args)]
pub struct ConfigShowArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `config schema`.
#[derive(Debug, clap::Args)]
pub struct ConfigSchemaArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}
