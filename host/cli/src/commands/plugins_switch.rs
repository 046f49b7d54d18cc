//! `plugins enable` and `plugins disable`: whether a plugin is used at all.

use paceline_registry::{Error, Registry};

use crate::app::{App, plugin_store};
use crate::args::PluginsSwitchArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Runs the command.
pub fn run(args: &PluginsSwitchArgs, enabled: bool, app: &mut App) -> Result<Exit, Failure> {
    let (store, id) = (plugin_store()?, args.id.as_str());
    let is_trusted_again = enabled && trust_again(id, app)?;
    match store.lock()?.choices.get(id) {
        // What was switched off may be gone by now.
        Some(choice) if choice.disabled || !is_trusted_again => {}
        _ if is_trusted_again => return Ok(Exit::Ok),
        _ => expect_known(id, app)?,
    }
    let changed = store.set_enabled(id, enabled)?;
    let done = match (enabled, changed) {
        (true, true) => "is used again",
        (true, false) => "was not switched off",
        (false, true) => "is not used any more",
        (false, false) => "was switched off before",
    };
    app.printer.status(format_args!("`{id}` {done}"));
    Ok(Exit::Ok)
}

/// Trusts files again that panicked; whether there were any.
fn trust_again(id: &str, app: &App) -> Result<bool, Failure> {
    let trusted = app.discover(None).trust_again(id).map_err(|error| {
        Failure::new(Exit::Failed, format!("what is known about `{id}` cannot be changed")).caused_by(&error)
    })?;
    for plugin in &trusted {
        let line = format!("`{id}` {} is trusted again: {}", plugin.version, plugin.path.display());
        app.printer.status(text::name(&line));
    }
    Ok(!trusted.is_empty())
}

/// Makes sure that some plugin has the id, built in or in a file, usable or not.
pub fn expect_known(id: &str, app: &App) -> Result<(), Failure> {
    let candidates = app.discover(None);
    let registry = Registry::new()?;
    let found = candidates.list().iter().filter_map(|candidate| candidate.id().map(str::to_owned));
    let mut known: Vec<String> = registry.plugins().iter().map(|it| it.id()).chain(found).collect();
    if known.iter().any(|known| known == id) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let searched = candidates.searched().to_vec();
    Err(Error::Unknown { id: id.to_owned(), known, searched, refused: Vec::new() }.into())
}
