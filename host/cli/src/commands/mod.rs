//! The commands, one file each. A new command is a variant in `args`, a file here, and an arm below.

mod detokenize;
mod devices;
mod models_inspect;
mod models_verify;
mod plugins_inspect;
mod plugins_list;
mod tokenize;

use crate::app::App;
use crate::args::{Command, ModelsCommand, PluginsCommand};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command that was typed.
pub fn run(command: &Command, app: &mut App) -> Result<Exit, Failure> {
    match command {
        Command::Models(ModelsCommand::Inspect(args)) => models_inspect::run(args, app),
        Command::Models(ModelsCommand::Verify(args)) => models_verify::run(args, app),
        Command::Tokenize(args) => tokenize::run(args, app),
        Command::Detokenize(args) => detokenize::run(args, app),
        Command::Plugins(PluginsCommand::List(args)) => plugins_list::run(args, app),
        Command::Plugins(PluginsCommand::Inspect(args)) => plugins_inspect::run(args, app),
        Command::Devices(args) => devices::run(args, app),
    }
}
