//! `verify`: the checks of opening, but listing every fault instead of stopping at the first.

use std::fmt;
use std::path::Path;

use crate::fault_log::FaultLog;
use crate::gguf::{assemble, open_sources};
use crate::model_checks::check_model;
use crate::source::Source;
use crate::{Error, Limits, OpenOptions, Origin};

/// What [`verify`] found.
#[derive(Debug, Default)]
pub struct Report {
    /// The files looked at, in the order of their parts.
    pub files: Vec<Origin>,
    /// Number of metadata keys of the (first) file, 0 if it could not be read.
    pub keys: usize,
    /// Number of tensors in all files, 0 if the first file could not be read.
    pub tensors: usize,
    /// The faults, at most [`crate::MAX_LISTED_FAULTS`].
    pub faults: Vec<Error>,
    /// How many more faults there are.
    pub unlisted_faults: u64,
}

impl Report {
    /// True if there are no faults.
    pub fn is_ok(&self) -> bool {
        self.faults.is_empty()
    }

    /// Faults in all, listed or not.
    pub fn fault_count(&self) -> u64 {
        self.faults.len() as u64 + self.unlisted_faults
    }
}

/// One line per fault, and a last line with the counts.
impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(formatter, "{fault}")?;
        }
        let Report { keys, tensors, .. } = self;
        match self.fault_count() {
            0 => write!(formatter, "no faults; {keys} metadata keys, {tensors} tensors"),
            count => write!(formatter, "faults: {count}; {keys} metadata keys, {tensors} tensors"),
        }
    }
}

/// Checks the model at `path` as [`crate::Gguf::open`] does, and its metadata for values no model can
/// have, under the default options. `path` may be any part of a split model.
///
/// A fault in a header or in metadata ends the walk through that file; faults of single tensors are
/// all listed. Tensor bytes are not read. A file that cannot be opened is a fault like any other.
pub fn verify(path: impl AsRef<Path>) -> Report {
    verify_with(path, &OpenOptions::default())
}

/// [`verify`] with options.
pub fn verify_with(path: impl AsRef<Path>, options: &OpenOptions) -> Report {
    match open_sources(path.as_ref(), options) {
        Ok(sources) => verify_sources(sources, &options.limits),
        Err(error) => Report { faults: vec![error], ..Report::default() },
    }
}

/// [`verify`] for a model in memory.
pub fn verify_bytes(bytes: Vec<u8>) -> Report {
    verify_sources(vec![Source::from_bytes(bytes)], &Limits::default())
}

fn verify_sources(sources: Vec<Source>, limits: &Limits) -> Report {
    let mut report =
        Report { files: sources.iter().map(|source| source.origin.clone()).collect(), ..Report::default() };
    let mut log = FaultLog::collecting();
    let ended = match assemble(sources, limits, &mut log) {
        Ok(model) => {
            report.keys = model.key_count();
            report.tensors = model.tensor_count();
            check_model(&model, &mut log).err()
        }
        Err(error) => Some(error),
    };
    if let FaultLog::Collect { listed, unlisted } = log {
        report.faults = listed;
        report.unlisted_faults = unlisted;
    }
    // What ended the walk matters most, so it is listed whatever came before.
    report.faults.extend(ended);
    report
}
