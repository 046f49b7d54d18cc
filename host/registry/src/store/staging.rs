//! Puts files into a folder complete or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity::sha256;

/// Begins the names of such folders.
const PREFIX: &str = ".new-";

/// A folder inside the one where files shall go, for files that are not complete or not tried yet. It is removed with all
/// that is left in it.
pub(super) struct Staging {
    folder: PathBuf,
    here: PathBuf,
}

impl Staging {
    /// Makes one that only its owner can write. Searches do not look into it.
    pub fn new(folder: &Path) -> io::Result<Self> {
        static STAGINGS: AtomicU64 = AtomicU64::new(0);

        let number = STAGINGS.fetch_add(1, Ordering::Relaxed);
        let here = folder.join(format!("{PREFIX}{}-{number}", std::process::id()));
        make_private(&here)?;
        Ok(Self { folder: folder.to_owned(), here })
    }

    /// The place of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.here.join(name)
    }

    /// Copies a file into it and returns the SHA-256 of what was written.
    pub fn copy(&self, source: &Path, name: &str) -> io::Result<String> {
        let path = self.path(name);
        let mut file = create_private(&path)?;
        io::copy(&mut File::open(source)?, &mut file)?;
        file.sync_all()?;
        sha256(&path)
    }

    /// Writes a text into it.
    pub fn write(&self, text: &str, name: &str) -> io::Result<()> {
        let mut file = create_private(&self.path(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Moves a file to its place, over one that is there.
    pub fn publish(&self, name: &str) -> io::Result<()> {
        fs::rename(self.path(name), self.folder.join(name))?;
        // The name lasts too. Not every file system can be asked for that.
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// Files that lay in the places of others, until all have theirs.
const REPLACED: &str = "replaced-";

impl Staging {
    /// Moves files to their places, all or none: what was moved goes back, and what it replaced comes back, when one cannot
    /// be moved.
    pub fn publish_all(&self, names: &[String]) -> io::Result<()> {
        for (index, name) in names.iter().enumerate() {
            let moved = self.set_aside(name).and_then(|()| self.publish(name));
            if let Err(error) = moved {
                // The one that failed may have been set aside; those after it were not touched.
                names[..=index].iter().rev().for_each(|name| self.take_back(name));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Keeps a file that will be replaced.
    fn set_aside(&self, name: &str) -> io::Result<()> {
        let (place, aside) = (self.folder.join(name), self.path(&format!("{REPLACED}{name}")));
        if !place.exists() {
            return Ok(());
        }
        // Not every file system has links. A part of a file must never come back in place of the whole.
        fs::hard_link(&place, &aside)
            .or_else(|_| fs::copy(&place, &aside).map(drop))
            .inspect_err(|_| drop(fs::remove_file(&aside)))
    }

    /// Puts back what was in a file's place, as far as that is possible.
    fn take_back(&self, name: &str) {
        let place = self.folder.join(name);
        if !self.path(name).exists() {
            let _ = fs::rename(&place, self.path(name));
        }
        let _ = fs::rename(self.path(&format!("{REPLACED}{name}")), place);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.here);
    }
}

/// Removes what processes left behind that ended while they changed the folder. For whoever holds it alone.
pub(super) fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // What cannot be removed is in nobody's way.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// A new file that its owner can write and others can read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    options.open(path)
}

/// Makes a folder that only its owner can write, whatever the process's mask is.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One file is new, one replaces another, and of the last the place is taken by a folder.
    #[test]
    fn all_files_get_their_names_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let content = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let names = ["new", "old", "taken"].map(str::to_owned);
        fs::write(folder.join("old"), "before").unwrap();
        fs::create_dir_all(folder.join("taken/by")).unwrap();
        let staged = || {
            let staging = Staging::new(folder).unwrap();
            names.iter().for_each(|name| staging.write("after", name).unwrap());
            staging
        };
        staged().publish_all(&names).unwrap_err();
        assert_eq!((content("new"), content("old").as_deref()), (None, Some("before")));
        fs::remove_dir_all(folder.join("taken")).unwrap();
        staged().publish_all(&names).unwrap();
        assert!(names.iter().all(|name| content(name).as_deref() == Some("after")));
        // Nothing is left of the places in between.
        assert_eq!(fs::read_dir(folder).unwrap().count(), names.len());
    }
}
