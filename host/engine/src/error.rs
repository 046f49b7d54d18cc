//! The engine's errors.

use paceline_plugin_api::{Error as PluginError, ErrorKind};

/// What went wrong in the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file is not a readable GGUF file, or lacks a key or tensor.
    #[error(transparent)]
    File(#[from] paceline_gguf::Error),
    /// The file is readable, but what it says is not a model that can run.
    #[error("{file}: {what}")]
    Model {
        /// The model file.
        file: String,
        /// What is wrong, naming the key or tensor.
        what: String,
    },
    /// The model is one that Paceline does not run.
    #[error("{file}: {what}")]
    Unsupported {
        /// The model file.
        file: String,
        /// What is not supported.
        what: String,
    },
    /// A tensor has a type that neither GGUF defines nor the backend declares.
    #[error(
        "{file}: tensor `{tensor}` has the weight type {id}, which is not one of GGUF's and not declared by backend \
         `{plugin}`"
    )]
    WeightType {
        /// The model file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The type's number in the file.
        id: u32,
        /// Id of the backend.
        plugin: String,
    },
    /// The model and its context do not fit.
    #[error("{0}")]
    Memory(Box<crate::memory::Shortage>),
    /// A plugin refused or failed.
    #[error("backend `{plugin}`: {doing}")]
    Backend {
        /// Id of the plugin.
        plugin: String,
        /// What the engine wanted.
        doing: String,
        /// What the plugin said.
        source: PluginError,
    },
    /// A strategy refuses this context.
    #[error("strategy `{plugin}` cannot work here")]
    StrategyRefused {
        /// Id of the plugin.
        plugin: String,
        /// Why.
        source: PluginError,
    },
    /// What a strategy asks for does not hold to its contract.
    #[error("strategy `{plugin}`: {what}")]
    Strategy {
        /// Id of the plugin.
        plugin: String,
        /// What is wrong.
        what: String,
    },
    /// The prompt does not fit the context.
    #[error("the prompt has {tokens} tokens, the context holds {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        context: usize,
    },
    /// The context is full.
    #[error("the context of {context} positions is full")]
    ContextFull {
        /// Positions of the context.
        context: usize,
    },
    /// A request that cannot be honoured.
    #[error("{0}")]
    Request(String),
    /// The model's output is not finite.
    #[error("the model gave values that are not numbers at position {position}; the file may be damaged")]
    NotFinite {
        /// Position of the row.
        position: usize,
    },
}

/// Result of the engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

impl EngineError {
    /// An error of a backend call; nothing is allocated unless it happens.
    pub(crate) fn backend<'a>(
        plugin: &'a str,
        doing: impl Into<String> + 'a,
    ) -> impl FnOnce(PluginError) -> Self + 'a {
        move |source| Self::Backend { plugin: plugin.to_owned(), doing: doing.into(), source }
    }

    /// True if the cause is a lack of memory.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Backend { source, .. } => source.kind == ErrorKind::OutOfMemory,
            _ => false,
        }
    }
}
