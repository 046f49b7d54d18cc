//! `plugins paths`: where plugins are looked for, and what says so.

use std::path::PathBuf;

use paceline_registry::Environment;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PluginsPathsArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// Runs the command.
pub fn run(args: &PluginsPathsArgs, app: &mut App) -> Result<Exit, Failure> {
    let environment = Environment::of_process();
    let directories = app.config()?.plugins.directories_and_sources(&environment);
    let directories: Vec<(PathBuf, String, bool)> = directories
        .into_iter()
        .map(|(path, source)| {
            let exists = path.is_dir();
            (path, source, exists)
        })
        .collect();
    if args.output.json {
        let directories: Vec<Value> = directories
            .iter()
            .map(|(path, source, exists)| json!({ "path": path, "from": source, "exists": exists }))
            .collect();
        let cache = environment.cache_directory();
        app.printer.json(&json!({ "directories": directories, "cache": cache }))?;
    } else {
        let mut columns = Columns::new(&["exists", "directory", "from"], &[]);
        for (path, source, exists) in directories {
            let exists = if exists { "yes" } else { "no" };
            let path = text::name(&path.display().to_string()).into_owned();
            columns.row([exists.to_owned(), path, text::name(&source).into_owned()]);
        }
        columns.print(&mut app.printer, "")?;
    }
    Ok(Exit::Ok)
}
