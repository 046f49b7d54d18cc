//! What can be wrong with a template, and with rendering it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use minijinja::ErrorKind;
use thiserror::Error;

use super::message::RenderLimits;

/// Characters of a template's own message that an error repeats.
const MESSAGE_CHARS: usize = 400;

/// Why a chat template cannot be used, or did not give a prompt.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is longer than a template may be.
    #[error("the chat template has {length} bytes, more than the limit of {limit}")]
    SourceTooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },

    /// The template is not valid.
    #[error("the chat template cannot be read{}: {reason}. Use another template", at(*line))]
    Syntax {
        /// The line, from 1.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },

    /// The template refuses the messages by calling `raise_exception`.
    #[error("the chat template refuses these messages{}: {message}", at(*line))]
    Raised {
        /// The line of the call, from 1.
        line: Option<usize>,
        /// What the template says (shortened).
        message: String,
    },

    /// The template failed.
    #[error(
        "the chat template failed{}: {reason}. The messages may lack what it needs, or it needs \
         something that is not supported; use another template",
        at(*line)
    )]
    Render {
        /// The line, from 1.
        line: Option<usize>,
        /// What went wrong.
        reason: String,
    },

    /// The template took more steps than it may.
    #[error(
        "the chat template was stopped{} after {limit} steps; it does not end, or the conversation is \
         very long",
        at(*line)
    )]
    TooMuchWork {
        /// The line that was reached, from 1.
        line: Option<usize>,
        /// The limit.
        limit: u64,
    },

    /// The template wrote more than it may.
    #[error("the chat template was stopped after it wrote {limit} bytes")]
    OutputTooLong {
        /// The limit.
        limit: usize,
    },

    /// The template took more time than it may.
    #[error("the chat template was given up after {limit:?}; do not use it")]
    TooMuchTime {
        /// The limit.
        limit: Duration,
    },

    /// A rendering that was given up for its time has not ended yet.
    #[error("the chat template is not used while an earlier rendering, which was given up, still runs")]
    StillRunning,

    /// The thread for the template could not be started.
    #[error("no thread could be started for the chat template: {reason}")]
    NoThread {
        /// What the system says.
        reason: String,
    },

    /// Messages, tools or variables are nested too deeply.
    #[error(
        "messages, tools or template variables have more than {limit} lists and objects within each other"
    )]
    InputTooDeep {
        /// The limit.
        limit: usize,
    },

    /// A variable has the name of one that rendering sets.
    #[error("the template variable `{name}` is set by rendering itself; give it another name")]
    ReservedVariable {
        /// The name.
        name: &'static str,
    },

    /// A message lacks what every message has.
    #[error("a message is not an object with a `role` that is text")]
    MalformedMessage,
}

/// What a template passed to `raise_exception`, on its way through the engine.
#[derive(Debug)]
pub(super) struct RaisedMessage(pub(super) String);

impl fmt::Display for RaisedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RaisedMessage {}

impl TemplateError {
    /// The error for what the engine says when it compiles.
    pub(super) fn from_compiler(error: &minijinja::Error) -> TemplateError {
        TemplateError::Syntax { line: error.line(), reason: reason(error) }
    }

    /// The error for what the engine says when it renders.
    pub(super) fn from_engine(error: &minijinja::Error, limits: RenderLimits) -> TemplateError {
        let line = error.line();
        let mut source = error.source();
        while let Some(inner) = source {
            if let Some(RaisedMessage(message)) = inner.downcast_ref() {
                return TemplateError::Raised { line, message: shortened(message) };
            }
            source = inner.source();
        }
        if error.kind() == ErrorKind::OutOfFuel {
            return TemplateError::TooMuchWork { line, limit: limits.work };
        }
        TemplateError::Render { line, reason: reason(error) }
    }
}

fn reason(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => shortened(&format!("{}: {detail}", error.kind())),
        None => error.kind().to_string(),
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MESSAGE_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(" (line {line})")).unwrap_or_default()
}
