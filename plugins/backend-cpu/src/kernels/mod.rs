//! The kernels that are not matrix products.
//!
//! All levels give the same bits. Every kernel is written once, as a body with explicit fused
//! multiply-adds and fixed orders of summation, and compiled once per level: the compiler may
//! vectorise it but neither reorder nor contract its arithmetic. Nor do bits depend on how many
//! rows a call covers or on how threads divide them.
//!
//! Tensors are contiguous, row-major f32. A kernel covers a work range, so that several threads
//! share one operation; what they write goes through [`SharedSlice`]. No kernel allocates.
//!
//! Safety, the same for every kernel: during the call nobody else touches the parts of the outputs,
//! states or caches that the work range names. Shapes that do not fit together panic.

/// Compiles a kernel body once per level and chooses at run time.
///
/// The body is an `#[inline(always)] unsafe fn`, so each copy takes on the features of the
/// function that it is inlined into.
macro_rules! per_level {
    ($(#[$meta:meta])* $visible:vis fn $name:ident = $body:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// See [the module](crate::kernels).
        $visible unsafe fn $name(level: $crate::level::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller's contract is passed on.
                unsafe { $body($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller's contract is passed on.
                unsafe { $body($($arg),*) }
            }
            match level.usable() {
                // SAFETY: a usable level's features are there; the rest is the caller's promise.
                #[cfg(target_arch = "x86_64")]
                $crate::level::Level::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::level::Level::Avx512Vnni => unsafe { avx512($($arg),*) },
                // SAFETY: as above; this copy needs no features.
                _ => unsafe { $body($($arg),*) },
            }
        }
    };
}

pub mod argmax;
pub mod attention;
mod attention_math;
pub mod conv;
pub mod draw;
pub mod elementwise;
pub mod experts;
pub mod gdn;
pub mod kv;
mod kv_blocks;
mod lanes;
pub mod math;
pub mod norm;
pub mod rope;
pub mod rows;
mod shared;
pub mod softmax;
pub mod top_k;

pub use shared::SharedSlice;
