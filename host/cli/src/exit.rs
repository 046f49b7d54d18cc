//! The exit codes. They are part of the interface: scripts rely on them.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// Something failed while it ran.
    Failed = 1,
    /// It was called with arguments that make no sense. Also what clap uses.
    Usage = 2,
    /// The model file is missing or cannot be used.
    Model = 3,
    /// The model or the request does not fit in memory.
    Memory = 4,
    /// A plugin cannot be used, or none can.
    Plugin = 5,
    /// Ctrl-C ended it: 128 and the number of the signal, as shells have it.
    Interrupted = 130,
}

/// The codes in words, for the help text.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
    0  success
    1  something failed while running
    2  wrong usage
    3  the model file is missing or cannot be used
    4  the model or the request does not fit in memory
    5  a plugin cannot be used
  130  interrupted by Ctrl-C";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
