//! Holds candidates to what the lock file of the user's plugin folder says.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Candidate, Source, State};
use crate::cache::Cache;
use crate::store::{Choice, Installed, Lock, PluginStore, compare_hashes};
use crate::{Error, FileFault};

/// Notes which candidates were installed, refuses those that have changed since and those of versions that were not
/// chosen, and returns what was decided about plugins.
pub(super) fn obey(list: &mut [Candidate], folder: &Path, cache: &mut Cache) -> BTreeMap<String, Choice> {
    let lock = match PluginStore::new(folder).lock() {
        Ok(lock) => lock,
        Err(error) => {
            refuse_all_in(list, folder, &error);
            return BTreeMap::new();
        }
    };
    for file in &lock.files {
        // A link in the place of the file is followed: what it leads to must have the content.
        let Ok(path) = folder.join(&file.name).canonicalize() else { continue };
        if let Some(candidate) = list.iter_mut().find(|candidate| candidate.path == path) {
            hold_to(candidate, file, cache);
        }
    }
    for candidate in list.iter_mut().filter(|candidate| candidate.source == Source::Found) {
        choose_version(candidate, &lock);
    }
    lock.choices
}

/// Which of these plugins are switched off, and what they held, is not known: they are not used.
fn refuse_all_in(list: &mut [Candidate], folder: &Path, error: &Error) {
    tracing::warn!("what was decided about plugins is not known: {error}");
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for candidate in list.iter_mut().filter(|candidate| candidate.path.parent() == Some(&folder)) {
        candidate.refuse(FileFault::LockFile { problem: error.to_string() });
    }
}

fn hold_to(candidate: &mut Candidate, file: &Installed, cache: &mut Cache) {
    candidate.installed = Some(file.clone());
    let library = match candidate.identity {
        Some(identity) => cache.sha256(&candidate.path, identity),
        None => return,
    };
    let descriptor = file.descriptor_sha256.as_ref().map(|recorded| {
        crate::identity::sha256(&crate::examine::sidecar(&candidate.path)).map(|found| (found, recorded))
    });
    for compared in [Some(library.map(|found| (found, &file.sha256))), descriptor].into_iter().flatten() {
        match compared {
            // Other content is worse than whatever else is wrong with it.
            Ok((found, recorded)) => {
                if let Err(fault) = compare_hashes(&found, recorded) {
                    return candidate.refuse(fault);
                }
            }
            Err(error) => return candidate.refuse(FileFault::io("read it", error)),
        }
    }
}

fn choose_version(candidate: &mut Candidate, lock: &Lock) {
    let Some(descriptor) = &candidate.descriptor else { return };
    let Some(wanted) = lock.choices.get(&descriptor.id).and_then(|choice| choice.version.as_ref()) else {
        return;
    };
    if wanted.matches(&descriptor.version) {
        candidate.chosen = true;
    } else if matches!(candidate.state, State::Usable(_)) {
        candidate.state = State::Refused(Error::NotChosen {
            id: descriptor.id.clone(),
            wanted: wanted.to_string(),
            found: format!("{} has version {}", candidate.path.display(), descriptor.version),
        });
    }
}
