//! Plugins whose code panicked while a model ran, kept between runs by the hash of their file: another build is another
//! plugin, and a copy of the same one is the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{LOCK_NAME, make_private, now};

const FORMAT: u32 = 1;
const FILE_NAME: &str = "distrusted.json";
/// More than anyone has; the oldest are forgotten.
const MOST: usize = 256;
/// Characters of a message that are kept.
const LONGEST_MESSAGE: usize = 300;

/// A plugin that panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distrusted {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Where the file lay.
    pub path: PathBuf,
    /// When it panicked, in seconds since 1970.
    pub seconds: u64,
    /// What it said, on one line.
    pub message: String,
}

impl Distrusted {
    /// A plugin that panicked now.
    pub(crate) fn now(id: String, version: String, path: PathBuf, message: &str) -> Self {
        // What a plugin's own guard puts in front says nothing new.
        let message = message.strip_prefix("the plugin panicked: ").unwrap_or(message);
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { id, version, path, seconds: now(), message: line.chars().take(LONGEST_MESSAGE).collect() }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    format: u32,
    /// By the SHA-256 of the file.
    plugins: BTreeMap<String, Distrusted>,
}

/// What is known in a folder, by the SHA-256 of the file; nothing if what is kept there makes no sense.
pub(crate) fn read(folder: &Path) -> BTreeMap<String, Distrusted> {
    let stored = fs::read(folder.join(FILE_NAME))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Stored>(&bytes).ok())
        .filter(|stored| stored.format == FORMAT);
    stored.unwrap_or_default().plugins
}

/// Adds a plugin.
pub(crate) fn add(folder: &Path, sha256: String, plugin: Distrusted) -> io::Result<()> {
    change(folder, |plugins| {
        plugins.insert(sha256, plugin);
        while plugins.len() > MOST {
            let oldest = plugins.iter().min_by_key(|(_, it)| it.seconds).map(|(sha256, _)| sha256.clone());
            oldest.map(|sha256| plugins.remove(&sha256));
        }
    })
}

/// Forgets all that is known of a plugin, and returns it.
pub(crate) fn remove(folder: &Path, id: &str) -> io::Result<Vec<Distrusted>> {
    if !read(folder).values().any(|plugin| plugin.id == id) {
        return Ok(Vec::new());
    }
    let mut removed = Vec::new();
    change(folder, |plugins| {
        plugins.retain(|_, plugin| {
            let kept = plugin.id != id;
            if !kept {
                removed.push(plugin.clone());
            }
            kept
        });
    })?;
    Ok(removed)
}

fn change(folder: &Path, change: impl FnOnce(&mut BTreeMap<String, Distrusted>)) -> io::Result<()> {
    make_private(folder)?;
    let lock = File::create(folder.join(LOCK_NAME))?;
    lock.lock()?;
    let mut stored = Stored { format: FORMAT, plugins: read(folder) };
    change(&mut stored.plugins);
    let temporary = folder.join(format!("{FILE_NAME}.{}", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(&serde_json::to_vec(&stored)?))
        .and_then(|()| fs::rename(&temporary, folder.join(FILE_NAME)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(id: &str, seconds: u64) -> Distrusted {
        let plugin = Distrusted::now(id.to_owned(), "1.0.0".to_owned(), "/x.so".into(), "a\n  b");
        Distrusted { seconds, ..plugin }
    }

    #[test]
    fn what_is_added_is_known_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("not/there/yet");
        assert_eq!(remove(&folder, "a").unwrap(), []);
        add(&folder, "00".to_owned(), plugin("a", 1)).unwrap();
        add(&folder, "01".to_owned(), plugin("b", 2)).unwrap();
        add(&folder, "02".to_owned(), plugin("a", 3)).unwrap();
        assert_eq!(read(&folder)["00"].message, "a b");
        assert_eq!(remove(&folder, "a").unwrap(), [plugin("a", 1), plugin("a", 3)]);
        assert_eq!(read(&folder).into_keys().collect::<Vec<_>>(), ["01"]);
    }

    #[test]
    fn the_oldest_are_forgotten_and_damage_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST + 2 {
            add(folder.path(), format!("{number:03}"), plugin("a", number as u64)).unwrap();
        }
        let kept = read(folder.path());
        assert_eq!((kept.len(), kept.keys().next().map(String::as_str)), (MOST, Some("002")));
        fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert!(read(folder.path()).is_empty());
    }
}
