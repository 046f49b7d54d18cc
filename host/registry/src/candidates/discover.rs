//! Finds candidates, and tries those that are new or changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{
    Candidate, Candidates, DiscoverConfig, Source, State, choose, distrusted, installed, not_probed,
};
use crate::cache::{Cache, Surroundings};
use crate::examine::{Rejected, examine};
use crate::identity::FileIdentity;
use crate::probe::{Described, Phase, Prober, Verdict};
use crate::{Error, FileFault, SignaturePolicy, Signatures, search};

/// More at once would only get in each other's way, and drivers dislike it.
const AT_ONCE: usize = 4;

/// A file that is to be tried.
struct Untried {
    index: usize,
    identity: FileIdentity,
    surroundings: String,
    path: PathBuf,
}

impl Candidates {
    /// Looks at every file that a configuration speaks of. Loads none of them here, and touches no driver.
    pub(crate) fn discover(config: &DiscoverConfig) -> Self {
        let mut list = Vec::new();
        for path in &config.files {
            add(&mut list, path, Source::Named);
        }
        for (id, pin) in &config.pins {
            if let Some(path) = &pin.path {
                add(&mut list, path, Source::Pinned(id.clone()));
            }
        }
        let searched: Vec<PathBuf> =
            config.directories.iter().filter(|directory| directory.is_absolute()).cloned().collect();
        for path in searched.iter().flat_map(|directory| search::libraries(directory)) {
            add(&mut list, &path, Source::Found);
        }
        let mut cache = Cache::open(config.cache.as_deref());
        let choices = match &config.installed {
            Some(folder) => installed::obey(&mut list, folder, &mut cache),
            None => BTreeMap::new(),
        };
        distrusted::refuse(&mut list, &mut cache);
        check_signatures(&mut list, &config.signatures);
        let switched_off = choices.iter().filter(|(_, choice)| choice.disabled).map(|(id, _)| id.clone());
        let mut candidates = Self {
            list,
            searched,
            pins: config.pins.clone(),
            disabled: config.disabled.iter().cloned().chain(switched_off).collect(),
            choices,
            prober: config.prober.clone(),
            cache,
            probes: 0,
        };
        choose::choose(&mut candidates.list, &config.pins, &candidates.disabled);
        candidates.try_all();
        candidates
    }

    /// Tries the candidates that may be used and are not known from an earlier run.
    fn try_all(&mut self) {
        let Some(prober) = self.prober.clone().filter(|_| Prober::POSSIBLE) else {
            self.refuse_culprits();
            return;
        };
        let environment = prober.environment();
        let mut new = Vec::new();
        for (index, identity) in self.untried() {
            let candidate = &mut self.list[index];
            let descriptor = candidate.descriptor.as_ref().map_or("", |descriptor| &descriptor.text);
            let surroundings = Surroundings::Loading { environment: &environment, descriptor }.text();
            match self.cache.described(&candidate.path, identity, &surroundings) {
                Some(verdict) => take(candidate, verdict),
                None => new.push(Untried { index, identity, surroundings, path: candidate.path.clone() }),
            }
        }
        self.probes += new.len();
        for (file, verdict) in new.iter().zip(probe_all(&prober, &new)) {
            let candidate = &mut self.list[file.index];
            match verdict {
                Ok(verdict) => {
                    self.cache.keep_described(&file.path, file.identity, &file.surroundings, &verdict);
                    take(candidate, verdict);
                }
                Err(source) => candidate.state = State::Refused(not_probed(&file.path, &prober, source)),
            }
        }
        self.cache.save();
    }

    /// Without trials, all that is known of a file is whether it ended an earlier run.
    fn refuse_culprits(&mut self) {
        for (index, identity) in self.untried() {
            let candidate = &mut self.list[index];
            let known = self.cache.described(&candidate.path, identity, &Surroundings::Any.text());
            if let Some(Err(failure)) = known {
                candidate.refuse(FileFault::Probe(failure));
            }
        }
    }

    fn untried(&self) -> Vec<(usize, FileIdentity)> {
        let usable = |candidate: &Candidate| matches!(candidate.state, State::Usable(None));
        let indexed = self.list.iter().enumerate().filter(|(_, candidate)| usable(candidate));
        indexed.filter_map(|(index, candidate)| Some((index, candidate.identity?))).collect()
    }
}

fn take(candidate: &mut Candidate, verdict: Verdict<Described>) {
    match verdict {
        Ok(described) => candidate.state = State::Usable(Some(described)),
        Err(failure) => candidate.refuse(FileFault::Probe(failure)),
    }
}

/// Warns of files that nobody signed who is trusted, or refuses them.
fn check_signatures(list: &mut [Candidate], signatures: &Signatures) {
    for candidate in list.iter_mut().filter(|candidate| matches!(candidate.state, State::Usable(_))) {
        match signatures.check(&candidate.path) {
            Ok(_) => {}
            Err(fault) if signatures.policy == SignaturePolicy::Require => candidate.refuse(fault),
            Err(fault) => {
                candidate.warnings.push(format!("plugin file {} {fault}", candidate.path.display()))
            }
        }
    }
}

/// Looks at a file and adds it, unless it is in the list already or is none of ours.
fn add(list: &mut Vec<Candidate>, path: &Path, source: Source) {
    let found = source == Source::Found;
    let canonical = match path.canonicalize() {
        Ok(canonical) => canonical,
        // A link to nowhere, or a file that went away since the directory was read.
        Err(_) if found => return,
        Err(error) => {
            let state = State::Refused(Error::file(path, FileFault::io("find it", error)));
            return list.push(Candidate {
                path: path.to_owned(),
                source,
                descriptor: None,
                warnings: Vec::new(),
                state,
                installed: None,
                chosen: false,
                identity: None,
            });
        }
    };
    // One file under several names is one candidate.
    let identity = std::fs::metadata(&canonical).ok().map(|metadata| FileIdentity::of(&metadata));
    let is_same = |earlier: &Candidate| {
        earlier.path == canonical
            || matches!((&earlier.identity, &identity), (Some(a), Some(b)) if a.same_file(b))
    };
    if let Some(earlier) = list.iter_mut().find(|earlier| is_same(earlier)) {
        if let (Source::Named, Source::Pinned(_)) = (&earlier.source, &source) {
            earlier.source = source;
        }
        return;
    }
    let mut candidate = Candidate {
        path: canonical,
        source,
        descriptor: None,
        warnings: Vec::new(),
        state: State::Usable(None),
        installed: None,
        chosen: false,
        identity,
    };
    match examine(&candidate.path) {
        Ok(examined) => {
            candidate.identity = Some(examined.identity);
            candidate.descriptor = Some(examined.descriptor);
            candidate.warnings = examined.warnings;
        }
        Err(Rejected { fault: FileFault::NoPlugin, .. }) if found => {
            tracing::debug!("{} is no plugin", candidate.path.display());
            return;
        }
        Err(Rejected { fault, descriptor }) => {
            candidate.descriptor = descriptor.map(|descriptor| *descriptor);
            candidate.refuse(fault);
        }
    }
    list.push(candidate);
}

/// Tries files, some at once, and returns what came of each, in their order.
fn probe_all(prober: &Prober, files: &[Untried]) -> Vec<std::io::Result<Verdict<Described>>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(index) else { return };
            let result = prober.probe(Phase::Describe, &file.path);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..files.len().min(AT_ONCE) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
