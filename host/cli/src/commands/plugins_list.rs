//! `plugins list`: the plugins at a glance, used or not.

use std::str::FromStr;

use paceline_registry::{Candidate, Candidates, Error, FileFault, Plugin, Registry, Source, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PluginsListArgs;
use crate::builtins::BUILTINS;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// One plugin, or a file that should be one.
struct Row<'a> {
    id: Option<String>,
    kind: Option<String>,
    version: Option<String>,
    abi: Option<[String; 2]>,
    /// `None` for what is built in.
    candidate: Option<&'a Candidate>,
    state: &'static str,
    reason: Option<String>,
}

/// Runs the command. Loads none of the files here.
pub fn run(args: &PluginsListArgs, app: &mut App) -> Result<Exit, Failure> {
    let candidates = app.discover(None);
    let registry = Registry::new()?;
    registry.expect_builtins(BUILTINS)?;
    candidates.expect_named()?;
    let files = candidates.list().iter().map(|candidate| of_file(candidate, &registry));
    let built_in = registry.plugins().iter().map(|plugin| of_built_in(plugin, &candidates));
    let rows: Vec<Row<'_>> = files.chain(built_in).collect();
    if args.output.json {
        let plugins: Vec<Value> = rows.iter().map(as_json).collect();
        app.printer.json(&json!({ "plugins": plugins }))?;
    } else if rows.is_empty() {
        app.printer.status("there are no plugins; load one with `--plugin PATH`");
    } else {
        print(&rows, app)?;
    }
    Ok(Exit::Ok)
}

/// The kind of the plugin in a file, as far as it could be read.
pub fn kind(candidate: &Candidate) -> Option<String> {
    candidate.descriptor.as_ref().map(|descriptor| descriptor.kind.to_string())
}

/// The oldest ABI that the plugin in a file speaks, and the one that it was built with.
pub fn abi(candidate: &Candidate) -> Option<[String; 2]> {
    let descriptor = candidate.descriptor.as_ref()?;
    Some([descriptor.abi.oldest.to_string(), descriptor.abi.built.to_string()])
}

/// Versions of the ABI, the oldest and the one that a plugin was built with, as one text.
pub fn abi_text([oldest, built]: &[String; 2]) -> String {
    if oldest == built { built.clone() } else { format!("{oldest} to {built}") }
}

/// Whether a file is used, in words, and why it is not.
pub fn state(candidate: &Candidate, registry: &Registry) -> (&'static str, Option<String>) {
    match &candidate.state {
        State::Usable(_) if is_left_for_a_built_in(candidate, registry) => {
            ("not used", Some("the built-in one is not older".to_owned()))
        }
        State::Usable(_) => ("usable", None),
        State::Passed { by, reason } => ("not used", Some(format!("{} {reason}", by.display()))),
        State::Disabled => ("switched off", None),
        State::Refused(Error::NotChosen { wanted, .. }) => {
            ("not used", Some(format!("version {wanted} was chosen with `plugins use`")))
        }
        refused @ State::Refused(_) => {
            let text = refused.to_string();
            ("refused", Some(text.strip_prefix("refused: ").unwrap_or(&text).to_owned()))
        }
    }
}

fn of_file<'a>(candidate: &'a Candidate, registry: &Registry) -> Row<'a> {
    let (state, reason) = state(candidate, registry);
    Row {
        id: candidate.id().map(str::to_owned),
        kind: kind(candidate),
        version: candidate.descriptor.as_ref().map(|it| it.version.to_string()),
        abi: abi(candidate),
        candidate: Some(candidate),
        state,
        reason,
    }
}

fn of_built_in<'a>(plugin: &Plugin, candidates: &Candidates) -> Row<'a> {
    let (id, version) = (plugin.id(), plugin.client.version());
    let (oldest, built) = plugin.client.abi_range();
    let (state, reason) = match candidates.choice(&id) {
        _ if candidates.is_disabled(&id) => ("switched off", None),
        Ok(Some(file)) if file.is_wanted() => {
            ("not used", Some(format!("{} was named", file.path.display())))
        }
        Ok(Some(file)) if file.is_chosen() => {
            ("not used", Some(format!("{} was chosen with `plugins use`", file.path.display())))
        }
        Ok(Some(file)) if is_newer(file, &version) => {
            ("not used", Some(format!("{} is newer", file.path.display())))
        }
        Err(_) => match newer_and_refused(candidates, &id, &version) {
            Some(file) => ("not used", Some(format!("{} is newer, and refused", file.path.display()))),
            None => ("usable", None),
        },
        Ok(_) => ("usable", None),
    };
    Row {
        id: Some(id),
        kind: Some(plugin.kind_name()),
        version: Some(version),
        abi: Some([oldest, built]),
        candidate: None,
        state,
        reason,
    }
}

/// The file that would be used in the place of a built-in plugin, had it not failed when it was tried.
fn newer_and_refused<'a>(candidates: &'a Candidates, id: &str, built_in: &str) -> Option<&'a Candidate> {
    let failed = |candidate: &Candidate| match candidate.error() {
        Some(Error::SameVersion { .. }) => true,
        Some(Error::File { fault, .. }) => {
            matches!(fault, FileFault::Probe(_) | FileFault::NotProbed { .. })
        }
        _ => false,
    };
    candidates.list().iter().find(|it| it.id() == Some(id) && is_newer(it, built_in) && failed(it))
}

/// Whether a file was only found, and is not newer than what is built in.
fn is_left_for_a_built_in(candidate: &Candidate, registry: &Registry) -> bool {
    let built_in = candidate.id().and_then(|id| registry.find(id).ok());
    built_in.is_some_and(|it| !candidate.wins_over(&it.client.version()))
}

fn is_newer(candidate: &Candidate, built_in: &str) -> bool {
    fn parse_as<T: FromStr>(_: &T, text: &str) -> Option<T> {
        text.parse().ok()
    }

    candidate.descriptor.as_ref().is_some_and(|descriptor| {
        parse_as(&descriptor.version, built_in).is_some_and(|version| descriptor.version > version)
    })
}

fn print(rows: &[Row<'_>], app: &mut App) -> Result<(), Failure> {
    let mut columns = Columns::new(&["id", "kind", "version", "abi", "origin", "state"], &[]);
    for row in rows {
        let shown = |text: &Option<String>| text.as_deref().map_or("-".into(), text::name).into_owned();
        let abi = row.abi.as_ref().map(abi_text);
        let origin = row.candidate.map_or("built in".to_owned(), |it| it.path.display().to_string());
        let mut state = match &row.reason {
            Some(reason) => format!("{}: {reason}", row.state),
            None => row.state.to_owned(),
        };
        if let Some(installed) = row.candidate.and_then(|it| it.installed.as_ref()) {
            state.push_str(&format!("; installed from {}", installed.source.display()));
        }
        columns.row([
            shown(&row.id),
            shown(&row.kind),
            shown(&row.version),
            shown(&abi),
            text::name(&origin).into_owned(),
            text::name(&state).into_owned(),
        ]);
    }
    columns.print(&mut app.printer, "")?;
    app.printer.flush()?;
    let warnings = rows.iter().filter_map(|row| row.candidate).flat_map(|it| &it.warnings);
    warnings.for_each(|warning| app.printer.warning(text::name(warning)));
    Ok(())
}

fn as_json(row: &Row<'_>) -> Value {
    json!({
        "id": row.id,
        "kind": row.kind,
        "version": row.version,
        "abi": row.abi,
        "file": row.candidate.map(|it| &it.path),
        "source": match row.candidate.map(|it| &it.source) {
            None => "built_in",
            Some(Source::Named) => "named",
            Some(Source::Pinned(_)) => "pinned",
            Some(Source::Found) => "found",
        },
        "state": row.state.replace(' ', "_"),
        "reason": row.reason,
        "installed": row.candidate.and_then(|it| it.installed.as_ref()).map(|it| json!({
            "source": it.source,
            "sha256": it.sha256,
            "time": it.installed,
        })),
        "warnings": row.candidate.map_or(&[][..], |it| &it.warnings),
    })
}
