//! The folder in which a user's plugins are installed: copies, several versions of each side by side, and a lock file
//! that says what they were when they were installed and which of them are used.

mod lock;
mod staging;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lock::LOCK_FILE;
pub(crate) use lock::utc;
pub use lock::{Choice, Installed, Lock};
use staging::Staging;

use crate::examine::{Examined, examine, sidecar};
use crate::identity::sha256;
use crate::probe::{Described, Phase, Prober, Verdict};
use crate::signature::signature_path;
use crate::{Error, FileFault, Result, search, trust};

/// Held by whoever changes the folder.
const MUTEX_FILE: &str = ".plugins.lock.held";
/// A lock file is small.
const LOCK_LIMIT: u64 = 1 << 20;

/// A folder of installed plugins. It need not exist before something is installed.
#[derive(Clone, Debug)]
pub struct PluginStore {
    folder: PathBuf,
}

/// What came of installing a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    /// What the lock file says about it.
    pub file: Installed,
    /// Where it lies.
    pub path: PathBuf,
    /// The same content was installed before; nothing was done.
    pub was_there: bool,
    /// It was not tried, as no prober was given.
    pub untried: bool,
    /// Things to put in order about the file that was copied.
    pub warnings: Vec<String>,
}

impl PluginStore {
    /// The store in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the lock file lies.
    pub fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK_FILE)
    }

    /// What the lock file says; nothing if there is none.
    ///
    /// # Errors
    /// A lock file that cannot be read, that others can write, or that makes no sense.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.lock_path();
        let wrong = |problem: String| Error::LockFile { path: path.clone(), problem };
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::default()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        if !metadata.is_file() || metadata.len() > LOCK_LIMIT {
            return Err(wrong(format!("it is no file of at most {LOCK_LIMIT} bytes")));
        }
        trust::check(&path, &metadata).map_err(|fault| wrong(format!("it {fault}")))?;
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        Lock::parse(&text).map_err(wrong)
    }

    /// The plugin files that an argument stands for: the file itself, or all in a directory that are plugins.
    ///
    /// # Errors
    /// What is not there, a directory without a plugin.
    pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
        let found =
            path.canonicalize().map_err(|source| Error::file(path, FileFault::io("find it", source)))?;
        if !found.is_dir() {
            return Ok(vec![found]);
        }
        let is_plugin = |path: &PathBuf| !matches!(examine(path), Err(rejected) if matches!(rejected.fault, FileFault::NoPlugin));
        let files: Vec<PathBuf> = search::libraries(&found).into_iter().filter(is_plugin).collect();
        if files.is_empty() { Err(Error::NothingToInstall(path.to_owned())) } else { Ok(files) }
    }

    /// Copies a plugin file into the folder. The copy is examined and, with a prober, tried in a process of its own before
    /// it gets its name; versions that were installed earlier stay. `replace` replaces the same version with other content.
    ///
    /// # Errors
    /// A file that cannot be used, and why; the same version with other content; a folder that cannot be written.
    pub fn install(&self, source: &Path, prober: Option<&Prober>, replace: bool) -> Result<Installation> {
        let mut installed = self.install_all(&[source.to_owned()], prober, replace)?;
        installed.pop().ok_or_else(|| Error::NothingToInstall(source.to_owned()))
    }

    /// Installs several files as [`PluginStore::install`] does one: all of them, or none.
    ///
    /// # Errors
    /// As there, for the first file with which something is wrong; two files with the same version of a plugin. The folder
    /// is as it was then.
    pub fn install_all(
        &self,
        sources: &[PathBuf],
        prober: Option<&Prober>,
        replace: bool,
    ) -> Result<Vec<Installation>> {
        let sources = all_examined(sources)?;
        self.holding(|store, mut lock| {
            // Nothing that lies in such a folder is loaded.
            trust::check_folder(&store.folder).map_err(|fault| Error::file(&store.folder, fault))?;
            let staging = Staging::new(&store.folder).map_err(|error| store.failed("write to", error))?;
            let stage = |(source, examined): &(PathBuf, Examined)| {
                store.stage(&staging, &lock, (source, examined), prober, replace)
            };
            let installations = sources.iter().map(stage).collect::<Result<Vec<_>>>()?;
            let new: Vec<&Installed> =
                installations.iter().filter(|it| !it.was_there).map(|it| &it.file).collect();
            for &file in &new {
                lock.files.retain(|other| other.name != file.name);
                lock.files.push(file.clone());
            }
            lock.files.sort_by(|a, b| (&a.id, &a.version).cmp(&(&b.id, &b.version)));
            if !new.is_empty() {
                store.publish(&staging, &new, &lock)?;
            }
            Ok(installations)
        })
    }

    /// Copies a file to where it is tried, unless it is installed already.
    fn stage(
        &self,
        staging: &Staging,
        lock: &Lock,
        (source, Examined { descriptor, warnings, .. }): (&Path, &Examined),
        prober: Option<&Prober>,
        replace: bool,
    ) -> Result<Installation> {
        let refused = |fault| Error::file(source, fault);
        let (id, version) = (descriptor.id.clone(), descriptor.version.clone());
        let name = file_name(&id, &version);
        let staged = staging.path(&name);
        let copied =
            |file: &Path, name: &str| staging.copy(file, name).map_err(|error| self.failed("copy to", error));
        let mut file = Installed {
            sha256: copied(source, &name)?,
            descriptor_sha256: None,
            source: source.to_owned(),
            installed: utc(now()),
            name,
            id,
            version,
        };
        if sidecar(source).is_file() {
            file.descriptor_sha256 = Some(copied(&sidecar(source), &sidecar_name(&file.name))?);
        }
        for (of, name) in
            [(source.to_owned(), file.name.clone()), (sidecar(source), sidecar_name(&file.name))]
        {
            if signature_path(&of).is_file() {
                copied(&signature_path(&of), &signature_name(&name))?;
            }
        }
        let path = self.folder.join(&file.name);
        let is_same = |earlier: &&Installed| {
            (&earlier.sha256, &earlier.descriptor_sha256) == (&file.sha256, &file.descriptor_sha256)
                && check(&self.folder, earlier).is_ok()
        };
        let same = lock.file(&file.name).filter(is_same);
        if let Some(earlier) = same {
            let signatures = [file.name.clone(), sidecar_name(&file.name)].map(|name| signature_name(&name));
            let is_signed_alike = |name: &String| {
                std::fs::read(staging.path(name)).ok() == std::fs::read(self.folder.join(name)).ok()
            };
            if signatures.iter().all(is_signed_alike) {
                let file = earlier.clone();
                return Ok(Installation {
                    file,
                    path,
                    was_there: true,
                    untried: false,
                    warnings: Vec::new(),
                });
            }
        }
        // Another signature of the same file may always come.
        if path.exists() && !replace && same.is_none() {
            return Err(Error::InstalledAlready { id: file.id, version: file.version.to_string(), path });
        }
        // What is tried is what will be used, whatever becomes of the source meanwhile.
        let examined = examine(&staged).map_err(|rejected| refused(rejected.fault))?;
        if (&examined.descriptor.id, &examined.descriptor.version) != (&file.id, &file.version) {
            return Err(refused(FileFault::Changed));
        }
        let tried = try_out(prober, &staged, source)?;
        Ok(Installation { file, path, was_there: false, untried: !tried, warnings: warnings.clone() })
    }

    /// Removes a version of a plugin, or all of them, with what was decided about it; returns what was removed.
    ///
    /// # Errors
    /// What is not installed; a file that cannot be removed.
    pub fn remove(&self, id: &str, version: Option<&semver::Version>) -> Result<Vec<Installed>> {
        self.changing(|store, lock| {
            let is_meant =
                |file: &Installed| file.id == id && version.is_none_or(|version| file.version == *version);
            let (removed, kept): (Vec<_>, Vec<_>) = lock.files.iter().cloned().partition(is_meant);
            if removed.is_empty() {
                return Err(Error::NotInstalled {
                    id: id.to_owned(),
                    version: version.map(ToString::to_string),
                    versions: lock.versions(id).iter().map(ToString::to_string).collect(),
                });
            }
            for file in &removed {
                for name in names(file) {
                    match fs::remove_file(store.folder.join(name)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            return Err(store.failed("remove a file from", error));
                        }
                        _ => {}
                    }
                }
            }
            if !kept.iter().any(|file| file.id == id) {
                lock.choices.remove(id);
            } else if let Some(choice) = lock.choices.get_mut(id) {
                // A choice that nothing is left for would keep the others from being used.
                let chosen = choice.version.clone();
                let is_left = |wanted: &semver::VersionReq| {
                    kept.iter().any(|file| file.id == id && wanted.matches(&file.version))
                };
                choice.version = chosen.filter(is_left);
            }
            lock.files = kept;
            Ok(removed)
        })
    }

    /// Switches a plugin on or off; returns whether that changed anything.
    ///
    /// # Errors
    /// A lock file that cannot be read or written.
    pub fn set_enabled(&self, id: &str, enabled: bool) -> Result<bool> {
        self.changing(|_, lock| {
            let choice = lock.choices.entry(id.to_owned()).or_default();
            let changed = choice.disabled == enabled;
            choice.disabled = !enabled;
            Ok(changed)
        })
    }

    /// Says among which versions of a plugin the highest is used; `None` for all.
    ///
    /// # Errors
    /// A lock file that cannot be read or written.
    pub fn choose(&self, id: &str, version: Option<semver::VersionReq>) -> Result<()> {
        self.changing(|_, lock| {
            lock.choices.entry(id.to_owned()).or_default().version = version;
            Ok(())
        })
    }

    /// Every installed file, and whether it is there and has the content that it had.
    ///
    /// # Errors
    /// A lock file that cannot be read.
    pub fn check(&self) -> Result<Vec<(Installed, std::result::Result<(), FileFault>)>> {
        let lock = self.lock()?;
        Ok(lock.files.into_iter().map(|file| (file.clone(), check(&self.folder, &file))).collect())
    }

    /// Changes the lock file. If `change` fails, nothing is written.
    fn changing<T>(&self, change: impl FnOnce(&Self, &mut Lock) -> Result<T>) -> Result<T> {
        self.holding(|store, mut lock| {
            let before = lock.clone();
            let result = change(store, &mut lock)?;
            if lock != before {
                store.write(&lock).map_err(|error| store.failed("write to", error))?;
            }
            Ok(result)
        })
    }

    /// Does something to the folder with what its lock file says, one process at a time.
    fn holding<T>(&self, work: impl FnOnce(&Self, Lock) -> Result<T>) -> Result<T> {
        let failed = |error| self.failed("write to", error);
        staging::make_private(&self.folder).map_err(failed)?;
        let mutex = File::create(self.folder.join(MUTEX_FILE)).map_err(failed)?;
        mutex.lock().map_err(failed)?;
        staging::sweep(&self.folder);
        work(self, self.lock()?)
    }

    fn write(&self, lock: &Lock) -> io::Result<()> {
        let staging = Staging::new(&self.folder)?;
        staging.write(&lock.text().map_err(io::Error::other)?, LOCK_FILE)?;
        staging.publish(LOCK_FILE)
    }

    /// Gives files their names, the descriptor beside each first (a library without one is no plugin), and the lock file
    /// that knows of them. If one cannot get its name, none does.
    fn publish(&self, staging: &Staging, files: &[&Installed], lock: &Lock) -> Result<()> {
        let failed = |error| self.failed("write to", error);
        let text = lock.text().map_err(|error| failed(io::Error::other(error)))?;
        staging.write(&text, LOCK_FILE).map_err(failed)?;
        let (mut new, old): (Vec<_>, Vec<_>) =
            files.iter().flat_map(|file| names(file)).partition(|name| staging.path(name).exists());
        new.push(LOCK_FILE.to_owned());
        staging.publish_all(&new).map_err(failed)?;
        // What belonged to a file that was replaced says nothing about the one in its place.
        old.iter().for_each(|name| drop(fs::remove_file(self.folder.join(name))));
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Folder { action, path: self.folder.clone(), source: source.into() }
    }
}

/// Files that may be installed, by their canonical paths, each once.
fn all_examined(sources: &[PathBuf]) -> Result<Vec<(PathBuf, Examined)>> {
    let mut all: Vec<(PathBuf, Examined)> = Vec::with_capacity(sources.len());
    for source in sources {
        let failed = |fault| Error::file(source, fault);
        let path = source.canonicalize().map_err(|error| failed(FileFault::io("find it", error)))?;
        if all.iter().any(|(other, _)| *other == path) {
            continue;
        }
        let examined = examine(&path).map_err(|rejected| Error::file(&path, rejected.fault))?;
        let name = |it: &Examined| (it.descriptor.id.clone(), it.descriptor.version.clone());
        if let Some((other, _)) = all.iter().find(|(_, other)| name(other) == name(&examined)) {
            let (id, version) = name(&examined);
            let version = version.to_string();
            return Err(Error::SameVersion { id, version, first: other.clone(), second: path });
        }
        all.push((path, examined));
    }
    Ok(all)
}

/// Whether a file was tried; false if it cannot be.
fn try_out(prober: Option<&Prober>, staged: &Path, source: &Path) -> Result<bool> {
    let Some(prober) = prober.filter(|_| Prober::POSSIBLE) else { return Ok(false) };
    let verdict: Verdict<Described> = prober.probe(Phase::Describe, staged).map_err(|error| {
        let program = prober.program().display().to_string();
        Error::file(source, FileFault::NotProbed { program, source: error.into() })
    })?;
    verdict.map(|_| true).map_err(|failure| Error::file(source, FileFault::Probe(failure)))
}

/// Holds an installed file against its hashes.
fn check(folder: &Path, file: &Installed) -> std::result::Result<(), FileFault> {
    let path = folder.join(&file.name);
    let compare = |path: &Path, recorded: &str| match sha256(path) {
        Ok(found) => compare_hashes(&found, recorded),
        Err(source) => Err(FileFault::io("read it", source)),
    };
    compare(&path, &file.sha256)?;
    file.descriptor_sha256.as_deref().map_or(Ok(()), |recorded| compare(&sidecar(&path), recorded))
}

/// Compares the hash of an installed file with the one that it had.
pub(crate) fn compare_hashes(found: &str, recorded: &str) -> std::result::Result<(), FileFault> {
    if found.eq_ignore_ascii_case(recorded) {
        return Ok(());
    }
    Err(FileFault::ChangedSinceInstalled { found: found.to_owned(), recorded: recorded.to_owned() })
}

/// The name under which a version is kept.
fn file_name(id: &str, version: &semver::Version) -> String {
    format!("{}{id}@{version}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

fn sidecar_name(name: &str) -> String {
    sidecar(Path::new(name)).to_string_lossy().into_owned()
}

fn signature_name(name: &str) -> String {
    signature_path(Path::new(name)).to_string_lossy().into_owned()
}

/// Names of an installed file and of all that may lie beside it, the library last.
fn names(file: &Installed) -> [String; 4] {
    let descriptor = sidecar_name(&file.name);
    [signature_name(&file.name), signature_name(&descriptor), descriptor, file.name.clone()]
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
