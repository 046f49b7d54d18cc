//! The meaning of a plugin's weight types.

use super::missing;
use crate::abi::{Bytes, WeightTypesTable};
use crate::abi_function;
use crate::error::{Error, Result};
use crate::graph::DType;

/// A plugin's `paceline.weight_types/1` behind its table.
#[derive(Clone, Copy)]
pub struct WeightTypesClient {
    table: &'static WeightTypesTable,
}

impl std::fmt::Debug for WeightTypesClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightTypesClient").field("can_quantize", &self.can_quantize()).finish()
    }
}

impl WeightTypesClient {
    pub(super) fn new(table: *const WeightTypesTable) -> Result<Self> {
        // SAFETY: a table begins with its size.
        let size = unsafe { *table.cast::<usize>() };
        if !table.is_aligned() || size < size_of::<usize>() * 2 {
            return Err(Error::invalid(format!("the table of weight types states a size of {size} bytes")));
        }
        // SAFETY: tables live as long as the process; fields are only read through `abi_function!`.
        Ok(Self { table: unsafe { &*table } })
    }

    /// Reads whole blocks of a type; `out` has room for exactly the elements that they hold.
    ///
    /// # Errors
    /// What the plugin reports; a table without the function.
    pub fn dequantize(&self, dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let function = abi_function!(self.table, WeightTypesTable, dequantize);
        let function = function.ok_or_else(|| missing("dequantize"))?;
        // SAFETY: the bytes and the places are live and as many as stated.
        unsafe { Error::take(function(dtype.0, Bytes::new(bytes), out.as_mut_ptr(), out.len())) }
    }

    /// Whether the plugin has a writer.
    pub fn can_quantize(&self) -> bool {
        abi_function!(self.table, WeightTypesTable, quantize).is_some()
    }

    /// Writes values as whole blocks of a type; `out` has room for exactly the bytes that they take.
    ///
    /// # Errors
    /// What the plugin reports; a table without the function.
    pub fn quantize(&self, dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
        let function = abi_function!(self.table, WeightTypesTable, quantize);
        let function = function.ok_or_else(|| missing("quantize"))?;
        // SAFETY: the values and the places are live and as many as stated.
        unsafe { Error::take(function(dtype.0, values.as_ptr(), values.len(), out.as_mut_ptr(), out.len())) }
    }
}
