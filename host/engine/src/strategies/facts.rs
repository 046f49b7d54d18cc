//! What a strategy may know of the model files.

use crate::fragments;
use crate::model::Model;
use paceline_gguf::{Gguf, ValueRef};
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::strategy::{Source, TensorFacts};

/// The files of a context.
#[derive(Clone, Copy)]
pub(super) struct ModelFacts<'a> {
    pub model: &'a Model,
    pub draft: Option<&'a Gguf>,
}

impl ModelFacts<'_> {
    fn file(&self, source: Source) -> Option<&Gguf> {
        match source {
            Source::Target => Some(self.model.gguf()),
            Source::Draft => self.draft,
        }
    }

    pub fn integer_at(&self, source: Source, key: &str, index: u32) -> Option<i64> {
        match self.file(source)?.value(key)? {
            ValueRef::Array(array) => integer(&array.scalar(index as usize)?),
            scalar if index == 0 => integer(&scalar),
            _ => None,
        }
    }

    pub fn number(&self, source: Source, key: &str) -> Option<f64> {
        let value = self.file(source)?.value(key)?;
        match value {
            ValueRef::F32(number) => Some(number.into()),
            ValueRef::F64(number) => Some(number),
            other => integer(&other).map(|number| number as f64),
        }
    }

    pub fn text(&self, source: Source, key: &str) -> Option<String> {
        match self.file(source)?.value(key)? {
            ValueRef::Str(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        }
    }

    pub fn tensor(&self, source: Source, name: &str) -> Option<TensorFacts> {
        let tensor = self.file(source)?.tensor(name)?;
        let dims = tensor.dims.iter().rev().map(|&d| u32::try_from(d).ok()).collect::<Option<Vec<u32>>>()?;
        Some(TensorFacts { dtype: DType(tensor.tensor_type.id()), dims })
    }

    pub fn has_fragment(&self, name: &str) -> bool {
        fragments::has_fragment(self.model.family(), name)
    }
}

fn integer(value: &ValueRef<'_>) -> Option<i64> {
    match *value {
        ValueRef::U8(n) => Some(n.into()),
        ValueRef::I8(n) => Some(n.into()),
        ValueRef::U16(n) => Some(n.into()),
        ValueRef::I16(n) => Some(n.into()),
        ValueRef::U32(n) => Some(n.into()),
        ValueRef::I32(n) => Some(n.into()),
        ValueRef::U64(n) => i64::try_from(n).ok(),
        ValueRef::I64(n) => Some(n),
        ValueRef::Bool(on) => Some(on.into()),
        _ => None,
    }
}
