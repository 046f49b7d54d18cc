//! `plugins rescan`: the plugins, tried anew.

use paceline_registry::{Environment, forget};

use super::plugins_list;
use crate::app::App;
use crate::args::PluginsListArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub fn run(args: &PluginsListArgs, app: &mut App) -> Result<Exit, Failure> {
    if let Some(folder) = Environment::of_process().cache_directory() {
        forget(&folder).map_err(|error| {
            let message = format!("cannot forget what is kept about plugins in {}", folder.display());
            Failure::new(Exit::Failed, message).caused_by(&error)
        })?;
    }
    plugins_list::run(args, app)
}
