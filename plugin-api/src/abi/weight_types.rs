//! Weight types of a plugin's own: the interface that says what their bytes mean.

use super::{Bytes, Status};

/// Interface id of [`WeightTypesTable`], which a plugin may offer.
pub const WEIGHT_TYPES_INTERFACE: &str = "paceline.weight_types/1";

/// Functions of `paceline.weight_types/1`: the meaning of the weight types that the plugin's descriptor declares. Pure,
/// any thread, slow if they like: the conformance suite measures the plugin's kernels with them.
#[repr(C)]
pub struct WeightTypesTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Reads whole blocks into `count` values, which are as many as the bytes hold.
    pub dequantize:
        Option<unsafe extern "C" fn(dtype: u32, bytes: Bytes, out: *mut f32, count: usize) -> *mut Status>,
    /// Writes `count` finite values, whole blocks, into `out_bytes` bytes, which are as many as they take. The values
    /// that come back need only be near. May be absent: the suite then takes random bytes.
    pub quantize: Option<
        unsafe extern "C" fn(
            dtype: u32,
            values: *const f32,
            count: usize,
            out: *mut u8,
            out_bytes: usize,
        ) -> *mut Status,
    >,
}

// SAFETY: the table is constant and its functions may be called from any thread.
unsafe impl Sync for WeightTypesTable {}
