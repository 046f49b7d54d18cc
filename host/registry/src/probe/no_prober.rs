//! Where there are no process groups, plugins are not tried before they are loaded.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Phase, Verdict};

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

    pub(crate) fn probe<T: DeserializeOwned>(&self, _: Phase, _: &Path) -> io::Result<Verdict<T>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
