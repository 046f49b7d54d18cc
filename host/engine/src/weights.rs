//! The tensors of a model as a family sees them: checked shapes, then weights of a graph.

use crate::error::{EngineError, Result};
use paceline_gguf::{Gguf, TensorInfo};
use paceline_plugin_api::graph::{Builder, DType, ValueId};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;

/// What follows the name of a tensor of experts that has the rows of two matrices: for each expert those of the first,
/// then those of the second. Each is a weight of its own.
const HALVES: [&str; 2] = ["[gate]", "[up]"];

/// Where a file has a weight: a tensor, or a half of each of its matrices.
pub(crate) struct WeightSource<'a> {
    pub tensor: TensorInfo<'a>,
    half: Option<usize>,
}

impl<'a> WeightSource<'a> {
    /// Looks up the weight that a graph calls `name`.
    pub fn find(gguf: &'a Gguf, name: &str) -> Option<Self> {
        if let Some(tensor) = gguf.tensor(name) {
            return Some(Self { tensor, half: None });
        }
        let half = HALVES.iter().position(|half| name.ends_with(half))?;
        let tensor = gguf.tensor(name.strip_suffix(HALVES[half])?)?;
        (tensor.dims.len() == 3 && tensor.dims[1].is_multiple_of(2))
            .then_some(Self { tensor, half: Some(half) })
    }

    /// Elements along each dimension, the contiguous one first.
    pub fn dims(&self) -> Vec<u64> {
        let mut dims = self.tensor.dims.to_vec();
        if self.half.is_some() {
            dims[1] /= 2;
        }
        dims
    }

    /// The weight's bytes, of all that the tensor has.
    pub fn bytes(&self, all: &'a [u8]) -> Cow<'a, [u8]> {
        let (Some(half), Some(&matrices)) = (self.half, self.tensor.dims.last()) else {
            return Cow::Borrowed(all);
        };
        let size = all.len() / (2 * matrices as usize);
        Cow::Owned(all.chunks_exact(size).skip(half).step_by(2).flatten().copied().collect())
    }
}

/// A weight of the model, with its shape checked.
#[derive(Clone, Debug)]
pub struct Weight {
    name: String,
    dtype: DType,
    /// Rows, then columns: the reverse of the order in the file.
    dims: Vec<u32>,
}

impl Weight {
    /// Its name in graphs: the tensor's, and which half where it is one.
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
    /// Names of those that were asked for and found.
    used: RefCell<HashSet<String>>,
}

impl<'a> Tensors<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self { gguf, used: RefCell::default() }
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

    /// Matrices of experts: their number, and rows and columns of each.
    pub fn experts(&self, name: &str, dims: [u32; 3]) -> Result<Weight> {
        self.weight(name, &dims)
    }

    /// Two matrices for each expert, whose rows follow each other in one tensor.
    pub fn merged_experts(&self, name: &str, [count, rows, columns]: [u32; 3]) -> Result<[Weight; 2]> {
        let Weight { dtype, .. } = self.weight(name, &[count, 2 * rows, columns])?;
        Ok(HALVES.map(|half| Weight {
            name: format!("{name}{half}"),
            dtype,
            dims: vec![count, rows, columns],
        }))
    }

    /// A matrix as that of the one expert that there is.
    pub fn single_expert(&self, name: &str, rows: u32, columns: u32) -> Result<Weight> {
        Ok(Weight { dims: vec![1, rows, columns], ..self.matrix(name, rows, columns)? })
    }

    /// A vector as a matrix of one row.
    pub fn row(&self, name: &str, columns: u32) -> Result<Weight> {
        Ok(Weight { dims: vec![1, columns], ..self.weight(name, &[columns])? })
    }

    /// A vector, which is read element by element.
    pub fn vector(&self, name: &str, length: u32) -> Result<Weight> {
        self.elements(name, &[length])
    }

    /// A tensor that is read element by element: only F32 can be.
    pub fn elements(&self, name: &str, dims: &[u32]) -> Result<Weight> {
        let weight = self.weight(name, dims)?;
        if weight.dtype != DType::F32 {
            return Err(self.unsupported(format!(
                "tensor `{name}` is {}; norms, biases and other small tensors must be F32",
                weight.dtype
            )));
        }
        Ok(weight)
    }

    /// A table of token ids: only I32 can be.
    pub fn indices(&self, name: &str, length: u32) -> Result<Weight> {
        let weight = self.weight(name, &[length])?;
        if weight.dtype != DType::I32 {
            return Err(self.unsupported(format!("tensor `{name}` is {}; ids must be I32", weight.dtype)));
        }
        Ok(weight)
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
            return Err(self
                .unsupported(format!("tensor `{name}` has a scale of its own, which is not supported yet")));
        }
        self.used.borrow_mut().insert(name.to_owned());
        Ok(Weight { name: name.to_owned(), dtype: DType(tensor.tensor_type.id()), dims: dims.to_vec() })
    }

    /// Refuses a file with tensors that were not asked for: with them it is another model.
    pub fn refuse_unused(&self, architecture: &str) -> Result<()> {
        let used = self.used.borrow();
        let mut unused = self.gguf.tensors().filter(|tensor| !used.contains(tensor.name));
        let Some(first) = unused.next() else { return Ok(()) };
        let others = match unused.count() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        Err(self.unsupported(format!(
            "tensor `{}`{others} belongs to a kind of `{architecture}` that is not supported",
            first.name
        )))
    }

    /// An error about a file that could be right, but does not run here.
    pub fn unsupported(&self, what: impl Into<String>) -> EngineError {
        EngineError::Unsupported { file: crate::model::file_name(self.gguf), what: what.into() }
    }

    /// An error about this file.
    pub fn fault(&self, what: impl Into<String>) -> EngineError {
        EngineError::Model { file: crate::model::file_name(self.gguf), what: what.into() }
    }
}
