//! Whether the drivers that a plugin needs are there.
//!
//! A driver's library runs code when it is loaded, so this is done where a plugin is tried, in a process of its own.

#![allow(unsafe_code)]

use std::path::{Path, PathBuf};

use libloading::Library;

use crate::FileFault;
use crate::cache::FOLDERS;
use crate::descriptor::{Driver, VersionSource};
use crate::error::with_sources;

/// Checks that of every driver a library can be loaded, and that its version will do where that can be told.
pub(crate) fn check(needs: &[Driver]) -> Result<(), FileFault> {
    needs.iter().try_for_each(|driver| {
        let mut problems = Vec::new();
        for library in &driver.libraries {
            match check_library(library, driver) {
                Ok(()) => return Ok(()),
                Err(problem) => problems.push(problem),
            }
        }
        Err(FileFault::Driver {
            libraries: driver.libraries.clone(),
            versions: driver.version.as_ref().map(ToString::to_string),
            problem: clause(problems),
        })
    })
}

/// Why a library of a driver will not do.
enum Problem {
    /// It cannot be loaded; a clause.
    Missing(String),
    /// It has another version.
    Version { library: String, version: String },
}

fn check_library(library: &str, driver: &Driver) -> Result<(), Problem> {
    let loaded = if library.contains('*') { load_any(library) } else { load(library) };
    let name = loaded.map_err(Problem::Missing)?;
    let (Some(range), Some(VersionSource::FileName)) = (&driver.version, driver.version_from) else {
        return Ok(());
    };
    match version_of(&name) {
        Some(version) if !range.contains(&version) => Err(Problem::Version { library: name, version }),
        // A name without a version says nothing.
        _ => Ok(()),
    }
}

/// What is wrong with all libraries of a driver: what is there in another version tells more than what is not there.
fn clause(problems: Vec<Problem>) -> String {
    let is_one = problems.len() == 1;
    let other = problems.iter().find(|problem| matches!(problem, Problem::Version { .. }));
    match other.or(problems.first()) {
        Some(Problem::Version { version, .. }) if is_one => format!("which is here in version {version}"),
        Some(Problem::Version { library, version }) => {
            format!("of which {library} is here in version {version}")
        }
        Some(Problem::Missing(problem)) if is_one => format!("which {problem}"),
        Some(Problem::Missing(problem)) => format!("none of which is here; the first {problem}"),
        None => "of which there is none".to_owned(),
    }
}

/// Loads the library and leaves it loaded: unloading a driver is more than many can take. Returns its file name.
fn load(name: &str) -> Result<String, String> {
    match open(name) {
        Ok(library) => {
            std::mem::forget(library);
            Ok(name.rsplit('/').next().unwrap_or(name).to_owned())
        }
        Err(error) => {
            let text = with_sources(&error);
            Err(format!("cannot be loaded: {}", text.strip_prefix("dlopen failed: ").unwrap_or(&text)))
        }
    }
}

/// Loads a library by its name and tells from which file, if the system says.
pub(crate) fn find(name: &str) -> Result<Option<String>, String> {
    load(name)?;
    Ok(mapped_file(name))
}

/// The file that was mapped for a library: the one with its name, or with a longer version, as `libcuda.so.1` may be a
/// link to `libcuda.so.535.104.05`.
fn mapped_file(name: &str) -> Option<String> {
    let (stem, _) = name.split_once(".so")?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_it = |path: &&str| {
        let file = path.rsplit('/').next().unwrap_or_default();
        let suffix = file.strip_prefix(stem).and_then(|rest| rest.strip_prefix(".so"));
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'))
    };
    paths.find(is_it).map(str::to_owned)
}

/// Loads the first library whose name has the form, by the order of the folders and then of the names.
fn load_any(library: &str) -> Result<String, String> {
    let mut problem = "is in none of the folders that the system's loader usually looks in".to_owned();
    for path in library_folders().iter().flat_map(|folder| matching(folder, library)) {
        match load(&path.to_string_lossy()) {
            Ok(name) => return Ok(name),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Where the loader looks: in the user's folders first. A relative one would depend on the current directory.
fn library_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|folder| folder.is_absolute());
    named.chain(FOLDERS.iter().map(|folder| Path::new("/").join(folder))).collect()
}

fn matching(folder: &Path, library: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits =
        |path: &PathBuf| path.file_name().is_some_and(|it| Driver::is_named(library, &it.to_string_lossy()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
    paths.sort();
    paths
}

#[cfg(unix)]
fn open(name: &str) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library as UnixLibrary, RTLD_LAZY, RTLD_LOCAL};

    // SAFETY: runs the driver's initialisers, in a process that is there for this.
    unsafe { UnixLibrary::open(Some(name), RTLD_LAZY | RTLD_LOCAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(name: &str) -> Result<Library, libloading::Error> {
    // SAFETY: as above.
    unsafe { Library::new(name) }
}

/// The version in the name of the file that a library's name leads to. `None` if the file has no longer version than the
/// name.
fn version_of(name: &str) -> Option<String> {
    let (stem, asked) = name.split_once(".so")?;
    let path = mapped_file(name)?;
    let mapped = path.rsplit('/').next()?.strip_prefix(stem)?.strip_prefix(".so")?;
    let version = mapped.strip_prefix('.').filter(|_| mapped != asked)?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}
