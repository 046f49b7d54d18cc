//! `plugins list`: the plugins at a glance.

use serde_json::{Value, json};

use crate::app::App;
use crate::args::PluginsListArgs;
use crate::commands::plugins_inspect::abi_range;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// Runs the command.
pub fn run(args: &PluginsListArgs, app: &mut App) -> Result<Exit, Failure> {
    let registry = app.registry()?;
    let plugins = registry.plugins();
    if args.output.json {
        let plugins: Vec<Value> = plugins
            .iter()
            .map(|plugin| {
                json!({
                    "id": plugin.id(),
                    "kind": plugin.kind_name(),
                    "version": plugin.client.version(),
                    "abi": plugin.client.abi_range(),
                    "file": plugin.origin.path(),
                })
            })
            .collect();
        app.printer.json(&json!({ "plugins": plugins }))?;
    } else if plugins.is_empty() {
        app.printer.status("there are no plugins; load one with `--plugin PATH`");
    } else {
        let mut columns = Columns::new(&["id", "kind", "version", "abi", "origin"], &[]);
        for plugin in plugins {
            columns.row([
                text::name(&plugin.id()).into_owned(),
                plugin.kind_name(),
                text::name(&plugin.client.version()).into_owned(),
                abi_range(plugin),
                plugin.origin.to_string(),
            ]);
        }
        columns.print(&mut app.printer, "")?;
    }
    Ok(Exit::Ok)
}
