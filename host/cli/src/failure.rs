//! The error that every command returns: what went wrong, what caused it, what to do, and the exit code.

use std::error::Error;
use std::io;
use std::path::Path;

use paceline_engine::EngineError;
use paceline_plugin_api::ErrorKind;
use paceline_registry::settings::{Fault, Faults};

use crate::exit::Exit;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    /// Further lines, each with its label: other errors, causes, the file of a plugin.
    details: Vec<(&'static str, String)>,
    hint: Option<String>,
    broken_pipe: bool,
}

impl Failure {
    /// A failure with a message: what is wrong and where, without a final period.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), details: Vec::new(), hint: None, broken_pipe: false }
    }

    /// Settings that are wrong: each is an error of its own, with the place where it stands.
    pub fn faults(faults: &Faults) -> Self {
        let mut messages = faults.0.iter().map(ToString::to_string);
        let first = Self::new(Exit::Usage, messages.next().unwrap_or_default());
        Self { details: messages.map(|message| ("error", message)).collect(), ..first }
    }

    /// Adds an error as the cause, and all that caused it in turn.
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors repeat their source's message.
            if self.details.last().is_none_or(|(_, last)| *last != text) {
                self.details.push(("cause", text));
            }
            cause = error.source();
        }
        self
    }

    /// Adds the file of the plugin that it is about.
    pub fn of_plugin_file(mut self, path: &Path) -> Self {
        self.details.push(("plugin file", path.display().to_string()));
        self
    }

    /// Adds a line with a label of its own.
    pub fn detail(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.details.push((label, text.into()));
        self
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether the reader of our output went away, which is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }

    /// The lines to show, each with its label.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let message = [("error", self.message.as_str())];
        let details = self.details.iter().map(|(label, text)| (*label, text.as_str()));
        let hint = self.hint.iter().map(|hint| ("hint", hint.as_str()));
        message.into_iter().chain(details).chain(hint)
    }

    /// All that went wrong, without what to do, on one line.
    pub fn in_one_line(&self) -> String {
        let told = self.lines().filter(|(label, _)| !["hint", "searched"].contains(label));
        let part = |(label, text): (&str, &str)| match label {
            "error" | "cause" => text.to_owned(),
            _ => format!("{label} {text}"),
        };
        told.map(part).collect::<Vec<_>>().join(": ")
    }

    /// Output that could not be written.
    pub fn output(error: io::Error) -> Self {
        let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        let failure = Self::new(Exit::Failed, "cannot write to standard output").caused_by(&error);
        Self { broken_pipe, ..failure }
    }

    /// A call of the plugin `id` that failed.
    pub fn plugin_call(id: &str, error: &paceline_plugin_api::Error) -> Self {
        let exit = match error.kind {
            ErrorKind::OutOfMemory => Exit::Memory,
            _ => Exit::Plugin,
        };
        Self::new(exit, format!("plugin `{id}`: {error}"))
    }

    /// A device of the plugin `id` that could not be opened. What can be invalid there are the user's settings.
    pub fn device_open(id: &str, error: &paceline_plugin_api::Error) -> Self {
        let failure = Self::plugin_call(id, error);
        match error.kind {
            ErrorKind::Invalid => Self { exit: Exit::Usage, ..failure },
            _ => failure,
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::faults(&faults)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::new(Exit::Usage, fault.to_string())
    }
}

impl From<paceline_gguf::Error> for Failure {
    fn from(error: paceline_gguf::Error) -> Self {
        // The message names the file and says what to do.
        Self::new(Exit::Model, error.to_string())
    }
}

impl From<paceline_registry::Error> for Failure {
    fn from(error: paceline_registry::Error) -> Self {
        let exit = match error {
            paceline_registry::Error::Unknown { .. } => Exit::Usage,
            _ => Exit::Plugin,
        };
        let failure = Self::new(exit, error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::File(error) => error.into(),
            EngineError::Model { .. } | EngineError::Unsupported { .. } | EngineError::WeightType { .. } => {
                Self::new(Exit::Model, message)
            }
            EngineError::Memory(_) => Self::new(Exit::Memory, message),
            EngineError::Backend { plugin, doing, source } => {
                let failure = Self::plugin_call(&plugin, &source);
                Self { message: format!("plugin `{plugin}`: {doing}: {source}"), ..failure }
            }
            EngineError::StrategyRefused { ref source, .. } => {
                // What a caller can have wrong are the user's settings.
                let exit = if source.kind == ErrorKind::Invalid { Exit::Usage } else { Exit::Plugin };
                Self::new(exit, message).caused_by(source)
            }
            EngineError::Strategy { .. } => Self::new(Exit::Plugin, message),
            EngineError::PromptTooLong { .. } | EngineError::Request(_) => Self::new(Exit::Usage, message),
            EngineError::NotFinite { .. } => {
                Self::new(Exit::Failed, message).hint("look for its faults with `paceline models verify`")
            }
            _ => Self::new(Exit::Failed, message),
        }
    }
}
