//! `config schema`: all settings that there are.

use crate::app::App;
use crate::args::ConfigSchemaArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resolution;
use crate::table::Columns;
use crate::text;

/// Runs the command.
pub fn run(args: &ConfigSchemaArgs, app: &mut App) -> Result<Exit, Failure> {
    let (registry, candidates) = app.plugins()?;
    let schema = resolution::schema(&registry, &candidates)?;
    if args.output.json {
        app.printer.json(&schema.as_json())?;
        return Ok(Exit::Ok);
    }
    let mut columns = Columns::new(&["setting", "default", "takes", "variable"], &[]);
    for setting in schema.settings() {
        let takes = format!("{} {}", setting.takes, setting.unit);
        let cells = [setting.key.clone(), setting.default_text(), takes, setting.variable()];
        columns.row(cells.map(|cell| text::name(cell.trim_end()).into_owned()));
    }
    columns.print(&mut app.printer, "")?;
    Ok(Exit::Ok)
}
