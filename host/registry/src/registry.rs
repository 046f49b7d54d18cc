//! The plugins of this process.

#![allow(unsafe_code)]

use std::path::Path;

use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::backend::DeviceInfo;
use paceline_plugin_api::client::{BackendClient, PluginClient};

use crate::candidates::{Candidate, Candidates, DiscoverConfig};
use crate::examine::examine;
use crate::identity::FileIdentity;
use crate::probe::Phase;
use crate::{Error, FileFault, HOST_TABLE, Origin, Plugin, Result, library};

/// The plugins of this process: those from files in the order in which they were loaded, then the built-in ones in
/// order of their ids. Earlier ones are preferred.
#[derive(Debug)]
pub struct Registry {
    plugins: Vec<Plugin>,
    /// Also those that a file took the place of.
    builtin_ids: Vec<String>,
}

/// The devices of one backend, or why they cannot be listed.
#[derive(Debug)]
pub struct BackendDevices {
    /// Id of the plugin.
    pub plugin: String,
    /// Its devices; a backend without a driver has none.
    pub devices: Result<Vec<DeviceInfo>, paceline_plugin_api::Error>,
}

impl Registry {
    /// Enters all plugins that are linked into this program.
    ///
    /// # Errors
    /// A built-in that refuses this host, or two of the same id: faults of the build.
    pub fn new() -> Result<Self> {
        let mut plugins = paceline_plugin_api::builtins()
            .map(|builtin| {
                // SAFETY: a built-in's entry is a plugin's entry, in this program itself.
                let client =
                    unsafe { PluginClient::enter(builtin.entry, &HOST_TABLE) }.map_err(Error::BuiltIn)?;
                Ok(Plugin::built_in(client))
            })
            .collect::<Result<Vec<_>>>()?;
        // The linker's order means nothing.
        plugins.sort_by_key(Plugin::id);
        if let Some(pair) = plugins.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
            return Err(Error::SameBuiltIn(pair[0].id()));
        }
        let builtin_ids = plugins.iter().map(Plugin::id).collect();
        Ok(Self { plugins, builtin_ids })
    }

    /// Makes sure that the linker kept the plugins which this program was built with: a crate that nothing refers
    /// to is dropped without a word.
    ///
    /// # Errors
    /// The ids that are missing.
    pub fn expect_builtins(&self, ids: &[&str]) -> Result<()> {
        let missing: Vec<String> = ids
            .iter()
            .filter(|id| !self.builtin_ids.iter().any(|builtin| builtin == *id))
            .map(|id| (*id).to_owned())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::MissingBuiltIns { expected: ids.iter().map(|id| (*id).to_owned()).collect(), missing })
    }

    /// Looks at every file that may hold a plugin, and tries those that are new or changed in processes of their own.
    /// Loads nothing in this one, and touches no driver.
    pub fn discover(config: &DiscoverConfig) -> Candidates {
        Candidates::discover(config)
    }

    /// The plugin with that id: the one that is loaded, the file that is used for it, or the built-in one. A file
    /// that was only found takes the place of a built-in if its version is higher.
    ///
    /// # Errors
    /// An unknown id, a file that cannot be used, and any file that the user named and that cannot be used.
    pub fn load(&mut self, candidates: &Candidates, id: &str) -> Result<&Plugin> {
        candidates.expect_named()?;
        let known = self.plugins.iter().position(|plugin| plugin.id() == id);
        if let Some(index) = known
            && self.plugins[index].origin.path().is_some()
        {
            return Ok(&self.plugins[index]);
        }
        let built_in_version = known.map(|index| self.plugins[index].client.version());
        match (candidates.choice(id), built_in_version) {
            (Ok(Some(file)), None) => {
                warn_of_distrusted(candidates, id);
                self.load_candidate(candidates, file)
            }
            (Ok(Some(file)), Some(version)) if file.wins_over(&version) => {
                warn_of_distrusted(candidates, id);
                self.load_candidate(candidates, file)
            }
            (Ok(None), None) => Err(self.unknown(candidates, id)),
            (Err(error), None) => Err(error),
            (Err(error), Some(version)) if candidates.would_replace(id, &version) => Err(error),
            (_, Some(version)) => {
                candidates.allow_built_in(id, &version)?;
                warn_of_distrusted(candidates, id);
                self.find(id)
            }
        }
    }

    /// The backend with that id, after its devices were asked for: first in a process of its own, then here.
    ///
    /// # Errors
    /// As [`Registry::load`]; a plugin that is no backend; one that fails when it is asked for its devices.
    pub fn load_backend(&mut self, candidates: &mut Candidates, id: &str) -> Result<BackendClient> {
        let plugin = self.load(candidates, id)?.clone();
        let backend = self.backend(Some(id))?;
        let Some(path) = plugin.origin.path() else { return Ok(backend) };
        if let Some(Err(failure)) = candidates.devices(id)? {
            return Err(Error::file(path, FileFault::Probe(failure)));
        }
        let identity = candidates.choice(id)?.and_then(Candidate::identity);
        let _marker = identity.and_then(|identity| candidates.cache().mark(path, identity, Phase::Devices));
        backend.devices().map_err(|error| {
            if error.kind == ErrorKind::Panic {
                candidates.distrust(&plugin, &error.message);
            }
            Error::file(path, FileFault::Devices(error))
        })?;
        Ok(backend)
    }

    /// Takes out the built-in plugins that are switched off. What asks for one by its id gets an error that says so.
    pub fn drop_disabled(&mut self, candidates: &Candidates) {
        let is_dropped =
            |plugin: &Plugin| plugin.origin.path().is_none() && candidates.is_disabled(&plugin.id());
        self.plugins.retain(|plugin| !is_dropped(plugin));
    }

    fn load_candidate(&mut self, candidates: &Candidates, candidate: &Candidate) -> Result<&Plugin> {
        let path = &candidate.path;
        let failed = |fault| Error::file(path, fault);
        let identity = std::fs::metadata(path)
            .map(|metadata| FileIdentity::of(&metadata))
            .map_err(|source| failed(FileFault::io("find it", source)))?;
        let descriptor = candidate
            .descriptor
            .as_ref()
            .filter(|_| candidate.identity() == Some(identity))
            .ok_or_else(|| failed(FileFault::Changed))?;
        candidate.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let marker = candidates.cache().mark(path, identity, Phase::Describe);
        let client = library::enter(path, descriptor).map_err(failed)?;
        drop(marker);
        let index = self.insert(Plugin::from_file(client, path.clone(), descriptor.clone()))?;
        Ok(&self.plugins[index])
    }

    fn unknown(&self, candidates: &Candidates, id: &str) -> Error {
        let mut known: Vec<String> =
            self.plugins.iter().map(Plugin::id).chain(candidates.usable_ids()).collect();
        known.sort();
        known.dedup();
        Error::Unknown {
            id: id.to_owned(),
            known,
            searched: candidates.searched().to_vec(),
            refused: candidates.refused().collect(),
        }
    }

    /// Loads the plugin in a shared library, without trying it first, which takes the place of a built-in with the same
    /// id. A file that was loaded already is not loaded again.
    ///
    /// # Errors
    /// A file that is not trusted, not a plugin, or not for this host; an id that another file has.
    pub fn load_file(&mut self, path: impl AsRef<Path>) -> Result<&Plugin> {
        let path = path.as_ref();
        let failed = |fault| Error::file(path, fault);
        let canonical = path.canonicalize().map_err(|source| failed(FileFault::io("find it", source)))?;
        if let Some(index) = self.plugins.iter().position(|it| it.origin.path() == Some(&canonical)) {
            return Ok(&self.plugins[index]);
        }
        let examined = examine(&canonical).map_err(|rejected| failed(rejected.fault))?;
        examined.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let client = library::enter(&canonical, &examined.descriptor).map_err(failed)?;
        let index = self.insert(Plugin::from_file(client, canonical, examined.descriptor))?;
        Ok(&self.plugins[index])
    }

    /// Puts a plugin from a file behind the other files, and returns its place.
    fn insert(&mut self, plugin: Plugin) -> Result<usize> {
        let id = plugin.id();
        if let Some(index) = self.plugins.iter().position(|it| it.id() == id) {
            match (&self.plugins[index].origin, &plugin.origin) {
                (Origin::File(first), Origin::File(second)) => {
                    return Err(Error::SameId { id, first: first.clone(), second: second.clone() });
                }
                (replaced, by) => tracing::info!("plugin `{id}`: {by} takes the place of the one {replaced}"),
            }
            self.plugins.remove(index);
        }
        let index = self.plugins.iter().filter(|it| it.origin.path().is_some()).count();
        self.plugins.insert(index, plugin);
        Ok(index)
    }

    /// All plugins, preferred ones first.
    pub fn plugins(&self) -> &[Plugin] {
        &self.plugins
    }

    /// The plugin with that id.
    ///
    /// # Errors
    /// An unknown id, with those that there are.
    pub fn find(&self, id: &str) -> Result<&Plugin> {
        self.plugins.iter().find(|plugin| plugin.id() == id).ok_or_else(|| Error::Unknown {
            id: id.to_owned(),
            known: self.plugins.iter().map(Plugin::id).collect(),
            searched: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// The backend with that id; for `None`, the first one that has a device.
    ///
    /// # Errors
    /// An unknown id, a plugin that is no backend, or no backend that has a device.
    pub fn backend(&self, id: Option<&str>) -> Result<BackendClient> {
        if let Some(id) = id {
            let plugin = self.find(id)?;
            return plugin
                .client
                .backend()
                .map_err(|error| Error::NotABackend { id: id.to_owned(), reason: error.message });
        }
        let mut reasons = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| plugin.is_backend()) {
            let usable = plugin.client.backend().and_then(|backend| Ok((backend.devices()?.len(), backend)));
            match usable {
                Ok((0, _)) => reasons.push(format!("`{}` has no device", plugin.id())),
                Ok((_, backend)) => return Ok(backend),
                Err(error) => reasons.push(format!("`{}` failed: {error}", plugin.id())),
            }
        }
        Err(Error::NoBackend { reasons })
    }

    /// The devices of every backend. May touch drivers.
    pub fn devices(&self) -> Vec<BackendDevices> {
        let backends = self.plugins.iter().filter(|plugin| plugin.is_backend());
        backends
            .map(|plugin| BackendDevices {
                plugin: plugin.id(),
                devices: plugin.client.backend().and_then(|backend| backend.devices()),
            })
            .collect()
    }
}

/// Another file, or the built-in plugin, is used in the place of one that panicked: that must not go unnoticed.
fn warn_of_distrusted(candidates: &Candidates, id: &str) {
    for (file, plugin) in candidates.distrusted().filter(|(_, plugin)| plugin.id == id) {
        let fault = FileFault::Panicked(Box::new(plugin.clone()));
        tracing::warn!("another version of plugin `{id}` is used, as {} {fault}", file.path.display());
    }
}
