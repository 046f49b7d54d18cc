//! Loads a plugin file and enters it.

#![allow(unsafe_code)]

use std::path::Path;

use libloading::Library;
use paceline_plugin_api::abi::{ENTRY_SYMBOL, EntryFn};
use paceline_plugin_api::client::PluginClient;

use crate::descriptor::{AbiVersion, Descriptor};
use crate::error::with_sources;
use crate::{FileFault, HOST_TABLE};

/// Loads a file that was examined, enters the plugin in it, and checks that it is what its descriptor says. The
/// library stays for the life of the process.
pub(crate) fn enter(path: &Path, descriptor: &Descriptor) -> Result<PluginClient, FileFault> {
    let library: &'static Library = Box::leak(Box::new(open(path).map_err(|error| {
        let text = with_sources(&error);
        // The loader names the file, and so does the message that this becomes a part of.
        let text = text.strip_prefix("dlopen failed: ").unwrap_or(&text);
        FileFault::Loader(text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(text).to_owned())
    })?));
    // SAFETY: a symbol of this name is a plugin's entry, of this type, by the ABI.
    let entry: EntryFn = *unsafe { library.get::<EntryFn>(ENTRY_SYMBOL.as_bytes()) }
        .map_err(|_| FileFault::NoEntry { others: Vec::new() })?;
    // SAFETY: the entry of a library that was leaked above.
    let client = unsafe { PluginClient::enter(entry, &HOST_TABLE) }.map_err(FileFault::Refused)?;
    compare(&client, descriptor)?;
    Ok(client)
}

/// Checks that the loaded plugin is what its descriptor says: choices were made by the descriptor.
fn compare(client: &PluginClient, descriptor: &Descriptor) -> Result<(), FileFault> {
    let (oldest, built) = client.abi_range();
    let abi = |version: AbiVersion| version.to_string();
    let table_kind = match client.kind() {
        code if code == descriptor.kind.code() => descriptor.kind.to_string(),
        other => format!("number {other}"),
    };
    let compared = [
        ("id", descriptor.id.clone(), client.id()),
        ("version", descriptor.version.to_string(), client.version()),
        ("kind", descriptor.kind.to_string(), table_kind),
        ("oldest ABI", abi(descriptor.abi.oldest), oldest),
        ("ABI", abi(descriptor.abi.built), built),
    ];
    match compared.into_iter().find(|(_, descriptor, table)| descriptor != table) {
        // What a table holds may be anything; it is shown on one line.
        Some((what, descriptor, table)) => {
            let table = table.chars().take(80).collect::<String>().escape_debug().to_string();
            Err(FileFault::Mismatch { what, descriptor, table })
        }
        None => Ok(()),
    }
}

/// Missing symbols show now and not at their first call, and the plugin's own symbols stay its own.
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};

    // SAFETY: runs the library's initialisers. Strangers cannot have written this file.
    unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: runs the library's initialisers.
    unsafe { Library::new(path) }
}
