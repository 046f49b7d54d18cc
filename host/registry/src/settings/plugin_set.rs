//! Which plugins files ask for: what is known before any plugin is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::fault::{Fault, Faults};
use super::files::{ConfigFile, PluginEntry, Strategy};
use crate::{Environment, Pin};

/// The plugins that files ask for together. Where several files have an entry, the strongest file's counts.
#[derive(Clone, Debug)]
pub struct PluginSet {
    /// Backends that are preferred, in order.
    pub backends: Vec<String>,
    /// Strategies.
    pub strategy: Strategy,
    /// Backends to which a run may go when its own fails, in order.
    pub fallback: Vec<String>,
    /// What is wanted of plugins, by id.
    pub pins: BTreeMap<String, Pin>,
    /// Plugins that are switched off.
    pub disabled: BTreeSet<String>,
    directories: Vec<String>,
}

impl PluginSet {
    /// What the files ask for.
    ///
    /// # Errors
    /// A fallback to a backend that is switched off.
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
        Faults::check(faults.collect())?;
        let pins = entries.iter().filter(|(_, it)| !is_off(it)).map(|(id, entry)| {
            let PluginEntry { version, path, sha256, .. } = entry.clone();
            ((*id).to_owned(), Pin { path, sha256, version })
        });
        Ok(Self {
            backends: files.iter().rev().find_map(|file| file.backends.clone()).unwrap_or_default(),
            strategy: files.iter().rev().find_map(|it| it.strategy.clone()).unwrap_or(Strategy::Auto),
            fallback: fallback.into_iter().map(|id| id.it).collect(),
            pins: pins.filter(|(_, pin)| *pin != Pin::default()).collect(),
            directories: files.iter().rev().find_map(|it| it.directories.clone()).unwrap_or_default(),
            disabled,
        })
    }

    /// The directories to search, in order: those of the environment, then those of the files. One that begins with
    /// what this process does not have is left out.
    pub fn directories(&self, environment: &Environment) -> Vec<PathBuf> {
        let named = environment.plugin_directories.iter().flat_map(std::env::split_paths);
        let named = named.filter(|directory| directory.is_absolute());
        named.chain(self.directories.iter().filter_map(|it| environment.expand(it))).collect()
    }
}
