//! `bench`: what strategies gain, measured.
//!
//! - `prompts` reads what is continued, `arms` what is compared;
//! - `lanes` has an engine for each arm, `measure` runs them in turns, `widths` times runs of several rows;
//! - `model` is the data of a benchmark: runs, the machine, the cost of verifying;
//! - `statistics` has medians and intervals, `summary` applies them to the runs of an arm;
//! - `overview` shows the main figures on a terminal;
//! - `tables` puts everything into tables, which `markdown` and `html` write; `plots` draws for `html`;
//! - `csv` and `json` write everything for programs.

mod arms;
mod csv;
#[cfg(test)]
mod example;
mod html;
mod json;
mod lanes;
mod markdown;
mod measure;
mod model;
mod overview;
mod plots;
mod prompts;
mod statistics;
mod summary;
mod tables;
mod widths;

use std::io::Write;
use std::path::Path;

use crate::app::App;
use crate::args::{BenchArgs, StrategyChoice};
use crate::engine_setup::{Setup, open_draft};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::new_file::NewFile;
use lanes::Lane;
use measure::Task;
use model::{Machine, Report};

/// Runs the command.
pub fn run(args: &BenchArgs, app: &mut App) -> Result<Exit, Failure> {
    let prompts = match args.prompts.as_slice() {
        [] => prompts::built_in(args.limit),
        files => prompts::read(files, args.limit)?,
    };
    let choices = &args.strategy.0;
    let setup = Setup::for_choices(&args.model, &args.engine, None, choices, args.draft.as_deref(), app)?;
    let draft = open_draft(args.draft.as_deref())?;
    let tasks = prompts.iter().map(|prompt| Task::new(prompt, &setup)).collect::<Result<Vec<_>, _>>()?;
    let context = context(&tasks, args, &setup)?;

    let auto = if choices.contains(&StrategyChoice::Auto) {
        lanes::what_auto_is(&setup, draft.as_ref(), context, app)?
    } else {
        Vec::new()
    };
    let axes = [args.ab.as_slice(), &args.sweep].concat();
    let arms =
        arms::arms(&args.strategy, &auto, &axes).map_err(|problem| Failure::new(Exit::Usage, problem))?;
    let plans = lanes::plan(&setup, arms, context, draft.as_ref())?;

    // Files that cannot be written are found out before hours of measuring.
    let csv_file = new_file(args.csv.as_deref())?;
    let html_file = new_file(args.html.as_deref())?;
    let interrupt = Interrupt::watch()?;
    let mut report = Report {
        machine: machine(&setup, plans.first().map_or(&[], |plan| plan.context.of_backend())),
        arms: plans.iter().map(|plan| plan.name.clone()).collect(),
        ..Report::default()
    };
    let with_drafters =
        plans.iter().rev().find(|plan| !plan.context.strategies.drafters().is_empty()).cloned();
    let lanes = plans.into_iter().map(|plan| Lane::new(plan, &setup, app));
    let mut lanes = lanes.collect::<Result<Vec<_>, _>>()?;
    interrupt.heed();
    let measured = measure::measure(args, &setup, &tasks, &mut lanes, &interrupt, &mut report, app);
    lanes.iter().for_each(|lane| setup.remember_panics(&lane.engine));
    let complete = measured?;
    let in_rounds = widths::in_rounds(&lanes);
    // Their memory is needed for another engine.
    drop(lanes);
    if let Some(plan) = with_drafters.filter(|_| complete) {
        report.verify_cost = widths::measure(plan, &setup, &tasks, &interrupt, app)?;
        for cost in &mut report.verify_cost {
            cost.in_rounds_seconds = in_rounds.get(cost.rows as usize).copied().flatten();
        }
    }
    if report.runs.is_empty() {
        return Ok(Exit::Interrupted);
    }
    write(csv_file, || csv::csv(&report))?;
    write(html_file, || html::html(&report))?;
    if args.output.json {
        app.printer.json(&json::json(&report))?;
    } else if args.md {
        app.printer.own_text(markdown::markdown(&report).as_bytes())?;
    } else {
        overview::print(&report, app)?;
    }
    Ok(if interrupt.requested() { Exit::Interrupted } else { Exit::Ok })
}

/// Positions that the longest text takes.
fn context(tasks: &[Task<'_>], args: &BenchArgs, setup: &Setup) -> Result<u32, Failure> {
    let trained = setup.model.shape().context;
    // Measuring how long runs of several rows take needs some room too.
    let longest = tasks.iter().max_by_key(|task| task.ids.len());
    let tokens = longest.map_or(0, |task| task.ids.len()) + args.tokens as usize;
    match u32::try_from(tokens) {
        Ok(tokens) if tokens <= trained => Ok(tokens.saturating_add(widths::ROOM).min(trained)),
        _ => {
            let name = longest.map_or("", |task| task.prompt.name.as_str());
            let message = format!(
                "prompt `{name}` and {} more tokens are {tokens}, the model was trained for {trained}",
                args.tokens
            );
            Err(Failure::new(Exit::Usage, message)
                .hint("give shorter prompts, or fewer tokens with `--tokens`"))
        }
    }
}

fn new_file(path: Option<&Path>) -> Result<Option<NewFile>, Failure> {
    path.map(|path| NewFile::create(path, true)).transpose()
}

fn write(file: Option<NewFile>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(mut file) = file else { return Ok(()) };
    file.write_all(text().as_bytes())
        .map_err(|error| Failure::new(Exit::Failed, "cannot write a report").caused_by(&error))?;
    file.finish()
}

fn machine(setup: &Setup, settings: &[(String, String)]) -> Machine {
    let (cpu, threads) = setup.device(settings);
    Machine {
        os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu,
        threads,
        model: setup.source.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(std::env::args().skip(1)),
    }
}

/// The command line, fit to be typed again.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let quoted = arguments.map(|argument| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,+=:@%".contains(&byte);
        if !argument.is_empty() && argument.bytes().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    ["paceline".to_owned()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_typed_again() {
        let arguments = ["bench", "demo", "--strategy", "none,mtp-chain", "a b", "it's", ""];
        assert_eq!(
            command_line(arguments.into_iter().map(str::to_owned)),
            r"paceline bench demo --strategy none,mtp-chain 'a b' 'it'\''s' ''"
        );
    }
}
