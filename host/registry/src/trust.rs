//! Who may have put code into a file: what others can write is not loaded.

use std::fs::Metadata;
use std::path::Path;

use crate::FileFault;

/// Refuses a file that strangers could have written, or put into its directory; returns a warning for each of the
/// two that a group could have written.
#[cfg(unix)]
pub(crate) fn check(path: &Path, metadata: &Metadata) -> Result<Vec<String>, FileFault> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    let mut warnings = Vec::new();
    if judge(Place::File, metadata.mode(), metadata.uid(), user)? == Verdict::GroupWritable {
        warnings.push(format!(
            "plugin file {} can be written by its group; `chmod g-w` if that is not intended",
            path.display()
        ));
    }
    if let Some(directory) = path.parent() {
        let metadata = std::fs::metadata(directory)
            .map_err(|source| FileFault::io("ask for the owner of its directory", source))?;
        if judge(Place::Directory, metadata.mode(), metadata.uid(), user)? == Verdict::GroupWritable {
            warnings.push(format!(
                "the directory {} of a plugin can be written by its group; `chmod g-w` if that is not intended",
                directory.display()
            ));
        }
    }
    Ok(warnings)
}

/// Refuses a folder that strangers could put files into.
///
/// # Errors
/// Who could; of what lies in such a folder nothing is loaded.
#[cfg(unix)]
pub fn check_folder(folder: &Path) -> Result<(), FileFault> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    let metadata = std::fs::metadata(folder)
        .map_err(|source| FileFault::io("ask for the owner of its directory", source))?;
    judge(Place::Directory, metadata.mode(), metadata.uid(), user).map(|_| ())
}

/// Refuses a folder that strangers could put files into. Other systems have no permission bits to look at.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn check_folder(_: &Path) -> Result<(), FileFault> {
    Ok(())
}

/// Other systems have no permission bits to look at.
#[cfg(not(unix))]
pub(crate) fn check(_: &Path, _: &Metadata) -> Result<Vec<String>, FileFault> {
    Ok(Vec::new())
}

#[cfg(unix)]
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Trusted,
    GroupWritable,
}

#[cfg(unix)]
#[derive(Clone, Copy)]
enum Place {
    File,
    Directory,
}

#[cfg(unix)]
fn judge(place: Place, mode: u32, owner: u32, user: u32) -> Result<Verdict, FileFault> {
    const ROOT: u32 = 0;
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;

    if mode & OTHERS_WRITE != 0 {
        let mode = mode & 0o7777;
        // Also with the sticky bit: strangers could put a library beside the plugin that it asks for.
        return Err(match place {
            Place::File => FileFault::WorldWritable { mode },
            Place::Directory => FileFault::WorldWritableDirectory { mode },
        });
    }
    if owner != ROOT && owner != user {
        return Err(match place {
            Place::File => FileFault::ForeignOwner { owner, user },
            Place::Directory => FileFault::ForeignDirectory { owner, user },
        });
    }
    Ok(if mode & GROUP_WRITES != 0 { Verdict::GroupWritable } else { Verdict::Trusted })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_user_may_own_a_plugin() {
        let file = |mode, owner, user| judge(Place::File, mode, owner, user);
        assert_eq!(file(0o100_755, 1000, 1000).unwrap(), Verdict::Trusted);
        assert_eq!(file(0o100_755, 0, 1000).unwrap(), Verdict::Trusted);
        let fault = file(0o100_755, 1001, 1000).unwrap_err();
        assert_eq!(fault.to_string(), "belongs to user 1001, who is neither you (user 1000) nor root");
        assert!(file(0o100_755, 1000, 0).is_err(), "root does not run another user's code");
        let fault = judge(Place::Directory, 0o040_755, 1001, 1000).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "lies in a directory of user 1001, who is neither you (user 1000) nor root"
        );
    }

    #[test]
    fn others_must_not_write_and_a_group_is_noted() {
        assert_eq!(judge(Place::File, 0o100_775, 1000, 1000).unwrap(), Verdict::GroupWritable);
        let fault = judge(Place::File, 0o100_757, 1000, 1000).unwrap_err();
        assert!(matches!(fault, FileFault::WorldWritable { mode: 0o757 }), "{fault}");
        let fault = judge(Place::Directory, 0o041_777, 0, 1000).unwrap_err();
        assert!(matches!(fault, FileFault::WorldWritableDirectory { mode: 0o1777 }), "{fault}");
    }
}
