//! A family's keys: sizes and numbers that are checked before anything is built on them.

use crate::error::{EngineError, Result};
use crate::model::file_name;
use crate::weights::Tensors;
use paceline_gguf::{Gguf, ValueRef};

/// More blocks than any published model has; protects against absurd files.
pub(super) const MOST_BLOCKS: u32 = 512;
/// Largest size of any dimension.
pub(super) const LARGEST_DIMENSION: u32 = 1 << 24;

/// Reads the keys under the prefix of an architecture.
pub(super) struct Metadata<'a> {
    pub gguf: &'a Gguf,
    pub tensors: Tensors<'a>,
    pub architecture: &'static str,
}

impl<'a> Metadata<'a> {
    pub fn new(gguf: &'a Gguf, architecture: &'static str) -> Self {
        Self { gguf, tensors: Tensors::new(gguf), architecture }
    }

    /// An error about what the file says.
    pub fn fault(&self, what: impl Into<String>) -> EngineError {
        self.tensors.fault(what)
    }

    /// An error about a model that could be right, but does not run here.
    pub fn unsupported(&self, what: impl Into<String>) -> EngineError {
        EngineError::Unsupported { file: file_name(self.gguf), what: what.into() }
    }

    /// The whole key.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// A dimension: at least 1, and not absurd.
    pub fn dimension(&self, name: &str) -> Result<u32> {
        let key = self.key(name);
        self.checked(&key, self.gguf.require_u32(&key)?)
    }

    pub fn dimension_or(&self, name: &str, default: u32) -> Result<u32> {
        let key = self.key(name);
        match self.gguf.get_u32(&key)? {
            Some(value) => self.checked(&key, value),
            None => Ok(default),
        }
    }

    fn checked(&self, key: &str, value: u32) -> Result<u32> {
        if (1..=LARGEST_DIMENSION).contains(&value) {
            Ok(value)
        } else {
            Err(self.fault(format!("`{key}` is {value}, which is not a size from 1 to {LARGEST_DIMENSION}")))
        }
    }

    /// The number of blocks of a model that has nothing but layers.
    pub fn layers(&self) -> Result<u32> {
        let layers = self.dimension("block_count")?;
        if layers > MOST_BLOCKS {
            let key = self.key("block_count");
            return Err(self.fault(format!("`{key}` is {layers}; at most {MOST_BLOCKS} are possible")));
        }
        Ok(layers)
    }

    /// A number, or a list with one number per block.
    pub fn per_block(&self, name: &str, blocks: u32, default: Option<u32>) -> Result<Vec<u32>> {
        let key = self.key(name);
        if !matches!(self.gguf.value(&key), Some(ValueRef::Array(_))) {
            let value = match default {
                Some(default) => self.dimension_or(name, default)?,
                None => self.dimension(name)?,
            };
            return Ok(vec![value; blocks as usize]);
        }
        let list: Vec<u32> = self
            .gguf
            .require_array_u32(&key)?
            .map(|value| self.checked(&key, value))
            .collect::<Result<_>>()?;
        if list.len() != blocks as usize {
            return Err(self.fault(format!("`{key}` has {} entries for {blocks} blocks", list.len())));
        }
        Ok(list)
    }

    /// One number for all blocks; a list must repeat it.
    pub fn uniform(&self, name: &str, blocks: u32, default: Option<u32>) -> Result<u32> {
        let list = self.per_block(name, blocks, default)?;
        match list.first() {
            Some(&first) if list.iter().all(|&v| v == first) => Ok(first),
            _ => {
                let key = self.key(name);
                Err(self.unsupported(format!("`{key}` differs between layers, which is not supported")))
            }
        }
    }

    /// A number above 0 that must be there.
    pub fn positive_float(&self, name: &str) -> Result<f32> {
        self.positive(name, self.gguf.require_f32(&self.key(name))?)
    }

    /// A number above 0; 0 stands for the default, as if the key were not there.
    pub fn positive_float_or(&self, name: &str, default: f32) -> Result<f32> {
        match self.gguf.get_f32(&self.key(name))?.filter(|&value| value != 0.0) {
            Some(value) => self.positive(name, value),
            None => Ok(default),
        }
    }

    fn positive(&self, name: &str, value: f32) -> Result<f32> {
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.fault(format!("`{}` is {value}, which is not a positive number", self.key(name))))
        }
    }
}
