//! Tells whether a file is still the one that was looked at.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What the file system says about a file's content without reading it: two equal ones are the same file, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i64,
    /// Also changes when the modification time is set by hand.
    changed_ns: i64,
}

impl FileIdentity {
    #[cfg(unix)]
    pub fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        let nanoseconds = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[cfg(not(unix))]
    pub fn of(metadata: &Metadata) -> Self {
        let since = |time: io::Result<SystemTime>| {
            let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            since.map_or(0, |since| since.as_nanos() as i64)
        };
        Self {
            device: 0,
            inode: 0,
            bytes: metadata.len(),
            modified_ns: since(metadata.modified()),
            changed_ns: since(metadata.created()),
        }
    }

    /// Whether the file is unchanged for so long that a change from now on gets other times. File systems count time
    /// in steps.
    pub fn is_settled(&self) -> bool {
        const STEP: Duration = Duration::from_millis(100);

        let latest = self.modified_ns.max(self.changed_ns).max(0).unsigned_abs();
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .is_ok_and(|now| now.saturating_sub(STEP) > Duration::from_nanos(latest))
    }

    /// Whether two names mean one file, which may have changed in between.
    pub fn same_file(&self, other: &Self) -> bool {
        cfg!(unix) && (self.device, self.inode) == (other.device, other.inode)
    }
}

/// SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 18];
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(count) => hash.update(&block[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hexadecimal(&hash.finalize()))
}

/// SHA-256 of a text, in hexadecimal digits.
pub(crate) fn sha256_of_text(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_file_is_that_of_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).unwrap(), expected);
        assert_eq!(sha256_of_text("abc"), expected);
    }
}
