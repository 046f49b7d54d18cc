//! What can be wrong with a plugin file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use paceline_plugin_api::abi::ENTRY_SYMBOL;

use crate::KnownBackend;
use crate::cache::Distrusted;
use crate::descriptor::AbiRange;
use crate::probe::Failure;
use crate::shared_object::DESCRIPTOR_SECTION;
use crate::store::utc;

/// What to do about a lock file that cannot be used.
pub(crate) const LOCK_FILE_HINT: &str = "put it right, or remove it and install the plugins again";

/// What is wrong with a plugin file. The text goes on from the file's name.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// A directory, pipe or device was named.
    #[error("is {0}, not a file")]
    NotAFile(&'static str),
    /// Everyone may write the file.
    #[error("can be written by every user of this machine (mode {mode:04o}), so it may be anyone's code")]
    WorldWritable {
        /// Permission bits.
        mode: u32,
    },
    /// Everyone may put files beside it.
    #[error("lies in a directory that every user of this machine can write (mode {mode:04o})")]
    WorldWritableDirectory {
        /// Permission bits of the directory.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error("belongs to user {owner}, who is neither you (user {user}) nor root")]
    ForeignOwner {
        /// Numeric id of the owner.
        owner: u32,
        /// Numeric id of this process's user.
        user: u32,
    },
    /// The file's directory belongs to another user.
    #[error("lies in a directory of user {owner}, who is neither you (user {user}) nor root")]
    ForeignDirectory {
        /// Numeric id of the owner.
        owner: u32,
        /// Numeric id of this process's user.
        user: u32,
    },
    /// The bytes are something other than a shared library.
    #[error("is not a shared library: {0}")]
    NotALibrary(String),
    /// The file ends too early.
    #[error("is cut short: it needs {needed} bytes and has {found}")]
    CutShort {
        /// Bytes that its own tables speak of.
        needed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A library for another machine.
    #[error("is built for {found}, and this program for {wanted}")]
    OtherMachine {
        /// What the file is for.
        found: String,
        /// What this program is for.
        wanted: &'static str,
    },
    /// A library with neither a descriptor nor an entry.
    #[error(
        "is a shared library but no Paceline plugin: it has no section `{DESCRIPTOR_SECTION}` and no symbol `{ENTRY_SYMBOL}`"
    )]
    NoPlugin,
    /// A library with an entry that does not say what it is.
    #[error(
        "has a plugin's entry but no descriptor: there is neither a section `{DESCRIPTOR_SECTION}` in it nor {} beside it",
        sidecar.display()
    )]
    NoDescriptor {
        /// Where the descriptor could have been.
        sidecar: PathBuf,
    },
    /// The descriptor cannot be used.
    #[error("{0}")]
    Descriptor(String),
    /// The descriptor beside the file may be anyone's.
    #[error("has a descriptor beside it, {}, that {fault}", path.display())]
    Sidecar {
        /// The descriptor's file.
        path: PathBuf,
        /// What is wrong with that.
        fault: Box<FileFault>,
    },
    /// A library without the entry symbol.
    #[error("has no symbol `{ENTRY_SYMBOL}`{}", other_entries(others))]
    NoEntry {
        /// Entry symbols for other versions.
        others: Vec<String>,
    },
    /// The plugin and this host have no version of the ABI in common.
    #[error("speaks ABI {plugin}, this host {}: they have no version in common", AbiRange::HOST)]
    OtherAbi {
        /// What the plugin speaks.
        plugin: AbiRange,
    },
    /// The processor is not one that the plugin was compiled for.
    #[error("is compiled for features that this processor or system lacks: {}", features(lacking, unknown))]
    CpuFeatures {
        /// What the processor, or the operating system, does not have.
        lacking: Vec<String>,
        /// Names that mean nothing on this processor.
        unknown: Vec<String>,
    },
    /// The system's loader refused, most often because of a library that the plugin needs.
    #[error("cannot be loaded: {0}")]
    Loader(String),
    /// A driver is not there, or not in a version that will do.
    #[error("needs {}{}, {problem}", named(libraries), of_versions(versions.as_deref()))]
    Driver {
        /// The libraries of which one would do.
        libraries: Vec<String>,
        /// Versions that will do.
        versions: Option<String>,
        /// What is wrong, as a relative clause.
        problem: String,
    },
    /// The plugin and this host do not understand each other.
    #[error("{0}")]
    Refused(paceline_plugin_api::Error),
    /// The loaded plugin is not what the descriptor says.
    #[error("says in its descriptor that its {what} is `{descriptor}`, and when loaded that it is `{table}`")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What the descriptor says.
        descriptor: String,
        /// What the table of the loaded plugin says.
        table: String,
    },
    /// The plugin did not survive being tried in a process of its own.
    #[error("{0}")]
    Probe(Failure),
    /// The plugin reported an error when it was asked for its devices.
    #[error("fails when it is asked for its devices: {0}")]
    Devices(paceline_plugin_api::Error),
    /// The file could not be tried.
    #[error("cannot be tried in a process of its own: {program}: {source}")]
    NotProbed {
        /// The program that tries plugins.
        program: String,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The file is not signed by anyone who is trusted, where that is required.
    #[error("{problem}")]
    Signature {
        /// What is wrong, as a clause that goes on from the file's name.
        problem: String,
    },
    /// The same file panicked when it was used.
    #[error("is not trusted any more: version {} panicked at {} ({})", .0.version, utc(.0.seconds), .0.message)]
    Panicked(Box<Distrusted>),
    /// The file changed since it was tried.
    #[error("has changed since it was tried")]
    Changed,
    /// The file's content is not what is pinned.
    #[error("has the SHA-256 {found}, and {wanted} is pinned")]
    OtherContent {
        /// Hash of the file.
        found: String,
        /// Hash of the pin.
        wanted: String,
    },
    /// An installed file has other content than it had.
    #[error("has the SHA-256 {found}, and had {recorded} when it was installed")]
    ChangedSinceInstalled {
        /// Hash of the file.
        found: String,
        /// Hash in the lock file.
        recorded: String,
    },
    /// What was decided about the plugins in the file's folder cannot be read.
    #[error("is not used, as {problem}")]
    LockFile {
        /// What is wrong, as a clause.
        problem: String,
    },
    /// A file that is pinned for one plugin holds another.
    #[error("holds the plugin `{found}`, and is pinned for `{wanted}`")]
    OtherPlugin {
        /// What it holds.
        found: String,
        /// What it should hold.
        wanted: String,
    },
}

impl FileFault {
    pub(crate) fn io(action: &'static str, source: io::Error) -> Self {
        Self::Io { action, source: Arc::new(source) }
    }

    /// What to do about it, if there is something to say.
    pub(crate) fn hint(&self, path: &str) -> Option<String> {
        Some(match self {
            Self::Io { .. } | Self::NotProbed { .. } | Self::Devices(_) => return None,
            Self::NotAFile(_) => "give the path of the plugin's shared library".to_owned(),
            Self::WorldWritable { .. } => {
                format!("if you trust what is in it now, run `chmod o-w {path}`")
            }
            Self::WorldWritableDirectory { .. } | Self::ForeignDirectory { .. } => {
                "move it to a directory that only you or root can write".to_owned()
            }
            Self::ForeignOwner { .. } => "if you trust it, make a copy of your own and load that".to_owned(),
            Self::NotALibrary(_) | Self::NoPlugin => {
                "give the path of a shared library that was built as a Paceline plugin".to_owned()
            }
            Self::CutShort { .. } => "build or download the plugin again".to_owned(),
            Self::OtherMachine { .. } => "use a plugin that was built for this machine".to_owned(),
            Self::NoDescriptor { .. } | Self::Descriptor(_) | Self::Mismatch { .. } => {
                "this is a fault of the plugin: build or download it again, or tell its author".to_owned()
            }
            Self::Sidecar { path, fault } => return fault.hint(&path.display().to_string()),
            Self::NoEntry { others } if others.is_empty() => {
                "this is a fault of the plugin: build or download it again, or tell its author".to_owned()
            }
            Self::OtherAbi { .. } | Self::NoEntry { .. } | Self::Refused(_) => {
                "use a plugin and a program of versions that go together".to_owned()
            }
            Self::CpuFeatures { .. } => "use a build of the plugin for this processor".to_owned(),
            Self::Loader(_) => {
                "if a library is named that is not found, install what it belongs to (a driver, most often)"
                    .to_owned()
            }
            Self::Driver { libraries, .. } => {
                let is_of = |known: &&KnownBackend| known.libraries.iter().any(|it| libraries.contains(it));
                match KnownBackend::all().iter().find(is_of) {
                    Some(known) => format!("install {}, in a version that will do", known.driver),
                    None => "install the driver that it belongs to, in a version that will do".to_owned(),
                }
            }
            Self::Probe(failure) => return failure.hint().map(str::to_owned),
            Self::Signature { .. } => "get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of \
                 registry.toml"
                .to_owned(),
            Self::Panicked(plugin) => format!(
                "use another build of it, or trust this one again with `paceline plugins enable {}`",
                plugin.id
            ),
            Self::Changed => "run the command again".to_owned(),
            Self::ChangedSinceInstalled { .. } => {
                "install it again with `paceline plugins install FILE --force`, or remove it with `paceline plugins \
                 remove`"
                    .to_owned()
            }
            Self::LockFile { .. } => LOCK_FILE_HINT.to_owned(),
            Self::OtherContent { .. } | Self::OtherPlugin { .. } => {
                "install the file that is pinned, or change the pin in registry.toml".to_owned()
            }
        })
    }
}

fn other_entries(others: &[String]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!(" but `{}`: it is for another version of the ABI", others.join("`, `"))
    }
}

fn named(libraries: &[String]) -> String {
    match libraries {
        [library] => format!("the driver library `{library}`"),
        _ => format!("one of the driver libraries `{}`", libraries.join("`, `")),
    }
}

fn of_versions(versions: Option<&str>) -> String {
    versions.map(|versions| format!(", versions {versions}")).unwrap_or_default()
}

fn features(lacking: &[String], unknown: &[String]) -> String {
    let lacking = lacking.iter().cloned();
    let unknown = unknown.iter().map(|name| format!("{name} (not known here)"));
    lacking.chain(unknown).collect::<Vec<_>>().join(", ")
}
