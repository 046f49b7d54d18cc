//! What `plugins new` takes.

use std::path::PathBuf;

/// Arguments of `plugins new`.
#[derive(Debug, clap::Args)]
pub struct PluginsNewArgs {
    /// What the plugin does
    #[arg(value_enum, value_name = "KIND")]
    pub kind: NewPluginKind,

    /// Id of the plugin and name of its crate: lower case letters, digits and dashes, the first a letter
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The folder of the crate, which must not be there yet or be empty; NAME in the current one if left out
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,

    /// The crate `paceline-plugin-api`: its folder in a checkout of Paceline, or a version of it
    ///
    /// If left out, that of the checkout in which this program lies, else the version that belongs to this program.
    #[arg(long, value_name = "DIR|VERSION")]
    pub plugin_api: Option<String>,
}

/// Kinds of plugins that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NewPluginKind {
    /// Computes graphs on devices
    Backend,
    /// Guesses what the model will say
    Drafter,
    /// Takes back recurrent state
    Rollback,
}
