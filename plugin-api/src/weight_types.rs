//! Weight types of a plugin's own.
//!
//! A backend's descriptor declares them, each with an id, a name, and elements and bytes per block:
//!
//! ```toml
//! [[weight_type]]
//! id = 200
//! name = "T1_58"
//! elements = 256
//! bytes = 54
//! ```
//!
//! A host loads tensors of such a type onto that backend and refuses them elsewhere. What the bytes mean the plugin
//! says with a [`ReferenceFormat`], against which the conformance suite measures its kernels.

use crate::abi::{self, Bytes, Status, WeightTypesTable};
use crate::error::{Error, Result, guard};
use crate::graph::{DType, Shape};
use std::marker::PhantomData;

/// A weight type that a plugin declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightType {
    /// Id in model files, from [`abi::TYPE_FIRST_DECLARED`] on.
    pub id: u32,
    /// Name for people.
    pub name: String,
    /// Elements per block; rows are whole blocks.
    pub elements: u32,
    /// Bytes per block.
    pub bytes: u32,
}

/// Most elements of a block.
const MOST_ELEMENTS: u32 = 1 << 16;
/// Most bytes of a block.
const MOST_BYTES: u32 = 1 << 20;
/// Longest name.
const LONGEST_NAME: usize = 32;

impl WeightType {
    /// The type in graphs.
    pub fn dtype(&self) -> DType {
        DType(self.id)
    }

    /// Bytes of a whole tensor; `None` if a row is not whole blocks, or the size overflows.
    pub fn tensor_bytes(&self, shape: &Shape) -> Option<u64> {
        let elements = shape.elements()?;
        if self.elements == 0 || !shape.last().is_multiple_of(self.elements) {
            return None;
        }
        (elements / u64::from(self.elements)).checked_mul(self.bytes.into())
    }

    /// Checks what a declaration may say.
    ///
    /// # Errors
    /// The key that is wrong, and what would do.
    pub fn check(&self) -> Result<(), String> {
        let first = abi::TYPE_FIRST_DECLARED;
        if self.id < first {
            return Err(format!(
                "the `id` {} is one of GGUF's own, which are below {first}: use a number from {first} on",
                self.id
            ));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let begins = self.name.starts_with(|first: char| first.is_ascii_alphabetic());
        if !begins || self.name.len() > LONGEST_NAME || !self.name.bytes().all(allowed) {
            return Err(format!(
                "the `name` `{}` must be letters, digits and `_-.`, at most {}, the first a letter",
                self.name.escape_debug(),
                LONGEST_NAME
            ));
        }
        if DType::from_name(&self.name).is_some() {
            return Err(format!(
                "the `name` `{}` is that of one of GGUF's own types: use another",
                self.name
            ));
        }
        for (key, value, most) in
            [("elements", self.elements, MOST_ELEMENTS), ("bytes", self.bytes, MOST_BYTES)]
        {
            if value == 0 || value > most {
                return Err(format!("`{key}` is {value}; a block has from 1 to {most}"));
            }
        }
        Ok(())
    }
}

/// What the bytes of a plugin's weight types mean, in the plainest way there is. Kernels are measured with it, so it
/// should share no code with them.
pub trait ReferenceFormat: 'static {
    /// Reads whole blocks; `out` has room for exactly the elements that they hold.
    ///
    /// # Errors
    /// A type that is not one of the plugin's, lengths that do not fit each other.
    fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()>;

    /// Writes finite values, whole blocks; what reads back need only be near. Without it the suite takes random bytes.
    ///
    /// # Errors
    /// A type that is not one of the plugin's or cannot be written, lengths that do not fit each other.
    fn quantize(dtype: DType, _values: &[f32], _out: &mut [u8]) -> Result<()> {
        Err(Error::unsupported(format!("{dtype} has no writer")))
    }
}

/// The C table of a plugin's weight types.
#[doc(hidden)]
pub fn weight_types_table<F: ReferenceFormat>() -> &'static WeightTypesTable {
    const { &Table::<F>::TABLE }
}

struct Table<F>(PhantomData<F>);

impl<F: ReferenceFormat> Table<F> {
    const TABLE: WeightTypesTable = WeightTypesTable {
        size: size_of::<WeightTypesTable>(),
        dequantize: Some(Self::dequantize),
        quantize: Some(Self::quantize),
    };

    unsafe extern "C" fn dequantize(dtype: u32, bytes: Bytes, out: *mut f32, count: usize) -> *mut Status {
        guard(|| {
            check_array(out, count)?;
            // SAFETY: the caller passes readable bytes, and `count` places that are checked above.
            let (bytes, out) = unsafe {
                out.write_bytes(0, count);
                (bytes.get(), std::slice::from_raw_parts_mut(out, count))
            };
            F::dequantize(DType(dtype), bytes, out)
        })
    }

    unsafe extern "C" fn quantize(
        dtype: u32,
        values: *const f32,
        count: usize,
        out: *mut u8,
        out_bytes: usize,
    ) -> *mut Status {
        guard(|| {
            check_array(values, count)?;
            check_array(out, out_bytes)?;
            // SAFETY: the caller passes `count` values and `out_bytes` places, which are checked above.
            let (values, out) = unsafe {
                out.write_bytes(0, out_bytes);
                (std::slice::from_raw_parts(values, count), std::slice::from_raw_parts_mut(out, out_bytes))
            };
            F::quantize(DType(dtype), values, out)
        })
    }
}

/// An array that can become a slice: not even an empty one has a null pointer here.
fn check_array<T>(pointer: *const T, count: usize) -> Result<()> {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return Err(Error::invalid("an array pointer is null or not aligned, or the array is too long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> WeightType {
        WeightType { id: 200, name: "T1_58".into(), elements: 256, bytes: 54 }
    }

    #[test]
    fn a_declaration_is_checked_key_by_key() {
        assert_eq!(declared().check(), Ok(()));
        let fault = |change: &dyn Fn(&mut WeightType)| {
            let mut changed = declared();
            change(&mut changed);
            changed.check().unwrap_err()
        };
        assert_eq!(
            fault(&|it| it.id = 35),
            "the `id` 35 is one of GGUF's own, which are below 64: use a number from 64 on"
        );
        assert_eq!(
            fault(&|it| it.name = "q8_0".into()),
            "the `name` `q8_0` is that of one of GGUF's own types: use another"
        );
        for name in ["", "1_58", "T 1", "T\n", &"T".repeat(33)] {
            assert!(fault(&|it| it.name = name.into()).contains("must be letters, digits"), "{name}");
        }
        assert_eq!(fault(&|it| it.elements = 0), "`elements` is 0; a block has from 1 to 65536");
        assert_eq!(fault(&|it| it.bytes = u32::MAX), "`bytes` is 4294967295; a block has from 1 to 1048576");
    }

    #[test]
    fn tensors_are_whole_blocks() {
        let bytes = |dims: &[u32]| declared().tensor_bytes(&Shape::new(dims).unwrap());
        assert_eq!(bytes(&[3, 512]), Some(3 * 2 * 54));
        assert_eq!(bytes(&[512, 3]), None);
        assert_eq!(bytes(&[u32::MAX, u32::MAX, u32::MAX, 256]), None);
    }
}
