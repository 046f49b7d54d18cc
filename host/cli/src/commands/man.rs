//! `man`: writes the manual pages.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::app::App;
use crate::args::{Args, ManArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub fn run(args: &ManArgs, app: &mut App) -> Result<Exit, Failure> {
    match &args.out {
        Some(folder) => {
            fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Args::command(), folder))
                .map_err(|error| unwritable(folder, &error))?;
        }
        None => {
            let mut page = Vec::new();
            Man::new(Args::command()).render(&mut page).map_err(Failure::output)?;
            app.printer.own_text(&page)?;
        }
    }
    Ok(Exit::Ok)
}

fn unwritable(folder: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot write manual pages to {}", folder.display());
    Failure::new(Exit::Failed, message).caused_by(error)
}
