//! Refuses plugins that panicked in an earlier run, until somebody trusts them again.

use super::{Candidate, Candidates, State};
use crate::cache::{Cache, Distrusted};
use crate::identity::FileIdentity;
use crate::{FileFault, Plugin};

/// Refuses the candidates with the content of a plugin that panicked.
pub(super) fn refuse(list: &mut [Candidate], cache: &mut Cache) {
    let distrusted = cache.distrusted();
    if distrusted.is_empty() {
        return;
    }
    for candidate in list.iter_mut().filter(|candidate| matches!(candidate.state, State::Usable(_))) {
        let Some(identity) = candidate.identity else { continue };
        // What cannot be read is found out soon enough.
        let Ok(sha256) = cache.sha256(&candidate.path, identity) else { continue };
        if let Some(plugin) = distrusted.get(&sha256) {
            candidate.refuse(FileFault::Panicked(Box::new(plugin.clone())));
        }
    }
}

impl Candidates {
    /// Remembers that a plugin panicked: from the next start on, its file is not used until somebody trusts it again or it
    /// has other content. False, and nothing is remembered, for a built-in plugin, which is as good as the program that it
    /// is a part of, and where nothing is kept.
    pub fn distrust(&self, plugin: &Plugin, message: &str) -> bool {
        let Some(path) = plugin.origin.path() else { return false };
        let loaded = self.list.iter().find(|candidate| candidate.path == path).and_then(Candidate::identity);
        // What lies there by now may be a build that was put right.
        let is_same =
            |identity| std::fs::metadata(path).is_ok_and(|metadata| FileIdentity::of(&metadata) == identity);
        if loaded.is_some_and(|identity| !is_same(identity)) {
            return false;
        }
        let distrusted = Distrusted::now(plugin.id(), plugin.client.version(), path.to_owned(), message);
        self.cache.distrust(path, distrusted)
    }

    /// Trusts all files of a plugin again that panicked; returns what was known about them.
    ///
    /// # Errors
    /// When what is kept cannot be changed.
    pub fn trust_again(&self, id: &str) -> std::io::Result<Vec<Distrusted>> {
        self.cache.trust_again(id)
    }

    /// The files that are not used as they panicked, and what is known about that.
    pub fn distrusted(&self) -> impl Iterator<Item = (&Candidate, &Distrusted)> {
        self.list.iter().filter_map(|candidate| match candidate.error()? {
            crate::Error::File { fault: FileFault::Panicked(plugin), .. } => Some((candidate, &**plugin)),
            _ => None,
        })
    }
}
