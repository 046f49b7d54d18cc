//! GPU kernels of Paceline: one source for all targets, what each kernel takes, how it is launched, and images.
//!
//! - [`params`]: one `#[repr(C)]` structure per kernel, which is passed by value, and its launch;
//! - [`layout`]: weights in device memory, packing and unpacking;
//! - [`images`] (with the features `cuda`, `hip`, `spirv`): compiled kernels;
//! - `code_object` (with the feature `code-objects`): target and kernels of a code object for AMD;
//! - `host` (with the feature of that name): running kernels on the CPU;
//! - `sources` (with the feature `hip-sources`), [`tuning`]: what kernels for AMD are compiled from, and how;
//! - [`header`]: the same structures in C.

#[cfg(feature = "code-objects")]
pub mod code_object;
pub mod header;
#[cfg(feature = "host")]
pub mod host;
pub mod images;
pub mod layout;
pub mod params;
#[cfg(feature = "hip-sources")]
pub mod sources;
#[cfg(feature = "spirv")]
pub mod spirv;
pub mod tuning;
