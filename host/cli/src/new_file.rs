//! Files that commands write. They get their names when they are complete, so that nobody finds half of one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::failure::Failure;

/// A file that is being written under another name in its folder, and removed if it is not finished.
pub struct NewFile {
    path: PathBuf,
    part: PathBuf,
    out: BufWriter<File>,
}

impl NewFile {
    /// Begins the file. One that is there is only replaced, and only at the end, if `replace` says so.
    pub fn create(path: &Path, replace: bool) -> Result<Self, Failure> {
        let shown = path.display();
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(
                Failure::new(Exit::Usage, format!("{shown} is a directory")).hint("give the path of a file")
            );
        };
        // A link that leads nowhere is there too.
        if !replace && path.symlink_metadata().is_ok() {
            return Err(Failure::new(Exit::Usage, format!("{shown} is there already"))
                .hint("give another path, or replace it with `--force`"));
        }
        let mut part_name = OsString::from(".");
        part_name.push(name);
        part_name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(part_name);
        let file = File::create_new(&part).map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), part, out: BufWriter::new(file) })
    }

    /// Gives the complete file its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let mut finish = || {
            self.out.flush()?;
            self.out.get_ref().sync_all()?;
            fs::rename(&self.part, &self.path)
        };
        finish().map_err(|error| unwritable(&self.path, &error))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It is gone if the file got its name.
        let _ = fs::remove_file(&self.part);
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot write {}", path.display())).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"text").unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        NewFile::create(&path, false).unwrap().write_all(b"text").unwrap();
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_file_is_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        assert!(NewFile::create(&path, false).is_err());
        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(NewFile::create(folder.path(), true).is_err());
    }
}
