//! `plugins test`: the conformance suite on a backend, the contract of a strategy.

use std::fs;
use std::path::Path;

use paceline_conformance::suite::{Entry, Outcome, Report, Suite, SuiteOptions, Tally};
use paceline_registry::Plugin;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PluginsTestArgs;
use crate::commands::plugins_test_strategy::{self as strategy, Check, Verdict};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{junit, text};

/// Runs the command.
pub fn run(args: &PluginsTestArgs, app: &mut App) -> Result<Exit, Failure> {
    let file = is_path(&args.backend).then_some(args.backend.as_path());
    let mut candidates = app.discover(file);
    let mut registry = app.with_named(&candidates)?;
    let id = match file {
        Some(_) => candidates.list().first().and_then(|first| first.id()).unwrap_or_default().to_owned(),
        None => args.backend.display().to_string(),
    };
    let plugin = registry.load(&candidates, &id)?;
    if !plugin.is_backend() {
        return test_strategy(args, plugin, app);
    }
    let backend = registry.load_backend(&mut candidates, &id)?;
    let plugin = registry.find(&id)?;
    let options = SuiteOptions {
        settings: settings(args, &id)?,
        groups: args.operation.clone(),
        weight_types: plugin.weight_types().to_vec(),
        weight_type_reader: plugin
            .client
            .weight_types()
            .map_err(|error| Failure::plugin_call(&id, &error))?,
        ..SuiteOptions::default()
    };
    let report = {
        let _working = app.printer.working(format_args!("testing `{id}`"));
        Suite::new(&backend, options).run()
    };
    expect_tested(args, &report)?;
    if let Some(path) = &args.junit {
        fs::write(path, junit::xml(&id, &report)).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write {}", path.display())).caused_by(&error)
        })?;
    }
    if args.output.json {
        let plugin = json!({ "id": id, "version": plugin.client.version(), "file": plugin.origin.path() });
        app.printer.json(&as_json(&plugin, &report))?;
    } else {
        for line in report.to_string().lines() {
            app.printer.line(text::without_control(line))?;
        }
    }
    Ok(if report.failed() == 0 { Exit::Ok } else { Exit::Failed })
}

/// What can be tested of a strategy without a model.
fn test_strategy(args: &PluginsTestArgs, plugin: &Plugin, app: &mut App) -> Result<Exit, Failure> {
    let id = plugin.id();
    let option = if args.operation.is_empty() { "--junit" } else { "--operation" };
    if !args.operation.is_empty() || args.junit.is_some() {
        let message = format!("`{option}` is for backends; `{id}` is a strategy");
        return Err(Failure::new(Exit::Usage, message));
    }
    let checks = strategy::run(plugin, &settings(args, &id)?);
    let failed = checks.iter().filter(|check| matches!(check.verdict, Verdict::Failed(_))).count();
    if args.output.json {
        app.printer.json(&json!({
            "plugin": { "id": id, "version": plugin.client.version(), "file": plugin.origin.path() },
            "ok": failed == 0,
            "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
        }))?;
    } else {
        for check in &checks {
            let (word, reason) = words(&check.verdict);
            let line =
                format!("{word:7}  {}{}", check.name, reason.map_or(String::new(), |it| format!(": {it}")));
            app.printer.line(text::name(&line))?;
        }
    }
    app.printer.flush()?;
    let comparison = match plugin.client.drafters() {
        Ok(Some(_)) => format!("--strategy none,{id}"),
        _ => "--strategy none,auto --ab speculation.rollback=replay,snapshots".to_owned(),
    };
    app.printer.status(format_args!(
        "that is the contract, without a model; `paceline bench MODEL {comparison}` shows on a model what it gains, and \
         that texts stay the same"
    ));
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
}

fn words(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::Passed => ("passed", None),
        Verdict::Failed(what) => ("failed", Some(what)),
        Verdict::Skipped(reason) => ("skipped", Some(reason)),
    }
}

fn check_json(check: &Check) -> Value {
    let (word, reason) = words(&check.verdict);
    json!({ "check": check.name, "result": word, "reason": reason })
}

/// An id has neither separators nor dots.
fn is_path(backend: &Path) -> bool {
    backend.components().count() != 1 || backend.to_string_lossy().contains(['.', '/'])
}

fn settings(args: &PluginsTestArgs, id: &str) -> Result<Vec<(String, String)>, Failure> {
    if let Some(other) = args.set.iter().find(|setting| setting.plugin != id) {
        let message = format!(
            "setting `{}.{}` has no effect: `{}` is not used here",
            other.plugin, other.key, other.plugin
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(args.set.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect())
}

/// An operation without a case is a name that was typed wrong. If the device cannot be opened, no operation has one.
fn expect_tested(args: &PluginsTestArgs, report: &Report) -> Result<(), Failure> {
    let has_cases = |name: &String| report.entries().iter().any(|entry| entry.group == *name);
    match args.operation.iter().find(|name| !has_cases(name)) {
        Some(name) if report.failed() == 0 => {
            let message = format!("the suite has no operation and no part of the contract `{name}`");
            Err(Failure::new(Exit::Usage, message).hint("run it without `--operation` to see their names"))
        }
        _ => Ok(()),
    }
}

fn as_json(plugin: &Value, report: &Report) -> Value {
    let operations: Vec<Value> = report
        .groups()
        .into_iter()
        .map(|group| {
            let mut counts = counts(report.tally(group));
            counts["name"] = json!(group);
            counts
        })
        .collect();
    json!({
        "plugin": plugin,
        "ok": report.failed() == 0,
        "operations": operations,
        "total": counts(report.total()),
        "failures": report.failures().map(case).collect::<Vec<_>>(),
        "refusals": report.refusals().map(case).collect::<Vec<_>>(),
    })
}

fn counts(tally: Tally) -> Value {
    json!({
        "passed": tally.passed,
        "failed": tally.failed,
        "refused": tally.refused,
        "worst_error_of_tolerance": tally.worst,
    })
}

fn case(entry: &Entry) -> Value {
    let reason = match &entry.outcome {
        Outcome::Passed { .. } => None,
        Outcome::Failed { what: text } | Outcome::Refused { reason: text } => Some(text),
    };
    json!({ "operation": entry.group, "case": entry.case, "reason": reason })
}
