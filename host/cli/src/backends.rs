//! Picks backends, and checks that settings are for one that is used.

use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::settings::nearest;
use paceline_registry::{Plugin, Registry};

use crate::app::App;
use crate::args::{EngineArgs, SettingArg};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::strategies::HOST;

/// The one backend to run on, and its settings as keys and values. Whether it knows them, it says when it is opened.
pub fn choose(
    registry: &Registry,
    args: &EngineArgs,
) -> Result<(BackendClient, Vec<(String, String)>), Failure> {
    let backend = registry.backend(args.backend.backend.as_deref())?;
    let id = backend.plugin();
    check_settings(registry, &args.backend.set, &[id.to_owned()])?;
    let settings = settings(&backend, args)?;
    Ok((backend, settings))
}

/// The settings of a backend, as keys and values.
pub fn settings(backend: &BackendClient, args: &EngineArgs) -> Result<Vec<(String, String)>, Failure> {
    let id = backend.plugin();
    let mut settings = args.backend.settings_of(id);
    if let Some(threads) = args.threads {
        if settings.iter().any(|(key, _)| key == "threads") {
            let message = format!("`--threads` and `--set {id}.threads` are the same setting");
            return Err(Failure::new(Exit::Usage, message).hint("give one of them"));
        }
        settings.push(("threads".to_owned(), threads.to_string()));
    }
    Ok(settings)
}

/// A setting of a plugin that is not used would have no effect, so it is an error.
pub fn check_settings(registry: &Registry, given: &[SettingArg], used: &[String]) -> Result<(), Failure> {
    for SettingArg { plugin, key, .. } in given {
        if plugin == HOST && !used.contains(plugin) {
            let message = format!("setting `{plugin}.{key}` has no effect: no strategy is used here");
            return Err(Failure::new(Exit::Usage, message));
        }
        if !used.contains(plugin) && registry.find(plugin).is_err() && nearest(plugin, [HOST]).is_some() {
            let message = format!("there is no plugin `{plugin}`");
            return Err(Failure::new(Exit::Usage, message).hint(format!("did you mean `{HOST}`?")));
        }
        if plugin != HOST {
            registry.find(plugin)?;
        }
        if !used.contains(plugin) {
            let message = format!("setting `{plugin}.{key}` has no effect: `{plugin}` is not used here");
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    Ok(())
}

/// What to do about a weight type that the backend in use lacks: which plugin declares it, if one does.
pub fn hint_for_weight_type(id: u32, app: &App) -> String {
    let candidates = app.discover(None);
    let registry = Registry::new().ok();
    let built_in = registry.iter().flat_map(|it| it.plugins()).filter_map(Plugin::descriptor);
    let found = candidates.list().iter().filter_map(|candidate| candidate.descriptor.as_ref());
    let declared = found.chain(built_in).find_map(|descriptor| {
        let kind = descriptor.weight_types.iter().find(|it| it.id == id)?;
        Some((&descriptor.id, &kind.name))
    });
    match declared {
        Some((plugin, name)) => {
            format!("plugin `{plugin}` declares this type as {name}: give `--backend {plugin}`")
        }
        None => "no plugin that is installed declares this type: install the one that the file was made for, or use a \
                 copy quantised to a known type"
            .to_owned(),
    }
}
