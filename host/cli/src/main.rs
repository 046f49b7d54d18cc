//! `paceline`, the command line program.
//!
//! - `args` says what can be typed, and nothing else;
//! - `commands` has one file per command;
//! - `printer` is the one way to write: data to standard output, everything else to standard error;
//! - `exit` lists the exit codes, `failure` is the error that every command returns;
//! - `model_source` finds the model that a user names, `tokenizer` builds its tokenizer;
//! - `input` reads texts; `conversation` makes prompts of messages; `interrupt` is Ctrl-C;
//! - `new_file` writes files, complete or not at all;
//! - `sampling` says how tokens are chosen;
//! - `app` holds what commands share: the printer and the plugins;
//! - `doctor` judges the machine and says what to put right;
//! - `junit` writes what came out of tests for other programs; `layouts` compares those that a plugin carries;
//! - `config` reads the files of settings, `resolution` finds what every setting of a context is, and why;
//! - `backends` picks a backend, `strategies` picks what guesses ahead; `engine_setup` puts a model on a backend, for
//!   commands that run it.

#![forbid(unsafe_code)]

mod app;
mod args;
mod backends;
mod builtins;
mod commands;
mod config;
mod conversation;
mod demo_model;
mod doctor;
mod engine_setup;
mod exit;
mod failure;
mod input;
mod interrupt;
mod junit;
mod layouts;
mod logging;
mod model_source;
mod new_file;
mod printer;
mod resolution;
mod sampling;
mod strategies;
mod table;
mod text;
mod tokenizer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use paceline_registry::{Phase, probe_main};

use crate::app::App;
use crate::args::Args;
use crate::exit::Exit;
use crate::printer::Printer;

fn main() -> ExitCode {
    if let Some((phase, file)) = asked_to_probe() {
        return probe_main(phase, &file);
    }
    let args = Args::parse();
    let printer = Printer::new(args.global.quiet, args.global.verbose > 0, !args.global.no_progress);
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

/// What this program asks of itself, started once more, when it tries the plugin in a file: `--probe PHASE FILE`. That
/// comes before anything else, as nothing may have read the standard input, and no threads may run.
fn asked_to_probe() -> Option<(Phase, PathBuf)> {
    let mut arguments = std::env::args_os().skip(1);
    let (option, phase, file) = (arguments.next()?, arguments.next()?, arguments.next()?);
    let phase = Phase::from_word(phase.to_str()?)?;
    (option == app::PROBE_OPTION && arguments.next().is_none()).then(|| (phase, file.into()))
}
