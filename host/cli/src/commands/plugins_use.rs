//! `plugins use`: which version of a plugin is used.

use paceline_registry::Registry;
use paceline_registry::semver::Version;

use super::plugins_switch::expect_known;
use crate::app::{App, plugin_store};
use crate::args::PluginsUseArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command. A choice that nothing meets is an error.
pub fn run(args: &PluginsUseArgs, app: &mut App) -> Result<Exit, Failure> {
    let (store, id) = (plugin_store()?, args.which.id.as_str());
    expect_known(id, app)?;
    let Some(wanted) = args.which.versions.clone() else {
        store.choose(id, None)?;
        app.printer.status(format_args!("the highest version of `{id}` is used"));
        return Ok(Exit::Ok);
    };
    let candidates = app.discover(None);
    let registry = Registry::new()?;
    let own = candidates.list().iter().filter_map(|candidate| candidate.descriptor.as_ref());
    let own = own.filter(|descriptor| descriptor.id == id).map(|descriptor| descriptor.version.clone());
    let built_in = registry.find(id).ok().and_then(|plugin| plugin.client.version().parse::<Version>().ok());
    let mut versions: Vec<Version> = own.chain(built_in).collect();
    versions.sort();
    versions.dedup();
    let Some(chosen) = versions.iter().rev().find(|version| wanted.matches(version)) else {
        let listed: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let message =
            format!("there is no version {wanted} of plugin `{id}`; there is {}", listed.join(", "));
        return Err(
            Failure::new(Exit::Usage, message).hint("install it with `paceline plugins install FILE`")
        );
    };
    store.choose(id, Some(wanted.clone()))?;
    app.printer.status(format_args!("of `{id}`, {wanted} is used: now {chosen}"));
    Ok(Exit::Ok)
}
