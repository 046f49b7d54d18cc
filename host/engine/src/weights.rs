//! The tensors of a model as a family sees them: checked shapes, then weights of a graph.

use crate::error::{EngineError, Result};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::{Builder, DType, ValueId};

/// A tensor of the model, with its shape checked.
#[derive(Clone, Debug)]
pub struct Weight {
    name: String,
    dtype: DType,
    /// Rows, then columns: the reverse of the order in the file.
    dims: Vec<u32>,
}

impl Weight {
    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The weight as a value of a graph.
    pub fn value(&self, b: &mut Builder) -> ValueId {
        b.weight(&self.name, self.dtype, &self.dims)
    }
}

/// Looks tensors up by name and checks their shapes.
pub(crate) struct Tensors<'a> {
    gguf: &'a Gguf,
}

impl<'a> Tensors<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self { gguf }
    }

    /// True if the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// A matrix of `rows` outputs and `columns` inputs.
    pub fn matrix(&self, name: &str, rows: u32, columns: u32) -> Result<Weight> {
        self.weight(name, &[rows, columns])
    }

    /// A matrix whose number of rows the file decides.
    pub fn rows_of(&self, name: &str, columns: u32) -> Result<(Weight, u32)> {
        let tensor = self.gguf.require_tensor(name)?;
        let rows = tensor.dims.get(1).copied().unwrap_or(1);
        let rows = u32::try_from(rows).map_err(|_| self.fault(format!("tensor `{name}` has {rows} rows")))?;
        Ok((self.matrix(name, rows, columns)?, rows))
    }

    /// A vector.
    pub fn vector(&self, name: &str, length: u32) -> Result<Weight> {
        self.weight(name, &[length])
    }

    /// A tensor if the file has it.
    pub fn optional<T>(&self, name: &str, read: impl FnOnce(&Self, &str) -> Result<T>) -> Result<Option<T>> {
        if self.has(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    fn weight(&self, name: &str, dims: &[u32]) -> Result<Weight> {
        let tensor = self.gguf.require_tensor(name)?;
        let expected: Vec<u64> = dims.iter().rev().map(|&d| u64::from(d)).collect();
        if tensor.dims != expected.as_slice() {
            return Err(self.fault(format!(
                "tensor `{name}` has the shape {:?}, the metadata says {expected:?}",
                tensor.dims
            )));
        }
        if self.has(&format!("{name}.scale")) {
            return Err(EngineError::Unsupported {
                file: crate::model::file_name(self.gguf),
                what: format!("tensor `{name}` has a scale of its own, which is not supported yet"),
            });
        }
        Ok(Weight { name: name.to_owned(), dtype: DType(tensor.tensor_type.id()), dims: dims.to_vec() })
    }

    /// An error about this file.
    pub fn fault(&self, what: impl Into<String>) -> EngineError {
        EngineError::Model { file: crate::model::file_name(self.gguf), what: what.into() }
    }
}
