//! What happens to a fault: it ends the walk, or it is listed and the walk goes on.

use crate::{Error, Fault, Origin, Result};

/// How many faults a report lists; more are only counted. A hostile file can have millions.
pub const MAX_LISTED_FAULTS: usize = 1_000;

/// Receives faults while files are read.
pub(crate) enum FaultLog {
    /// The first fault ends the walk.
    Strict,
    /// Faults are kept, as far as the walk can go on.
    Collect { listed: Vec<Error>, unlisted: u64 },
}

impl FaultLog {
    pub(crate) fn collecting() -> Self {
        FaultLog::Collect { listed: Vec::new(), unlisted: 0 }
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self, FaultLog::Strict)
    }

    /// Keeps the fault, or gives it back to end the walk.
    pub(crate) fn admit(&mut self, origin: &Origin, fault: Fault) -> Result<(), Fault> {
        if self.is_strict() {
            return Err(fault);
        }
        self.list(Error::new(origin, fault));
        Ok(())
    }

    /// [`FaultLog::admit`] for a whole error.
    pub(crate) fn admit_error(&mut self, error: Error) -> Result<()> {
        if self.is_strict() {
            return Err(error);
        }
        self.list(error);
        Ok(())
    }

    fn list(&mut self, error: Error) {
        match self {
            FaultLog::Collect { listed, .. } if listed.len() < MAX_LISTED_FAULTS => listed.push(error),
            FaultLog::Collect { unlisted, .. } => *unlisted += 1,
            FaultLog::Strict => {}
        }
    }
}
