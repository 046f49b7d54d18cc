//! What can be wrong with a plugin, or with a request for one.

use std::path::PathBuf;

use paceline_plugin_api::settings::nearest;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plugin cannot be had. The message says what is wrong and where, [`Error::hint`] what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A plugin file that cannot be used.
    #[error("plugin file {}: {fault}", path.display())]
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// What is wrong with it.
        fault: FileFault,
    },
    /// Two files hold plugins with the same id.
    #[error("plugin files {} and {} both have the id `{id}`", first.display(), second.display())]
    SameId {
        /// The id.
        id: String,
        /// The file that was loaded first.
        first: PathBuf,
        /// The file that was refused.
        second: PathBuf,
    },
    /// A plugin that is linked in cannot be used.
    #[error("a built-in plugin cannot be used: {0}")]
    BuiltIn(paceline_plugin_api::Error),
    /// Two plugins that are linked in have the same id.
    #[error("two built-in plugins have the id `{0}`")]
    SameBuiltIn(String),
    /// Plugins that this program was built with are not in it.
    #[error(
        "this program was built with the plugins {}, but the linker dropped {}",
        list(expected),
        list(missing)
    )]
    MissingBuiltIns {
        /// What was expected.
        expected: Vec<String>,
        /// What is not there.
        missing: Vec<String>,
    },
    /// No plugin has that id.
    #[error("there is no plugin `{id}`; {}", available(known))]
    Unknown {
        /// The id asked for.
        id: String,
        /// The ids that there are.
        known: Vec<String>,
    },
    /// A plugin of another kind was asked for as a backend.
    #[error("plugin `{id}` cannot be used as a backend: {reason}")]
    NotABackend {
        /// The plugin.
        id: String,
        /// What it lacks.
        reason: String,
    },
    /// No backend has a device.
    #[error("no backend can be used{}", because(reasons))]
    NoBackend {
        /// One sentence for each backend that was tried.
        reasons: Vec<String>,
    },
}

/// What is wrong with a plugin file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
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
    /// The file belongs to another user.
    #[error("belongs to user {owner}, who is neither you (user {user}) nor root")]
    ForeignOwner {
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
    /// The system's loader refused, most often because of a library that the plugin needs.
    #[error("cannot be loaded: {0}")]
    Loader(String),
    /// A library without the entry symbol.
    #[error(
        "is a shared library but no Paceline plugin: it lacks the symbol `{}`",
        paceline_plugin_api::abi::ENTRY_SYMBOL
    )]
    NoPlugin,
    /// The plugin and this host do not understand each other.
    #[error("{0}")]
    Refused(paceline_plugin_api::Error),
}

impl Error {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, fault } => fault.hint(&path.display().to_string()),
            Self::SameId { .. } => Some("load only one of them".to_owned()),
            Self::BuiltIn(_) | Self::SameBuiltIn(_) | Self::MissingBuiltIns { .. } => Some(
                "this is a fault in how the program was built; build it again from a clean tree".to_owned(),
            ),
            Self::Unknown { id, known } => nearest(id, known.iter().map(String::as_str))
                .map(|near| format!("did you mean `{near}`?"))
                .or_else(|| Some("a plugin in a shared library is loaded with `--plugin PATH`".to_owned())),
            Self::NotABackend { .. } => None,
            Self::NoBackend { .. } => {
                Some("a backend in a shared library is loaded with `--plugin PATH`".to_owned())
            }
        }
    }
}

impl FileFault {
    fn hint(&self, path: &str) -> Option<String> {
        Some(match self {
            Self::Io { .. } => return None,
            Self::NotAFile(_) => "give the path of the plugin's shared library".to_owned(),
            Self::WorldWritable { .. } => {
                format!("if you trust what is in it now, run `chmod o-w {path}`")
            }
            Self::ForeignOwner { .. } => "if you trust it, make a copy of your own and load that".to_owned(),
            Self::NotALibrary(_) | Self::NoPlugin => {
                "give the path of a shared library that was built as a Paceline plugin".to_owned()
            }
            Self::CutShort { .. } => "build or download the plugin again".to_owned(),
            Self::OtherMachine { .. } => "use a plugin that was built for this machine".to_owned(),
            Self::Loader(_) => {
                "if a library is named that is not found, install what it belongs to (a driver, most often)"
                    .to_owned()
            }
            Self::Refused(_) => "use a plugin and a program of versions that go together".to_owned(),
        })
    }
}

/// An error with everything that caused it, as one line: the loader's own message says too little.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn list(ids: &[String]) -> String {
    ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ")
}

fn available(known: &[String]) -> String {
    if known.is_empty() { "no plugin is loaded".to_owned() } else { format!("there is {}", list(known)) }
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() { ": no backend is loaded".to_owned() } else { format!(": {}", reasons.join("; ")) }
}
