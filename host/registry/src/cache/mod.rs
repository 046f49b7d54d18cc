//! What came of trying plugins, kept between runs.
//!
//! One JSON file. What it says about a plugin holds while the file, this host, and what the plugin's answer may
//! depend on are the same. Whatever is wrong with the file, it is as if there were none.

mod distrust;
mod fingerprint;
mod marker;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use distrust::Distrusted;
pub(crate) use fingerprint::{FOLDERS, Surroundings, drivers};
pub(crate) use marker::Marker;
use serde::{Deserialize, Serialize};

use crate::identity::{FileIdentity, sha256};
use crate::probe::{Cause, Described, Earlier, Failure, Phase, ProbedDevice, Verdict};

/// 2: which interfaces a strategy offers.
const FORMAT: u32 = 2;
const FILE_NAME: &str = "probes.json";
const LOCK_NAME: &str = "probes.lock";
const HOUR: u64 = 3600;
const FIVE_MINUTES: u64 = 300;

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    format: u32,
    files: BTreeMap<String, Entry>,
}

/// What is known about one file.
#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    identity: FileIdentity,
    /// Whether the file was old enough when it was looked at that any change since then shows in its identity.
    settled: bool,
    sha256: String,
    describe: Option<Kept<Described>>,
    devices: Option<Kept<Vec<ProbedDevice>>>,
    /// The last answer to the question for devices, whatever came after it.
    #[serde(default)]
    found: Option<Found>,
}

/// Devices that were found, and when.
#[derive(Clone, Serialize, Deserialize)]
struct Found {
    seconds: u64,
    devices: Vec<ProbedDevice>,
}

/// A verdict, when it was made, and what it depends on beside the file.
#[derive(Clone, Serialize, Deserialize)]
struct Kept<T> {
    surroundings: String,
    seconds: u64,
    verdict: Verdict<T>,
}

impl<T: Clone> Kept<T> {
    fn new(surroundings: &str, verdict: Verdict<T>) -> Self {
        Self { surroundings: surroundings.to_owned(), seconds: now(), verdict }
    }

    /// The verdict, if it still holds.
    fn get(&self, surroundings: &str) -> Option<Verdict<T>> {
        // A verdict from the future is of a clock that was set back.
        let age = now().checked_sub(self.seconds)?;
        let holds = match &self.verdict {
            Ok(_) => true,
            Err(failure) => lifetime(failure).is_none_or(|lifetime| age < lifetime),
        };
        (holds && self.surroundings == surroundings).then(|| self.verdict.clone())
    }
}

/// Seconds for which a failure holds; `None` for as long as nothing changes.
fn lifetime(failure: &Failure) -> Option<u64> {
    match (&failure.cause, failure.phase) {
        (Cause::Refused { .. }, Phase::Describe) => None,
        // Whatever a driver complains about, a permission say, may be put right at any time.
        (Cause::Refused { .. }, Phase::Devices | Phase::Driver) => Some(0),
        (Cause::TimedOut { .. } | Cause::NotLoadable { .. }, _) => Some(FIVE_MINUTES),
        (Cause::Crashed { .. } | Cause::NoAnswer { .. } | Cause::EndedAnEarlierRun, _) => Some(HOUR),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The verdicts of earlier runs, and those that this one adds.
pub(crate) struct Cache {
    /// `None` keeps nothing.
    folder: Option<PathBuf>,
    stored: Stored,
    changed: Vec<String>,
}

impl Cache {
    /// Reads the verdicts in a folder, which need not exist.
    pub fn open(folder: Option<&Path>) -> Self {
        let stored = folder.map(read).unwrap_or_default();
        let mut cache = Self { folder: folder.map(Path::to_owned), stored, changed: Vec::new() };
        cache.take_culprits();
        cache
    }

    /// Files that were being used when a run ended are not used for a while.
    fn take_culprits(&mut self) {
        let Some(folder) = self.folder.clone() else { return };
        for (path, identity, phase) in marker::culprits(&folder) {
            let failure = Failure::new(phase, Cause::EndedAnEarlierRun);
            let surroundings = Surroundings::Any.text();
            if let Some(entry) = self.entry(&path, identity) {
                match phase {
                    Phase::Describe => entry.describe = Some(Kept::new(&surroundings, Err(failure))),
                    Phase::Devices => entry.devices = Some(Kept::new(&surroundings, Err(failure))),
                    // Nobody marks a driver.
                    Phase::Driver => {}
                }
            }
        }
        self.save();
    }

    /// The verdict on a file, if it still holds.
    pub fn described(
        &mut self,
        path: &Path,
        identity: FileIdentity,
        surroundings: &str,
    ) -> Option<Verdict<Described>> {
        self.known(path, identity)?.describe.as_ref().and_then(|kept| held(kept, surroundings))
    }

    /// The devices that a file's plugin found, if that still holds.
    pub fn devices(
        &mut self,
        path: &Path,
        identity: FileIdentity,
        surroundings: &str,
    ) -> Option<Verdict<Vec<ProbedDevice>>> {
        self.known(path, identity)?.devices.as_ref().and_then(|kept| held(kept, surroundings))
    }

    /// Keeps a verdict.
    pub fn keep_described(
        &mut self,
        path: &Path,
        identity: FileIdentity,
        surroundings: &str,
        verdict: &Verdict<Described>,
    ) {
        if let Some(entry) = self.entry(path, identity) {
            entry.describe = Some(Kept::new(surroundings, verdict.clone()));
        }
    }

    /// Keeps the devices that a file's plugin found.
    pub fn keep_devices(
        &mut self,
        path: &Path,
        identity: FileIdentity,
        surroundings: &str,
        verdict: &Verdict<Vec<ProbedDevice>>,
    ) {
        if let Some(entry) = self.entry(path, identity) {
            entry.devices = Some(Kept::new(surroundings, verdict.clone()));
            if let Ok(devices) = verdict {
                entry.found = Some(Found { seconds: now(), devices: devices.clone() });
            }
        }
    }

    /// The devices that the file's plugin found when it last answered, in whatever surroundings.
    pub fn found(&mut self, path: &Path, identity: FileIdentity) -> Option<Earlier> {
        let found = self.known(path, identity)?.found.as_ref()?;
        // A time in the future is of a clock that was set back.
        let seconds_ago = now().saturating_sub(found.seconds);
        Some(Earlier { seconds_ago, devices: found.devices.clone() })
    }

    /// What is known about a file that is as it was, or has the content that it had.
    fn known(&mut self, path: &Path, identity: FileIdentity) -> Option<&Entry> {
        let name = name_of(path);
        let entry = self.stored.files.get_mut(&name)?;
        if entry.identity != identity || !entry.settled {
            if sha256(path).ok().as_ref() != Some(&entry.sha256) {
                return None;
            }
            entry.identity = identity;
            entry.settled = identity.is_settled();
            self.changed.push(name);
        }
        Some(entry)
    }

    /// SHA-256 of a file: the one that is known, while the file is the same.
    pub fn sha256(&mut self, path: &Path, identity: FileIdentity) -> io::Result<String> {
        match self.known(path, identity) {
            Some(entry) => Ok(entry.sha256.clone()),
            None => sha256(path),
        }
    }

    /// The entry of a file, made anew if the file is another one; `None` if it cannot be read or has changed.
    fn entry(&mut self, path: &Path, identity: FileIdentity) -> Option<&mut Entry> {
        let name = name_of(path);
        if self.known(path, identity).is_none() {
            let settled = identity.is_settled();
            let sha256 = sha256(path).ok()?;
            // The hash must be of the content that the verdict is about.
            fs::metadata(path).ok().filter(|metadata| FileIdentity::of(metadata) == identity)?;
            let entry = Entry { identity, settled, sha256, describe: None, devices: None, found: None };
            self.stored.files.insert(name.clone(), entry);
        }
        self.changed.push(name.clone());
        self.stored.files.get_mut(&name)
    }

    /// Writes what this run added. A folder that cannot be written costs the next run its time, and nothing else.
    pub fn save(&mut self) {
        let Some(folder) = &self.folder else { return };
        if self.changed.is_empty() {
            return;
        }
        match write(folder, &self.stored, &self.changed) {
            Ok(()) => self.changed.clear(),
            Err(error) => {
                tracing::debug!(
                    "what was found out about plugins is not kept in {}: {error}",
                    folder.display()
                );
            }
        }
    }

    /// Plugins that panicked, by the SHA-256 of their files.
    pub fn distrusted(&self) -> BTreeMap<String, Distrusted> {
        self.folder.as_deref().map(distrust::read).unwrap_or_default()
    }

    /// Remembers that the plugin in a file panicked; whether that could be kept.
    pub fn distrust(&self, path: &Path, plugin: Distrusted) -> bool {
        let Some(folder) = &self.folder else { return false };
        let kept = sha256(path).and_then(|sha256| distrust::add(folder, sha256, plugin));
        if let Err(error) = &kept {
            tracing::warn!("that a plugin panicked is not kept in {}: {error}", folder.display());
        }
        kept.is_ok()
    }

    /// Forgets that files of a plugin panicked.
    pub fn trust_again(&self, id: &str) -> io::Result<Vec<Distrusted>> {
        self.folder.as_deref().map_or(Ok(Vec::new()), |folder| distrust::remove(folder, id))
    }

    /// Notes that a plugin is being used, for the time that the marker lives.
    pub fn mark(&self, path: &Path, identity: FileIdentity, phase: Phase) -> Option<Marker> {
        self.folder.as_deref().and_then(|folder| Marker::place(folder, path, identity, phase))
    }
}

/// Forgets all verdicts and markers in a folder. Plugins that panicked stay distrusted: trying them anew would not show
/// that.
///
/// # Errors
/// When a file that is there cannot be removed.
pub fn forget(folder: &Path) -> io::Result<()> {
    marker::forget(folder)?;
    match fs::remove_file(folder.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A culprit is one whatever the surroundings.
fn held<T: Clone>(kept: &Kept<T>, surroundings: &str) -> Option<Verdict<T>> {
    kept.get(&Surroundings::Any.text()).or_else(|| kept.get(surroundings))
}

fn name_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What the folder's file says; nothing if it is not there or makes no sense.
fn read(folder: &Path) -> Stored {
    let stored = fs::read(folder.join(FILE_NAME))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Stored>(&bytes).ok())
        .filter(|stored| stored.format == FORMAT);
    stored.unwrap_or_default()
}

/// Adds the changed entries to what the folder's file says by now.
fn write(folder: &Path, stored: &Stored, changed: &[String]) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);

    make_private(folder)?;
    let lock = File::create(folder.join(LOCK_NAME))?;
    lock.lock()?;
    let mut merged = read(folder);
    merged.format = FORMAT;
    // Files that are gone would stay for ever.
    merged.files.retain(|name, _| Path::new(name).exists());
    for name in changed {
        if let Some(entry) = stored.files.get(name) {
            merged.files.insert(name.clone(), entry.clone());
        }
    }
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{FILE_NAME}.{}-{number}", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(&serde_json::to_vec(&merged)?))
        .and_then(|()| fs::rename(&temporary, folder.join(FILE_NAME)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes a folder that only its owner can look into.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests;
