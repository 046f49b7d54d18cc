//! `paceline`, the command line program.
//!
//! - `args` says what can be typed, and nothing else;
//! - `commands` has one file per command;
//! - `printer` is the one way to write: data to standard output, everything else to standard error;
//! - `exit` lists the exit codes, `failure` is the error that every command returns;
//! - `model_source` finds the model that a user names, `tokenizer` builds its tokenizer;
//! - `app` holds what commands share: the printer and the plugins.

#![forbid(unsafe_code)]

mod app;
mod args;
mod builtins;
mod commands;
mod demo_model;
mod exit;
mod failure;
mod logging;
mod model_source;
mod printer;
mod table;
mod text;
mod tokenizer;

use std::process::ExitCode;

use clap::Parser;

use crate::app::App;
use crate::args::Args;
use crate::exit::Exit;
use crate::printer::Printer;

fn main() -> ExitCode {
    let args = Args::parse();
    let printer = Printer::new(args.global.quiet, !args.global.no_progress);
    let mut app = App::new(printer, args.global.plugin.clone());
    let outcome = logging::start(&args.global)
        .and_then(|()| commands::run(&args.command, &mut app))
        .and_then(|exit| app.printer.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        // Whoever read our output has seen enough.
        Err(failure) if failure.is_broken_pipe() => Exit::Ok.into(),
        Err(failure) => {
            // What was written before the failure comes before it; a second failure adds nothing.
            let _ = app.printer.flush();
            app.printer.failure(&failure);
            failure.exit().into()
        }
    }
}
