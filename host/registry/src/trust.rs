//! Who may have put code into a file: what others can write is not loaded.

use std::fs::Metadata;
use std::path::Path;

use crate::FileFault;

/// Refuses a file that strangers could have written; warns about one that a group could have.
#[cfg(unix)]
pub(crate) fn check(path: &Path, metadata: &Metadata) -> Result<(), FileFault> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    if judge(metadata.mode(), metadata.uid(), user)? == Verdict::GroupWritable {
        let path = path.display();
        tracing::warn!("plugin file {path} can be written by its group; `chmod g-w` if that is not intended");
    }
    Ok(())
}

/// Other systems have no permission bits to look at.
#[cfg(not(unix))]
pub(crate) fn check(_: &Path, _: &Metadata) -> Result<(), FileFault> {
    Ok(())
}

#[cfg(unix)]
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Trusted,
    GroupWritable,
}

#[cfg(unix)]
fn judge(mode: u32, owner: u32, user: u32) -> Result<Verdict, FileFault> {
    const ROOT: u32 = 0;
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;

    if mode & OTHERS_WRITE != 0 {
        return Err(FileFault::WorldWritable { mode: mode & 0o7777 });
    }
    if owner != ROOT && owner != user {
        return Err(FileFault::ForeignOwner { owner, user });
    }
    Ok(if mode & GROUP_WRITES != 0 { Verdict::GroupWritable } else { Verdict::Trusted })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_user_may_own_a_plugin() {
        assert_eq!(judge(0o100_755, 1000, 1000).unwrap(), Verdict::Trusted);
        assert_eq!(judge(0o100_755, 0, 1000).unwrap(), Verdict::Trusted);
        let fault = judge(0o100_755, 1001, 1000).unwrap_err();
        assert_eq!(fault.to_string(), "belongs to user 1001, who is neither you (user 1000) nor root");
        assert!(judge(0o100_755, 1000, 0).is_err(), "root does not run another user's code");
    }

    #[test]
    fn others_must_not_write_and_a_group_is_noted() {
        assert_eq!(judge(0o100_775, 1000, 1000).unwrap(), Verdict::GroupWritable);
        let fault = judge(0o100_757, 1000, 1000).unwrap_err();
        assert!(matches!(fault, FileFault::WorldWritable { mode: 0o757 }), "{fault}");
    }
}
