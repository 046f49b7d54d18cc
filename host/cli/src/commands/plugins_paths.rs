//! `plugins paths`: where plugins are looked for.

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
    let directories: Vec<(PathBuf, bool)> =
        environment.search_directories().into_iter().map(|path| (path.clone(), path.is_dir())).collect();
    if args.output.json {
        let directories: Vec<Value> =
            directories.iter().map(|(path, exists)| json!({ "path": path, "exists": exists })).collect();
        let cache = environment.cache_directory();
        app.printer.json(&json!({ "directories": directories, "cache": cache }))?;
    } else {
        let mut columns = Columns::new(&["exists", "directory"], &[]);
        for (path, exists) in directories {
            let exists = if exists { "yes" } else { "no" };
            columns.row([exists.to_owned(), text::name(&path.display().to_string()).into_owned()]);
        }
        columns.print(&mut app.printer, "")?;
    }
    Ok(Exit::Ok)
}
