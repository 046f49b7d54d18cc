//! The error every fallible call returns: which file, and what is wrong with it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Fault;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where the faulty bytes came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file, by the path it was opened with.
    File(PathBuf),
    /// Bytes handed over in memory.
    Memory,
}

impl Origin {
    /// The file's path, unless the bytes came from memory.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Origin::File(path) => Some(path),
            Origin::Memory => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => write!(formatter, "{}", path.display()),
            Origin::Memory => formatter.write_str("model in memory"),
        }
    }
}

/// A [`Fault`] and where it was found. Shown as `file: what is wrong; what to do`.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {fault}")]
pub struct Error {
    origin: Origin,
    // Boxed so that a `Result` in the accessors stays small. Not `#[source]`: the message above
    // already contains it.
    fault: Box<Fault>,
}

impl Error {
    pub(crate) fn new(origin: &Origin, fault: Fault) -> Self {
        Error { origin: origin.clone(), fault: Box::new(fault) }
    }

    /// Where the fault was found.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What is wrong, for callers that act on the kind of fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }
}
