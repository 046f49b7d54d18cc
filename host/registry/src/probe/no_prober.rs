//! Where there are no process groups, plugins are not tried before they are loaded.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{FoundDriver, Phase, Verdict};

/// Tries plugins in processes of their own; not possible on this system.
#[derive(Clone, Debug)]
pub struct Prober {
    program: PathBuf,
}

impl Prober {
    /// Whether this system can try plugins.
    pub(crate) const POSSIBLE: bool = false;

    /// A prober that runs `program ARGUMENTS PHASE FILE`.
    pub fn new(program: impl Into<PathBuf>, _: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: program.into() }
    }

    /// Sets the time that a plugin has.
    #[must_use]
    pub fn with_time_limit(self, _: Duration) -> Self {
        self
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    /// Loads a driver's library by its name in a process of its own.
    ///
    /// # Errors
    /// Always.
    pub fn find_driver(&self, _: &str) -> io::Result<Verdict<FoundDriver>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn probe<T: DeserializeOwned>(&self, _: Phase, _: &Path) -> io::Result<Verdict<T>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
