//! Picks backends, and checks that settings are for one that is used.

use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;

use crate::args::{BackendArgs, EngineArgs, SettingArg};
use crate::exit::Exit;
use crate::failure::Failure;

/// The one backend to run on, and its settings as keys and values. Whether it knows them, it says when it is opened.
pub fn choose(
    registry: &Registry,
    args: &EngineArgs,
) -> Result<(BackendClient, Vec<(String, String)>), Failure> {
    let backend = registry.backend(args.backend.backend.as_deref())?;
    let id = backend.plugin();
    check_settings(registry, &args.backend, &[id.to_owned()])?;
    let mut settings = args.backend.settings_of(id);
    if let Some(threads) = args.threads {
        if settings.iter().any(|(key, _)| key == "threads") {
            let message = format!("`--threads` and `--set {id}.threads` are the same setting");
            return Err(Failure::new(Exit::Usage, message).hint("give one of them"));
        }
        settings.push(("threads".to_owned(), threads.to_string()));
    }
    Ok((backend, settings))
}

/// A setting of a plugin that is not used would have no effect, so it is an error.
pub fn check_settings(registry: &Registry, args: &BackendArgs, used: &[String]) -> Result<(), Failure> {
    for SettingArg { plugin, key, .. } in &args.set {
        registry.find(plugin)?;
        if !used.contains(plugin) {
            let message = format!("setting `{plugin}.{key}` has no effect: `{plugin}` is not used here");
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    Ok(())
}
