//! Picks backends, and checks that settings are for one that is used.

use std::path::PathBuf;

use paceline_plugin_api::client::BackendClient;
use paceline_registry::settings::PluginSet;
use paceline_registry::{Candidate, Candidates, Error, KnownBackend, Plugin, PluginKind, Registry};

use crate::app::{App, among_backends, prober};
use crate::args::SettingArg;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::strategies::HOST;

const SWITCHED_OFF: &str = "switched off";
const NOT_INSTALLED: &str = "not installed";
const NOT_ASKED_FOR: &str = "not asked for, by `--backend` or by `backend` in a file of settings";

/// The backend to run on, and those that do not.
pub struct Chosen {
    /// The backend.
    pub backend: BackendClient,
    /// Ids of the others, and why each runs nothing.
    pub not_used: Vec<(String, String)>,
}

/// The backend that was asked for, or else the first that has a device: of those that the user gave files for, then of
/// those that the files of settings prefer, then of the others that are built in.
pub fn choose(
    registry: &mut Registry,
    candidates: &mut Candidates,
    wanted: Option<&str>,
    plugins: &PluginSet,
) -> Result<Chosen, Failure> {
    let preferred = &plugins.backends;
    let ids = ids(registry, candidates, preferred);
    let mut not_used = Vec::new();
    let mut backend = match wanted {
        Some(id) => Some(load(registry, candidates, id)?),
        None => None,
    };
    let first = backend.as_ref().map(|backend| backend.plugin().to_owned());
    for id in ids.into_iter().filter(|id| Some(id) != first.as_ref()) {
        match &backend {
            Some(chosen) => {
                let reason = not_wanted(registry, candidates, &id, chosen.plugin());
                not_used.push((id, reason));
            }
            // What merely lies in a directory is used where somebody asks for it.
            None if registry.find(&id).is_err() && !preferred.contains(&id) => {
                not_used.push((id, NOT_ASKED_FOR.to_owned()));
            }
            None => match first_with_device(registry, candidates, &id)? {
                Ok(usable) => backend = Some(usable),
                Err(reason) => {
                    if let (true, Some(place)) = (reason == NOT_INSTALLED, plugins.asked_at.get(&id)) {
                        warn_of_missing(&id, &place.to_string());
                    }
                    not_used.push((id, reason));
                }
            },
        }
    }
    match backend {
        Some(backend) => Ok(Chosen { backend, not_used }),
        None => {
            let reasons = not_used.iter().filter(|(_, reason)| reason != NOT_INSTALLED);
            let reasons = reasons.map(|(id, reason)| format!("`{id}`: {reason}")).collect();
            Err(Error::NoBackend { reasons }.into())
        }
    }
}

/// Ids of all backends, those first that come first.
fn ids(registry: &Registry, candidates: &Candidates, preferred: &[String]) -> Vec<String> {
    let backends = || registry.plugins().iter().filter(|plugin| plugin.is_backend());
    let named = backends().filter(|plugin| plugin.origin.path().is_some()).map(Plugin::id);
    let is_backend = |it: &&Candidate| {
        it.descriptor.as_ref().is_some_and(|descriptor| descriptor.kind == PluginKind::Backend)
    };
    let found = candidates.list().iter().filter(is_backend).filter_map(Candidate::id).map(str::to_owned);
    let mut ids: Vec<String> = Vec::new();
    for id in named.chain(preferred.iter().cloned()).chain(backends().map(Plugin::id)).chain(found) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

fn load(registry: &mut Registry, candidates: &mut Candidates, id: &str) -> Result<BackendClient, Failure> {
    // What the user named is there, and is not asked for its devices before it is used.
    if !registry.find(id).is_ok_and(|plugin| plugin.origin.path().is_some()) {
        let loaded = registry.load_backend(candidates, id);
        loaded.map_err(|error| match error {
            Error::Unknown { searched, .. } if KnownBackend::find(id).is_some() => missing(id, &searched),
            error => among_backends(error, registry, candidates).into(),
        })?;
    }
    Ok(registry.backend(Some(id))?)
}

/// A backend was asked for that is known by name, and its plugin is not there: what is missing, and what to do.
fn missing(id: &str, searched: &[PathBuf]) -> Failure {
    let Some(known) = KnownBackend::find(id) else {
        return Failure::new(Exit::Plugin, format!("there is no plugin `{id}`"));
    };
    let message = format!("backend `{id}` cannot be used: no plugin for {} is installed", known.devices);
    let searched = searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let failure = Failure::new(Exit::Plugin, message).detail("searched", searched);
    let install = "install the plugin with `paceline plugins install FILE`";
    let Some(Ok(search)) = prober().map(|prober| known.find_driver(&prober)) else {
        return failure.hint(install);
    };
    let failure = failure.detail("driver", search.text());
    match search.found {
        Some(_) => failure.hint(install),
        None => failure.hint(format!(
            "install {} first, then {}; `paceline doctor` shows both",
            known.driver,
            install.trim_start_matches("install ")
        )),
    }
}

/// A file of a site or a user prefers a backend that is not there.
fn warn_of_missing(id: &str, place: &str) {
    let Some(known) = KnownBackend::find(id) else {
        return tracing::warn!(
            "backend `{id}` is preferred by {place}, and passed over: there is no such plugin"
        );
    };
    let driver = prober().and_then(|prober| known.find_driver(&prober).ok());
    let driver = driver.map_or_else(String::new, |search| format!("; driver: {}", search.text()));
    tracing::warn!(
        "backend `{id}` is preferred by {place}, and passed over: no plugin for {} is installed{driver}",
        known.devices
    );
}

/// A backend that has a device, or why it cannot be used. That a newer file would take the place of a built-in one and
/// cannot is an error.
fn first_with_device(
    registry: &mut Registry,
    candidates: &mut Candidates,
    id: &str,
) -> Result<Result<BackendClient, String>, Failure> {
    let is_there = registry.find(id).is_ok();
    let is_found = candidates.list().iter().any(|candidate| candidate.id() == Some(id));
    if candidates.is_disabled(id) {
        return Ok(Err(SWITCHED_OFF.to_owned()));
    }
    if !is_there && !is_found {
        return Ok(Err(NOT_INSTALLED.to_owned()));
    }
    let backend = match registry.load_backend(candidates, id) {
        Ok(backend) => backend,
        Err(error) if is_there => return Err(error.into()),
        Err(error) => {
            tracing::warn!("backend `{id}` is preferred, and passed over: {error}");
            return Ok(Err(error.to_string()));
        }
    };
    Ok(match backend.devices() {
        Ok(devices) if devices.is_empty() => Err("it has no device".to_owned()),
        Ok(_) => Ok(backend),
        Err(error) => Err(error.to_string()),
    })
}

/// Why a backend was not even tried.
fn not_wanted(registry: &Registry, candidates: &Candidates, id: &str, chosen: &str) -> String {
    if candidates.is_disabled(id) {
        return SWITCHED_OFF.to_owned();
    }
    match candidates.choice(id) {
        Err(error) => error.to_string(),
        Ok(None) if registry.find(id).is_err() => NOT_INSTALLED.to_owned(),
        Ok(_) => format!("`{chosen}` is used"),
    }
}

/// A setting of a plugin that is not used would have no effect, so it is an error.
pub fn check_settings(registry: &Registry, given: &[SettingArg], used: &[String]) -> Result<(), Failure> {
    for setting in given {
        let SettingArg { plugin, .. } = setting;
        let name = setting.name();
        if plugin.is_empty() || plugin == HOST {
            let message = format!("setting `{name}` has no effect: no model is run here");
            return Err(Failure::new(Exit::Usage, message));
        }
        registry.find(plugin)?;
        if !used.contains(plugin) {
            let message = format!("setting `{name}` has no effect: `{plugin}` is not used here");
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
