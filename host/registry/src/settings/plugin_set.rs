//! Which plugins files ask for: what is known before any plugin is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::fault::{Fault, Faults};
use super::files::{ConfigFile, Placed, PluginEntry, Strategy};
use super::source::{Layer, Place};
use crate::search::SEARCH_VARIABLE;
use crate::{Environment, Pin, SignaturePolicy, Signatures};

/// The plugins that files ask for together. Where several files have an entry, the strongest file's counts.
#[derive(Clone, Debug, Default)]
pub struct PluginSet {
    /// Backends that are preferred, in order.
    pub backends: Vec<String>,
    /// Where a site or a user asks for them, by id; nothing for those that only the shipped file names.
    pub asked_at: BTreeMap<String, Place>,
    /// Strategies.
    pub strategy: Strategy,
    /// Rollback strategies that are preferred, in order.
    pub rollbacks: Vec<String>,
    /// Backends to which a run may go when its own fails, in order.
    pub fallback: Vec<String>,
    /// What is wanted of plugins, by id.
    pub pins: BTreeMap<String, Pin>,
    /// Plugins that are switched off.
    pub disabled: BTreeSet<String>,
    /// What is asked of the signatures of plugin files.
    pub signatures: Signatures,
    directories: Vec<Placed<String>>,
}

impl PluginSet {
    /// What the files ask for.
    ///
    /// # Errors
    /// A fallback to a backend that is switched off; signatures that are asked for where no key is trusted.
    pub fn of(files: &[ConfigFile]) -> Result<Self, Faults> {
        let mut files: Vec<&ConfigFile> = files.iter().collect();
        files.sort_by_key(|file| file.layer);
        let mut entries: BTreeMap<&str, PluginEntry> = BTreeMap::new();
        for (id, entry) in files.iter().flat_map(|file| &file.plugins) {
            let merged = entries.entry(id).or_default();
            let entry = entry.clone();
            // Another file means that the hash of the earlier one does not count.
            if entry.path.is_some() {
                merged.sha256 = None;
            }
            merged.version = entry.version.or(merged.version.take());
            merged.enabled = entry.enabled.or(merged.enabled);
            merged.path = entry.path.or(merged.path.take());
            merged.sha256 = entry.sha256.or(merged.sha256.take());
        }
        let is_off = |entry: &PluginEntry| entry.enabled == Some(false);
        let disabled = entries.iter().filter(|(_, it)| is_off(it)).map(|(id, _)| (*id).to_owned());
        let disabled: BTreeSet<String> = disabled.collect();
        let fallback = files.iter().rev().find_map(|file| file.fallback.clone()).unwrap_or_default();
        let faults = fallback.iter().filter(|id| disabled.contains(&id.it));
        let faults = faults.map(|id| {
            Fault::at(&id.place, format!("`fallback` has `{}`, which another file switches off", id.it))
        });
        let policy = files.iter().rev().find_map(|file| file.signatures.clone());
        let keys = files.iter().rev().find_map(|file| file.keys.clone()).unwrap_or_default();
        let in_vain = policy.iter().filter(|it| it.it != SignaturePolicy::Off && keys.is_empty()).map(|it| {
            Fault::at(&it.place, "signatures are asked for, and no key is trusted: name some in `keys`")
        });
        Faults::check(faults.chain(in_vain).collect())?;
        let pins = entries.iter().filter(|(_, it)| !is_off(it)).map(|(id, entry)| {
            let PluginEntry { version, path, sha256, .. } = entry.clone();
            ((*id).to_owned(), Pin { path, sha256, version })
        });
        let named = files.iter().rev().find(|file| file.backends.is_some());
        let backends = named.and_then(|file| file.backends.clone()).unwrap_or_default();
        let is_asked = named.is_some_and(|file| file.layer != Layer::Shipped);
        let asked = backends.iter().filter(|_| is_asked);
        Ok(Self {
            signatures: Signatures { policy: policy.map(|it| it.it).unwrap_or_default(), keys },
            asked_at: asked.map(|id| (id.it.clone(), id.place.clone())).collect(),
            backends: backends.into_iter().map(|id| id.it).collect(),
            strategy: files.iter().rev().find_map(|it| it.strategy.clone()).unwrap_or(Strategy::Auto),
            rollbacks: files
                .iter()
                .rev()
                .find_map(|file| file.rollbacks.clone())
                .into_iter()
                .flatten()
                .map(|id| id.it)
                .collect(),
            fallback: fallback.into_iter().map(|id| id.it).collect(),
            pins: pins.filter(|(_, pin)| *pin != Pin::default()).collect(),
            directories: files.iter().rev().find_map(|it| it.directories.clone()).unwrap_or_default(),
            disabled,
        })
    }

    /// The directories to search, in order: those of the environment, then those of the files. One that begins with
    /// what this process does not have is left out.
    pub fn directories(&self, environment: &Environment) -> Vec<PathBuf> {
        self.directories_and_sources(environment).into_iter().map(|(directory, _)| directory).collect()
    }

    /// The same, with where each comes from: the variable, or a place in a file.
    pub fn directories_and_sources(&self, environment: &Environment) -> Vec<(PathBuf, String)> {
        let named = environment.plugin_directories.iter().flat_map(std::env::split_paths);
        let named = named.filter(|directory| directory.is_absolute());
        let named = named.map(|directory| (directory, SEARCH_VARIABLE.to_owned()));
        let of_files = self.directories.iter();
        let of_files = of_files.filter_map(|it| Some((environment.expand(&it.it)?, it.place.to_string())));
        named.chain(of_files).collect()
    }
}
