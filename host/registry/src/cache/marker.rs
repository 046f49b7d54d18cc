//! Notes which plugin is being used, so that the next run knows which one ended this one.
//!
//! A marker is a small file that its maker keeps locked. The system takes the lock away when the process ends, in
//! whatever way; a marker that can be locked is of a process that is gone.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::make_private;
use crate::identity::FileIdentity;
use crate::probe::Phase;

const FOLDER_NAME: &str = "in-use";
const SUFFIX: &str = "json";

#[derive(Serialize, Deserialize)]
struct Note {
    path: PathBuf,
    identity: FileIdentity,
    phase: Phase,
}

/// A plugin is being used while this lives.
pub(crate) struct Marker {
    pub(super) place: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Marker {
    /// Notes that a plugin is being used; `None` if that cannot be written.
    pub fn place(folder: &Path, path: &Path, identity: FileIdentity, phase: Phase) -> Option<Self> {
        let note = Note { path: path.to_owned(), identity, phase };
        Self::write(&folder.join(FOLDER_NAME), &note).ok()
    }

    fn write(folder: &Path, note: &Note) -> io::Result<Self> {
        static MARKERS: AtomicU64 = AtomicU64::new(0);

        make_private(folder)?;
        let number = MARKERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let temporary = folder.join(&name);
        let mut file = File::create(&temporary)?;
        // Locked before it has the name under which others look for it.
        let placed = file.lock().and_then(|()| {
            file.write_all(&serde_json::to_vec(note)?)?;
            let place = folder.join(format!("{name}.{SUFFIX}"));
            fs::rename(&temporary, &place)?;
            Ok(place)
        });
        match placed {
            Ok(place) => Ok(Self { place, _file: file }),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.place);
    }
}

/// The plugins that were being used when their processes ended; their markers are removed.
pub(super) fn culprits(folder: &Path) -> Vec<(PathBuf, FileIdentity, Phase)> {
    markers(folder)
        .filter_map(|place| {
            let mut file = File::open(&place).ok()?;
            file.try_lock().ok()?;
            let mut text = String::new();
            let read = file.read_to_string(&mut text);
            let _ = fs::remove_file(&place);
            read.ok()?;
            let note: Note = serde_json::from_str(&text).ok()?;
            Some((note.path, note.identity, note.phase))
        })
        .collect()
}

/// Removes all markers of processes that are gone.
pub(super) fn forget(folder: &Path) -> io::Result<()> {
    culprits(folder);
    Ok(())
}

fn markers(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(folder.join(FOLDER_NAME)).into_iter().flatten();
    listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == SUFFIX))
}
