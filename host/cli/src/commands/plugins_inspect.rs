//! `plugins inspect`: all that plugins say about themselves.

use paceline_plugin_api::weight_types::WeightType;
use paceline_registry::Plugin;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::PluginsInspectArgs;
use crate::commands::plugins_list::abi_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::text;

/// Runs the command.
pub fn run(args: &PluginsInspectArgs, app: &mut App) -> Result<Exit, Failure> {
    let candidates = app.discover(None);
    let mut registry = app.with_named(&candidates)?;
    let plugins: Vec<&Plugin> = match &args.id {
        Some(id) => vec![registry.load(&candidates, id)?],
        None => registry.plugins().iter().collect(),
    };
    if args.output.json {
        let plugins: Vec<Value> = plugins.into_iter().map(as_json).collect();
        app.printer.json(&json!({ "plugins": plugins }))?;
    } else if plugins.is_empty() {
        app.printer.status("there are no plugins; load one with `--plugin PATH`");
    } else {
        for (index, plugin) in plugins.into_iter().enumerate() {
            if index > 0 {
                app.printer.line("")?;
            }
            print(plugin, &mut app.printer)?;
        }
    }
    Ok(Exit::Ok)
}

fn print(plugin: &Plugin, printer: &mut Printer) -> Result<(), Failure> {
    let client = &plugin.client;
    let abi = abi_text(&client.abi_range().into());
    printer.line(format_args!("id          {}", text::name(&client.id())))?;
    let roles = roles(plugin);
    let kind = if roles.is_empty() { String::new() } else { format!(", {}", roles.join(" and ")) };
    printer.line(format_args!("kind        {}{kind}", plugin.kind_name()))?;
    printer.line(format_args!("version     {}", text::name(&client.version())))?;
    printer.line(format_args!("abi         {abi}"))?;
    printer.line(format_args!("origin      {}", plugin.origin))?;
    for kind in plugin.weight_types() {
        printer.line(format_args!("weight type {}", weight_type(kind)))?;
    }
    for operation in plugin.descriptor().iter().flat_map(|descriptor| &descriptor.operations) {
        printer.line(format_args!("operation   {operation}"))?;
    }
    printer.line("descriptor")?;
    for line in descriptor(plugin).lines() {
        printer.line(format_args!("  {}", text::without_control(line)).to_string().trim_end())?;
    }
    Ok(())
}

/// What a strategy does.
fn roles(plugin: &Plugin) -> Vec<&'static str> {
    if plugin.is_backend() {
        return Vec::new();
    }
    let drafts = matches!(plugin.client.drafters(), Ok(Some(_))).then_some("drafter");
    let rolls_back = matches!(plugin.client.rollbacks(), Ok(Some(_))).then_some("rollback");
    drafts.into_iter().chain(rolls_back).collect()
}

/// The text, which may stand beside the file and not in the plugin's table.
fn descriptor(plugin: &Plugin) -> String {
    plugin.descriptor().map_or_else(|| plugin.client.descriptor(), |descriptor| descriptor.text.clone())
}

fn weight_type(kind: &WeightType) -> String {
    let WeightType { id, name, elements, bytes } = kind;
    format!("{name}, number {id}: {elements} elements in {bytes} bytes")
}

fn as_json(plugin: &Plugin) -> Value {
    let client = &plugin.client;
    let weight_types = plugin.weight_types().iter().map(
        |kind| json!({ "id": kind.id, "name": kind.name, "elements": kind.elements, "bytes": kind.bytes }),
    );
    json!({
        "id": client.id(),
        "kind": plugin.kind_name(),
        "roles": roles(plugin),
        "version": client.version(),
        "abi": client.abi_range(),
        "file": plugin.origin.path(),
        "weight_types": weight_types.collect::<Vec<_>>(),
        "operations": plugin.descriptor().map(|descriptor| &descriptor.operations),
        "descriptor": descriptor(plugin),
    })
}
