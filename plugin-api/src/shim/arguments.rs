//! What C callers pass, and what is written for them.

use crate::abi::{self, Str};
use crate::backend::{Uses, WeightUse};
use crate::error::{Error, Result};
use crate::graph::{DType, Shape};

/// # Safety
/// `pointer` must be null, with `count` 0, or point to `count` values.
pub(super) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Error::invalid("an array pointer is null or not aligned"));
    }
    // SAFETY: by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// # Safety
/// `out` must be null or writable.
pub(super) unsafe fn write<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid("a place for a result is null"));
    }
    // SAFETY: by the contract of this function.
    unsafe { out.write(value) };
    Ok(())
}

/// # Safety
/// `text` must be readable.
pub(super) unsafe fn utf8<'a>(text: Str) -> Result<&'a str> {
    // SAFETY: by the contract of this function.
    std::str::from_utf8(unsafe { text.bytes() }).map_err(|_| Error::invalid("a string is not UTF-8"))
}

/// # Safety
/// The strings of `weight` must be readable.
pub(super) unsafe fn weight_use(weight: &abi::WeightUse) -> Result<WeightUse> {
    let dims = weight.dims.get(..weight.rank as usize).and_then(Shape::new);
    Ok(WeightUse {
        // SAFETY: by the contract of this function.
        name: unsafe { utf8(weight.name)? }.to_owned(),
        dtype: DType(weight.dtype),
        shape: dims.ok_or_else(|| Error::invalid("a weight has more than 4 dimensions"))?,
        uses: Uses(weight.uses),
        group: weight.group,
    })
}

/// Texts of device descriptions live as long as the process: a description is asked for a few times at start.
pub(super) fn leak(text: String) -> Str {
    Str::new(Box::leak(text.into_boxed_str()))
}
