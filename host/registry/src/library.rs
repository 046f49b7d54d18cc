//! Opens a plugin file: looks at it, loads it, enters it.

#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use libloading::Library;
use paceline_plugin_api::abi::{ENTRY_SYMBOL, EntryFn};
use paceline_plugin_api::client::PluginClient;

use crate::error::with_sources;
use crate::{FileFault, HOST_TABLE, shared_object, trust};

/// Checks that a canonical path is a file that may be loaded.
pub(crate) fn inspect(path: &Path) -> Result<(), FileFault> {
    let failed = |action| move |source| FileFault::Io { action, source };
    // Asked before opening, because opening a pipe waits for its other end.
    let kind = std::fs::metadata(path).map_err(failed("open it"))?;
    if kind.is_dir() {
        return Err(FileFault::NotAFile("a directory"));
    }
    if !kind.is_file() {
        return Err(FileFault::NotAFile("a pipe or device"));
    }
    let mut file = File::open(path).map_err(failed("open it"))?;
    let metadata = file.metadata().map_err(failed("ask for its owner and length"))?;
    trust::check(path, &metadata)?;
    shared_object::check(&mut file, metadata.len())
}

/// Loads a file that was inspected and enters the plugin in it. The library stays for the life of the process.
pub(crate) fn enter(path: &Path) -> Result<PluginClient, FileFault> {
    let library: &'static Library = Box::leak(Box::new(open(path).map_err(|error| {
        let text = with_sources(&error);
        // The loader names the file, and so does the message that this becomes a part of.
        let text = text.strip_prefix("dlopen failed: ").unwrap_or(&text);
        FileFault::Loader(text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(text).to_owned())
    })?));
    // SAFETY: a symbol of this name is a plugin's entry, of this type, by the ABI.
    let entry: EntryFn =
        *unsafe { library.get::<EntryFn>(ENTRY_SYMBOL.as_bytes()) }.map_err(|_| FileFault::NoPlugin)?;
    // SAFETY: the entry of a library that was leaked above.
    unsafe { PluginClient::enter(entry, &HOST_TABLE) }.map_err(FileFault::Refused)
}

/// Missing symbols show now and not at their first call, and the plugin's own symbols stay its own.
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};

    // SAFETY: runs the library's initialisers. The user named this file, and strangers cannot have written it.
    unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: runs the library's initialisers. The user named this file.
    unsafe { Library::new(path) }
}
