//! `explain`: what a model would run on, with which settings, and why.

use paceline_engine::MemoryPlan;
use paceline_registry::settings::Report;
use paceline_registry::{Candidates, PluginKind, Registry, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::ExplainArgs;
use crate::engine_setup::{Context, Setup};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::strategies::Strategies;
use crate::table::Columns;
use crate::text;

/// Runs the command. Loads no weights.
pub fn run(args: &ExplainArgs, app: &mut App) -> Result<Exit, Failure> {
    let (mut setup, mut context) =
        Setup::with_strategies(&args.model, &args.engine, &args.strategies, args.ctx, app)?;
    let memory = setup.plan(&mut context, app)?;

    let (registry, candidates) = setup.plugins();
    let mut not_used = setup.not_used.iter().cloned().chain(unknown_files(candidates)).collect::<Vec<_>>();
    let mut used: Vec<String> = context.strategies.drafters().into_iter().map(str::to_owned).collect();
    used.extend(context.strategies.rollback().map(str::to_owned));
    let refused = not_used_strategies(registry, candidates, &context.strategies, &used);
    let told = |id: &str| not_used.iter().chain(&refused).any(|(it, _)| it == id);
    let distrusted: Vec<_> = distrusted_files(candidates).filter(|(id, _)| !told(id)).collect();
    not_used.extend(distrusted);
    let fallback = setup.fallback();
    let title = setup.source.to_string();
    let report = Report {
        title: &title,
        facts: &context.resolved.facts,
        resolution: &context.resolved.resolution,
        schema: setup.schema(),
        not_used: &not_used,
        fallback: &fallback,
        strategies: &used,
        refused: &refused,
    };
    let draft = context.strategies.options.draft.as_deref();
    let title = draft.and_then(|gguf| gguf.origins().next()).map(ToString::to_string).unwrap_or_default();
    let drafter = context.resolved.drafter.as_ref().map(|drafter| Report {
        title: &title,
        facts: &drafter.facts,
        resolution: &drafter.resolution,
        not_used: &[],
        fallback: &[],
        strategies: &[],
        refused: &[],
        ..report
    });
    if let Some(key) = &args.why {
        // Its own settings are found by what is true of it.
        let is_own = |it: &Report<'_>| it.resolution.get(key).is_some();
        let why = drafter.as_ref().filter(|it| is_own(it)).unwrap_or(&report).why(key)?;
        app.printer.own_text(why.as_bytes())?;
    } else if args.output.json {
        app.printer.json(&as_json(&report, drafter.as_ref(), &memory, &context))?;
    } else {
        app.printer.own_text(report.text().as_bytes())?;
        app.printer.line("")?;
        if let Some(drafter) = &drafter {
            app.printer.own_text(drafter.text().as_bytes())?;
            app.printer.line("")?;
        }
        print(&memory, app)?;
        app.printer.flush()?;
        context.resolved.notes.iter().for_each(|note| app.printer.warning(note));
    }
    Ok(Exit::Ok)
}

/// Files that are refused, and do not even say for which plugin they are.
fn unknown_files(candidates: &Candidates) -> impl Iterator<Item = (String, String)> {
    let unknown = candidates.list().iter().filter(|candidate| candidate.id().is_none());
    unknown
        .filter(|it| matches!(it.state, State::Refused(_)))
        .map(|candidate| (candidate.path.display().to_string(), candidate.state.to_string()))
}

/// Files that panicked, where another one with their id is used.
fn distrusted_files(candidates: &Candidates) -> impl Iterator<Item = (String, String)> {
    candidates.distrusted().map(|(candidate, plugin)| (plugin.id.clone(), candidate.state.to_string()))
}

/// Strategies that guess or roll back nothing here, each with the reason.
fn not_used_strategies(
    registry: &Registry,
    candidates: &Candidates,
    strategies: &Strategies,
    used: &[String],
) -> Vec<(String, String)> {
    let mut reasons = strategies.left_out.clone();
    reasons.retain(|(id, _)| !candidates.is_disabled(id));
    let is_strategy = |kind: Option<PluginKind>| kind == Some(PluginKind::Strategy);
    let built_in = Registry::new().ok();
    let known = built_in.iter().chain([registry]).flat_map(Registry::plugins);
    let known = known.filter(|it| !it.is_backend()).map(|plugin| plugin.id());
    let found = candidates.list().iter();
    let found = found.filter(|it| is_strategy(it.descriptor.as_ref().map(|descriptor| descriptor.kind)));
    let ids = known.chain(found.filter_map(|candidate| candidate.id().map(str::to_owned)));
    for id in ids {
        if used.contains(&id) || reasons.iter().any(|(known, _)| *known == id) {
            continue;
        }
        let reason = if candidates.is_disabled(&id) {
            "switched off".to_owned()
        } else {
            match candidates.choice(&id) {
                Err(error) => error.to_string(),
                Ok(_) => strategies.why_not(&id),
            }
        };
        reasons.push((id, reason));
    }
    reasons.sort();
    reasons
}

fn print(memory: &MemoryPlan, app: &mut App) -> Result<(), Failure> {
    let mut columns = Columns::new(&["memory", "bytes"], &[1]);
    for row in memory.rows().iter().filter(|row| row.bytes > 0) {
        columns.row([row.what.to_owned(), text::bytes(row.bytes)]);
    }
    columns.row(["all".to_owned(), text::bytes(memory.total())]);
    columns.print(&mut app.printer, "")
}

fn as_json(
    report: &Report<'_>,
    drafter: Option<&Report<'_>>,
    memory: &MemoryPlan,
    context: &Context,
) -> Value {
    let mut json = report.json();
    json["drafter"] = json!(drafter.map(Report::json));
    let rows = memory.rows().iter().map(|row| json!({ "what": row.what, "bytes": row.bytes }));
    json["memory"] = rows.collect();
    json["memory_bytes"] = json!(memory.total());
    json["notes"] = json!(context.resolved.notes);
    json
}
