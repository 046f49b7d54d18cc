//! `plugins verify` without a file: whether installed plugins are what they were.

use serde_json::{Value, json};

use crate::app::{App, plugin_store};
use crate::args::OutputArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// Runs the command.
pub fn run(output: &OutputArgs, app: &mut App) -> Result<Exit, Failure> {
    let store = plugin_store()?;
    let checked = store.check()?;
    let wrong = checked.iter().filter(|(_, verdict)| verdict.is_err()).count();
    if output.json {
        let files = checked.iter().map(|(file, verdict)| {
            json!({
                "id": file.id,
                "version": file.version.to_string(),
                "file": store.folder().join(&file.name),
                "sha256": file.sha256,
                "source": file.source,
                "installed": file.installed,
                "ok": verdict.is_ok(),
                "error": verdict.as_ref().err().map(ToString::to_string),
            })
        });
        app.printer.json(&json!({ "ok": wrong == 0, "files": files.collect::<Vec<Value>>() }))?;
    } else if checked.is_empty() {
        app.printer.status(format_args!("no plugin is installed in {}", store.folder().display()));
    } else {
        let mut columns = Columns::new(&["id", "version", "installed", "verdict"], &[]);
        for (file, verdict) in &checked {
            let verdict = verdict.as_ref().map_or_else(ToString::to_string, |()| "unchanged".to_owned());
            columns.row([
                text::name(&file.id).into_owned(),
                file.version.to_string(),
                text::name(&file.installed).into_owned(),
                text::name(&verdict).into_owned(),
            ]);
        }
        columns.print(&mut app.printer, "")?;
        app.printer.flush()?;
    }
    if wrong == 0 {
        return Ok(Exit::Ok);
    }
    let message = format!("{wrong} of {} installed plugins are not what they were", checked.len());
    Err(Failure::new(Exit::Plugin, message).hint(
        "find out why, then install them again with `paceline plugins install FILE --force`, or remove them",
    ))
}
