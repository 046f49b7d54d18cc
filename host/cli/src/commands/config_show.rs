//! `config show`: everything that sets settings, whether it holds or not.

use paceline_registry::settings::Entry;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::ConfigShowArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resolution::Sources;
use crate::table::Columns;
use crate::text;

/// Runs the command.
pub fn run(args: &ConfigShowArgs, app: &mut App) -> Result<Exit, Failure> {
    let (registry, candidates) = app.plugins()?;
    let sources = Sources::new(app.config()?, &registry, &candidates)?;
    let resolver = sources.resolver(&[])?;
    let notes = sources.notes(&resolver);
    if args.output.json {
        let entries: Vec<Value> = resolver.entries().iter().map(as_json).collect();
        app.printer.json(&json!({ "entries": entries, "notes": notes }))?;
        return Ok(Exit::Ok);
    }
    let mut columns = Columns::new(&["setting", "value", "from", "when"], &[]);
    for entry in resolver.entries() {
        let when = entry.when().unwrap_or_else(|| "-".to_owned());
        let cells = [entry.key.clone(), value(entry), entry.source.to_string(), when];
        columns.row(cells.map(|cell| text::name(&cell).into_owned()));
    }
    columns.print(&mut app.printer, "")?;
    app.printer.flush()?;
    notes.iter().for_each(|note| app.printer.warning(text::name(note)));
    Ok(Exit::Ok)
}

fn value(entry: &Entry) -> String {
    entry.value.as_ref().map_or_else(|| "auto".to_owned(), ToString::to_string)
}

fn as_json(entry: &Entry) -> Value {
    json!({ "key": entry.key, "value": entry.value, "from": entry.source, "when": entry.when() })
}
