//! A model: its file, and the family that knows how to compute it.

use crate::error::{EngineError, Result};
use crate::families::{self, Family};
use crate::weights::WeightSource;
use paceline_gguf::{Gguf, Origin, TensorType, TypeLayout};
use paceline_plugin_api::backend::WeightUse;
use paceline_plugin_api::weight_types::WeightType;
use std::borrow::Cow;
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
    /// Types that the backend declares, which will run the model.
    weight_types: Arc<[WeightType]>,
}

impl Model {
    /// Checks the file against its family.
    ///
    /// # Errors
    /// An architecture that Paceline does not know, a missing or wrong key or tensor, by name.
    pub fn new(gguf: Arc<Gguf>) -> Result<Self> {
        let family = families::open(&gguf)?;
        Ok(Self { gguf, family, weight_types: Arc::new([]) })
    }

    /// The model for a backend that declares these weight types. Without them, a backend gets only tensors of types
    /// that GGUF defines.
    #[must_use]
    pub fn with_weight_types(mut self, types: &[WeightType]) -> Self {
        self.weight_types = types.into();
        self
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

    /// Makes sure that the size of every weight is known.
    ///
    /// # Errors
    /// The first weight of a type that neither GGUF nor the backend `plugin` has.
    pub(crate) fn check_weight_types(&self, plugin: &str, weights: &[WeightUse]) -> Result<()> {
        let is_known = |id: u32| TensorType::from_id(id).layout().is_some() || self.declared(id).is_some();
        match weights.iter().find(|weight| !is_known(weight.dtype.0)) {
            None => Ok(()),
            Some(weight) => Err(EngineError::WeightType {
                file: self.file_name(),
                tensor: weight.name.clone(),
                id: weight.dtype.0,
                plugin: plugin.to_owned(),
            }),
        }
    }

    /// The bytes of a weight that the model's graphs name, in the file's type; copied where it is a part of a tensor.
    ///
    /// # Errors
    /// A name that is no weight's; a type of unknown size.
    pub fn weight_bytes(&self, name: &str) -> Result<Cow<'_, [u8]>> {
        match WeightSource::find(&self.gguf, name) {
            Some(source) => Ok(source.bytes(self.tensor_bytes(source.tensor.name)?)),
            None => Ok(Cow::Borrowed(self.tensor_bytes(name)?)),
        }
    }

    /// The bytes of a tensor, also of a type that the backend declares.
    pub(crate) fn tensor_bytes(&self, name: &str) -> Result<&[u8]> {
        let tensor = self.gguf.require_tensor(name)?;
        let bytes = match self.declared(tensor.tensor_type.id()) {
            None => self.gguf.tensor_bytes(&tensor),
            Some(declared) => {
                let (elements, bytes) = (declared.elements.into(), declared.bytes.into());
                let layout = TypeLayout { block_elements: elements, block_bytes: bytes };
                self.gguf.tensor_bytes_as(&tensor, layout)
            }
        };
        Ok(bytes?)
    }

    fn declared(&self, id: u32) -> Option<&WeightType> {
        self.weight_types.iter().find(|declared| declared.id == id)
    }

    pub(crate) fn fault(&self, what: impl Into<String>) -> EngineError {
        EngineError::Model { file: self.file_name(), what: what.into() }
    }
}

/// The first file's name, for messages.
pub(crate) fn file_name(gguf: &Gguf) -> String {
    gguf.origins().next().map_or_else(|| "the model".to_owned(), Origin::to_string)
}
