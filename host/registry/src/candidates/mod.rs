//! Every file that may hold a plugin, with what is known about it, before any of them is loaded here.

mod choose;
mod discover;
mod distrusted;
mod installed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Surroundings, drivers};
use crate::descriptor::Descriptor;
use crate::identity::FileIdentity;
use crate::probe::{Cause, Described, Failure, Phase, ProbedDevice, Prober, Verdict};
use crate::store::{Choice, Installed};
use crate::{Error, FileFault, Result, Signatures};

/// Where plugins are looked for, and what is asked of them.
#[derive(Clone, Debug, Default)]
pub struct DiscoverConfig {
    /// Files that the user named.
    pub files: Vec<PathBuf>,
    /// Directories, in order.
    pub directories: Vec<PathBuf>,
    /// What is wanted of plugins, by id.
    pub pins: BTreeMap<String, Pin>,
    /// Ids of plugins that are not used, and not tried either.
    pub disabled: BTreeSet<String>,
    /// What is asked of the signatures of files.
    pub signatures: Signatures,
    /// Tries files in processes of their own; without one, files are not tried before they are loaded.
    pub prober: Option<Prober>,
    /// Where it is kept what came of trying files; `None` keeps nothing.
    pub cache: Option<PathBuf>,
    /// The folder whose lock file is obeyed: which plugins are switched off, which versions are used, and which
    /// content files had when they were installed.
    pub installed: Option<PathBuf>,
}

/// What is wanted of a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pin {
    /// The file that holds it.
    pub path: Option<PathBuf>,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: Option<String>,
    /// Versions that will do.
    pub version: Option<semver::VersionReq>,
}

/// A file that may hold a plugin.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Canonical path, or the path as it was named if there is none.
    pub path: PathBuf,
    /// Why it was looked at.
    pub source: Source,
    /// What the plugin says about itself, as far as it could be read.
    pub descriptor: Option<Descriptor>,
    /// Things to put in order that do not keep it from being used.
    pub warnings: Vec<String>,
    /// What came of it.
    pub state: State,
    /// What the lock file of its folder says about it, if it was installed there.
    pub installed: Option<Installed>,
    /// Its version was chosen, so it is used in the place of a built-in one of whatever version.
    chosen: bool,
    identity: Option<FileIdentity>,
}

/// Why a file was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user named it.
    Named,
    /// It is pinned for the plugin with this id.
    Pinned(String),
    /// It lies in a directory that was searched.
    Found,
}

/// What came of a candidate.
#[derive(Clone, Debug)]
pub enum State {
    /// It can be loaded. `None` if it was not tried.
    Usable(Option<Described>),
    /// Another file is preferred.
    Passed {
        /// The file that is used.
        by: PathBuf,
        /// Why that one.
        reason: &'static str,
    },
    /// Its plugin is switched off.
    Disabled,
    /// It cannot be used.
    Refused(Error),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usable(_) => f.write_str("usable"),
            Self::Passed { by, reason } => write!(f, "not used: {} {reason}", by.display()),
            Self::Disabled => f.write_str("switched off"),
            Self::Refused(Error::NotChosen { wanted, .. }) => {
                write!(f, "not used: version {wanted} was chosen with `plugins use`")
            }
            // The file is named beside it.
            Self::Refused(Error::File { fault, .. }) => write!(f, "refused: {fault}"),
            Self::Refused(error) => write!(f, "refused: {error}"),
        }
    }
}

impl Candidate {
    /// The plugin's id, as far as it could be read.
    pub fn id(&self) -> Option<&str> {
        self.descriptor.as_ref().map(|descriptor| descriptor.id.as_str())
    }

    /// Whether this file in particular is wanted, by the user or by a pin.
    pub fn is_wanted(&self) -> bool {
        self.source != Source::Found
    }

    /// Whether its version was chosen in the lock file.
    pub fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Whether it is used in the place of a built-in plugin of this version, if it is all right.
    pub fn wins_over(&self, built_in: &str) -> bool {
        self.is_wanted() || self.chosen || self.is_newer_than(built_in)
    }

    /// What is wrong with it.
    pub fn error(&self) -> Option<&Error> {
        match &self.state {
            State::Refused(error) => Some(error),
            _ => None,
        }
    }

    fn refuse(&mut self, fault: FileFault) {
        self.state = State::Refused(Error::file(&self.path, fault));
    }

    /// Whether it is what a plugin's id stands for, or should be.
    fn is_for(&self, id: &str) -> bool {
        self.id() == Some(id) || self.source == Source::Pinned(id.to_owned())
    }
}

/// Every file that may hold a plugin, those named first, then in order of the directories.
pub struct Candidates {
    list: Vec<Candidate>,
    searched: Vec<PathBuf>,
    pins: BTreeMap<String, Pin>,
    disabled: BTreeSet<String>,
    choices: BTreeMap<String, Choice>,
    prober: Option<Prober>,
    cache: Cache,
    probes: usize,
}

impl Candidates {
    /// All candidates.
    pub fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// The directories that were searched.
    pub fn searched(&self) -> &[PathBuf] {
        &self.searched
    }

    /// Whether a plugin is switched off, wherever it is.
    pub fn is_disabled(&self, id: &str) -> bool {
        self.disabled.contains(id)
    }

    /// How many files were tried, and not known from an earlier run.
    pub fn probes(&self) -> usize {
        self.probes
    }

    /// Makes sure that every file which the user named can be used.
    ///
    /// # Errors
    /// What is wrong with the first one that cannot.
    pub fn expect_named(&self) -> Result<()> {
        let mut named = self.list.iter().filter(|candidate| candidate.source == Source::Named);
        named.find_map(Candidate::error).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The file that is used for a plugin; `None` if no file is for it.
    ///
    /// # Errors
    /// Why a file cannot be used that is wanted for this plugin, or why none of those can that there are.
    pub fn choice(&self, id: &str) -> Result<Option<&Candidate>> {
        if self.disabled.contains(id) {
            return Err(Error::Disabled(id.to_owned()));
        }
        let own = || self.list.iter().filter(|candidate| candidate.is_for(id));
        if let Some(error) = own().filter(|candidate| candidate.is_wanted()).find_map(Candidate::error) {
            return Err(error.clone());
        }
        if let Some(usable) = own().find(|candidate| matches!(candidate.state, State::Usable(_))) {
            return Ok(Some(usable));
        }
        own().find_map(Candidate::error).map_or(Ok(None), |error| Err(error.clone()))
    }

    /// Whether a plugin that is linked in, in this version, would not be used if the files for it were all right.
    pub(crate) fn would_replace(&self, id: &str, built_in: &str) -> bool {
        // Others were refused before it came to versions.
        let was_picked = |error: &Error| {
            let tried =
                |fault: &FileFault| matches!(fault, FileFault::Probe(_) | FileFault::NotProbed { .. });
            matches!(error, Error::SameVersion { .. })
                || matches!(error, Error::File { fault, .. } if tried(fault))
        };
        let mut refused = self.list.iter().filter(|it| it.is_for(id) && it.error().is_some());
        self.disabled.contains(id)
            || refused.any(|candidate| {
                candidate.is_wanted()
                    || candidate.chosen
                    || (candidate.is_newer_than(built_in) && candidate.error().is_some_and(was_picked))
            })
    }

    /// Whether the plugin that is linked in will do where `version` is its version.
    pub(crate) fn allow_built_in(&self, id: &str, version: &str) -> Result<()> {
        let others = |wanted: &&semver::VersionReq| !version.parse().is_ok_and(|it| wanted.matches(&it));
        let found = format!("the one that is built in has version {version}");
        if let Some(wanted) = self.pins.get(id).and_then(|pin| pin.version.as_ref()).filter(others) {
            return Err(Error::Pin { id: id.to_owned(), wanted: format!("version {wanted}"), found });
        }
        match self.choices.get(id).and_then(|choice| choice.version.as_ref()).filter(others) {
            Some(wanted) => Err(Error::NotChosen { id: id.to_owned(), wanted: wanted.to_string(), found }),
            None => Ok(()),
        }
    }

    /// Tries what devices a backend's file finds, unless that is known. May touch a driver, in another process.
    /// `None` if files are not tried here. A failure tells also what the file found when it last answered.
    ///
    /// # Errors
    /// As [`Candidates::choice`], and when the file cannot be tried.
    pub fn devices(&mut self, id: &str) -> Result<Option<Verdict<Vec<ProbedDevice>>>> {
        let Some(prober) = self.prober.clone().filter(|_| Prober::POSSIBLE) else { return Ok(None) };
        let Some(Candidate { path, identity: Some(identity), descriptor: Some(descriptor), .. }) =
            self.choice(id)?.cloned()
        else {
            return Ok(None);
        };
        let environment = prober.environment();
        let (descriptor, drivers) = (descriptor.text.as_str(), drivers(Path::new("/")));
        let surroundings =
            Surroundings::Drivers { environment: &environment, descriptor, drivers: &drivers }.text();
        let verdict = match self.cache.devices(&path, identity, &surroundings) {
            Some(verdict) => verdict,
            None => {
                self.probes += 1;
                let verdict = prober
                    .probe(Phase::Devices, &path)
                    .map_err(|source| not_probed(&path, &prober, source))?;
                self.cache.keep_devices(&path, identity, &surroundings, &verdict);
                self.cache.save();
                verdict
            }
        };
        let with_earlier = |failure: Failure| match failure.cause {
            // What ended was not a trial; trials may go on finding devices.
            Cause::EndedAnEarlierRun => failure,
            _ => Failure { earlier: self.cache.found(&path, identity).map(Box::new), ..failure },
        };
        Ok(Some(verdict.map_err(with_earlier)))
    }

    /// The ids of plugins that can be loaded.
    pub(crate) fn usable_ids(&self) -> impl Iterator<Item = String> {
        self.list
            .iter()
            .filter(|candidate| matches!(candidate.state, State::Usable(_)))
            .filter_map(|candidate| candidate.id().map(str::to_owned))
    }

    /// The files that were refused, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (PathBuf, String)> {
        self.list.iter().filter_map(|candidate| match candidate.error()? {
            Error::File { fault, .. } => Some((candidate.path.clone(), fault.to_string())),
            error => Some((candidate.path.clone(), error.to_string())),
        })
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl Candidate {
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    /// Whether its version is higher than this one.
    pub(crate) fn is_newer_than(&self, version: &str) -> bool {
        match (&self.descriptor, version.parse::<semver::Version>()) {
            (Some(descriptor), Ok(version)) => descriptor.version > version,
            _ => false,
        }
    }
}

fn not_probed(path: &Path, prober: &Prober, source: std::io::Error) -> Error {
    let program = prober.program().display().to_string();
    Error::file(path, FileFault::NotProbed { program, source: source.into() })
}
