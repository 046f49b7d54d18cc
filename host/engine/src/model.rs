//! A model: its file, and the family that knows how to compute it.

use crate::error::{EngineError, Result};
use crate::families::{self, Family};
use paceline_gguf::{Gguf, Origin};
use std::sync::Arc;

/// Sizes of a model that the engine and its users need.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// Architecture, as the file names it.
    pub architecture: String,
    /// Tokens of the vocabulary.
    pub vocabulary: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// What each trunk layer is.
    pub layers: Vec<LayerKind>,
    /// Elements of a cached key or value head.
    pub head_width: u32,
    /// Positions that the model was trained for.
    pub context: u32,
    /// True if the file has a multi-token prediction block.
    pub has_nextn: bool,
}

/// What a layer keeps between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A KV cache.
    Attention,
    /// A recurrent state of fixed size.
    Recurrent,
}

impl ModelShape {
    /// Number of layers of a kind.
    pub fn count(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }
}

/// An opened model file whose family is known and whose tensors have the shapes that the family needs.
#[derive(Clone)]
pub struct Model {
    gguf: Arc<Gguf>,
    family: Arc<dyn Family>,
}

impl Model {
    /// Checks the file against its family.
    ///
    /// # Errors
    /// An architecture that Paceline does not know, a missing or wrong key or tensor, by name.
    pub fn new(gguf: Arc<Gguf>) -> Result<Self> {
        let family = families::open(&gguf)?;
        Ok(Self { gguf, family })
    }

    /// The file.
    pub fn gguf(&self) -> &Arc<Gguf> {
        &self.gguf
    }

    /// The family.
    pub fn family(&self) -> &dyn Family {
        &*self.family
    }

    /// Sizes.
    pub fn shape(&self) -> &ModelShape {
        self.family.shape()
    }

    /// The file's name, for messages.
    pub fn file_name(&self) -> String {
        file_name(&self.gguf)
    }

    pub(crate) fn fault(&self, what: impl Into<String>) -> EngineError {
        EngineError::Model { file: self.file_name(), what: what.into() }
    }
}

/// The first file's name, for messages.
pub(crate) fn file_name(gguf: &Gguf) -> String {
    gguf.origins().next().map_or_else(|| "the model".to_owned(), Origin::to_string)
}
