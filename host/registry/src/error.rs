//! What can be wrong with a plugin, or with a request for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_plugin_api::settings::nearest;

use crate::FileFault;
use crate::fault::LOCK_FILE_HINT;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plugin cannot be had. The message says what is wrong and where, [`Error::hint`] what to do.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// Two files hold the same version of one plugin.
    #[error(
        "plugin files {} and {} both have version {version} of `{id}`",
        first.display(),
        second.display()
    )]
    SameVersion {
        /// The id.
        id: String,
        /// The version.
        version: String,
        /// The file that was found first.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// Files are not what a pin asks for.
    #[error("plugin `{id}` is pinned to {wanted}, and {found}")]
    Pin {
        /// The id.
        id: String,
        /// What the pin asks for.
        wanted: String,
        /// What there is, as a clause.
        found: String,
    },
    /// A plugin was switched off.
    #[error("plugin `{0}` is switched off by the configuration")]
    Disabled(String),
    /// Another version was chosen among those that there are.
    #[error("version {wanted} of plugin `{id}` was chosen with `plugins use`, and {found}")]
    NotChosen {
        /// The id.
        id: String,
        /// The versions that were chosen.
        wanted: String,
        /// What there is, as a clause.
        found: String,
    },
    /// The lock file of a plugin folder cannot be used.
    #[error("lock file {}: {problem}", path.display())]
    LockFile {
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A plugin folder that cannot be changed.
    #[error("cannot {action} the plugin folder {}: {source}", path.display())]
    Folder {
        /// What was being done, as the beginning of a verb phrase.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<std::io::Error>,
    },
    /// The same version was installed with other content.
    #[error("version {version} of plugin `{id}` is installed already, with other content: {}", path.display())]
    InstalledAlready {
        /// The id.
        id: String,
        /// The version.
        version: String,
        /// The installed file.
        path: PathBuf,
    },
    /// Nothing of that name was installed.
    #[error("{}", not_installed(id, version.as_deref(), versions))]
    NotInstalled {
        /// The id.
        id: String,
        /// The version, if one was asked for.
        version: Option<String>,
        /// The versions that are installed.
        versions: Vec<String>,
    },
    /// A directory without a plugin.
    #[error("there is no plugin in the directory {}", .0.display())]
    NothingToInstall(PathBuf),
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
    #[error("there is no plugin `{id}`; {}{}{}", available(known), looked_in(searched), refusals(refused))]
    Unknown {
        /// The id asked for.
        id: String,
        /// The ids that there are.
        known: Vec<String>,
        /// The directories that were searched.
        searched: Vec<PathBuf>,
        /// The files that were refused, and why.
        refused: Vec<(PathBuf, String)>,
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

impl Error {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, fault } => fault.hint(&path.display().to_string()),
            Self::SameId { .. } => Some("load only one of them".to_owned()),
            Self::BuiltIn(_) | Self::SameBuiltIn(_) | Self::MissingBuiltIns { .. } => Some(
                "this is a fault in how the program was built; build it again from a clean tree".to_owned(),
            ),
            Self::SameVersion { id, .. } => Some(format!(
                "remove one of them, or pin one by its path in the section `plugin.{id}` of registry.toml"
            )),
            Self::Pin { id, .. } => {
                Some(format!("install what is pinned, or change the section `plugin.{id}` of registry.toml"))
            }
            Self::Disabled(id) => Some(format!(
                "run `paceline plugins enable {id}`, or set `enabled = true` in the section `plugin.{id}` of \
                     registry.toml"
            )),
            Self::Unknown { id, known, .. } => nearest(id, known.iter().map(String::as_str))
                .map(|near| format!("did you mean `{near}`?"))
                .or_else(|| Some("a plugin in a shared library is loaded with `--plugin PATH`".to_owned())),
            Self::NotChosen { id, .. } => {
                Some(format!("run `paceline plugins use {id}@VERSION`, or `{id}@*` for the highest version"))
            }
            Self::LockFile { .. } => Some(LOCK_FILE_HINT.to_owned()),
            Self::InstalledAlready { .. } => {
                Some("give it another version, or replace the installed one with `--force`".to_owned())
            }
            Self::NotInstalled { .. } => Some("see `paceline plugins list`".to_owned()),
            Self::NothingToInstall(_) => Some(
                "build it (`cargo build --release`) and give `target/release`, or the shared library in it"
                    .to_owned(),
            ),
            Self::Folder { .. } | Self::NotABackend { .. } => None,
            Self::NoBackend { .. } => {
                Some("a backend in a shared library is loaded with `--plugin PATH`".to_owned())
            }
        }
    }
}

impl Error {
    /// A fault of a file.
    pub(crate) fn file(path: &Path, fault: FileFault) -> Self {
        Self::File { path: path.to_owned(), fault }
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

fn not_installed(id: &str, version: Option<&str>, versions: &[String]) -> String {
    match (version, versions) {
        (Some(version), [_, ..]) => format!(
            "version {version} of plugin `{id}` was not installed with `plugins install`; there is {}",
            versions.join(", ")
        ),
        _ => format!("plugin `{id}` was not installed with `plugins install`"),
    }
}

fn list(ids: &[String]) -> String {
    ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ")
}

fn available(known: &[String]) -> String {
    if known.is_empty() { "no plugin is loaded".to_owned() } else { format!("there is {}", list(known)) }
}

fn looked_in(searched: &[PathBuf]) -> String {
    if searched.is_empty() {
        return String::new();
    }
    let searched: Vec<_> = searched.iter().map(|path| path.display().to_string()).collect();
    format!("; searched {}", searched.join(", "))
}

fn refusals(refused: &[(PathBuf, String)]) -> String {
    const SHOWN: usize = 3;

    let mut text: String = refused
        .iter()
        .take(SHOWN)
        .map(|(path, reason)| format!("; refused {}: {reason}", path.display()))
        .collect();
    if refused.len() > SHOWN {
        text.push_str(&format!("; and {} more refused", refused.len() - SHOWN));
    }
    text
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() { ": no backend is loaded".to_owned() } else { format!(": {}", reasons.join("; ")) }
}
