//! `completions`: writes what makes a shell complete arguments.

use clap::CommandFactory;

use crate::app::App;
use crate::args::{Args, CompletionsArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub fn run(args: &CompletionsArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    app.printer.own_text(&script)?;
    Ok(Exit::Ok)
}
