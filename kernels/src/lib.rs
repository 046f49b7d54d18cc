//! GPU kernels of Paceline: one source for all targets, what each kernel takes, how it is launched, and images.
//!
//! - [`params`]: one `#[repr(C)]` structure per kernel, which is passed by value, and its launch;
//! - [`layout`]: weights in device memory, packing and unpacking;
//! - [`images`] (with the features `cuda`, `hip`, `spirv`): compiled kernels;
//! - `host` (with the feature of that name): running kernels on the CPU;
//! - [`header`]: the same structures in C.

pub mod header;
#[cfg(feature = "host")]
pub mod host;
pub mod images;
pub mod layout;
pub mod params;
#[cfg(feature = "spirv")]
pub mod spirv;
