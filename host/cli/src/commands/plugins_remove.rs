//! `plugins remove`: removes what was installed.

use crate::app::{App, plugin_store};
use crate::args::PluginsRemoveArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub fn run(args: &PluginsRemoveArgs, app: &mut App) -> Result<Exit, Failure> {
    for file in plugin_store()?.remove(&args.which.id, args.which.version.as_ref())? {
        app.printer.status(format_args!("`{}` {} removed", file.id, file.version));
    }
    Ok(Exit::Ok)
}
