//! Bindings for the part of Level Zero that runs kernels: devices, memory, modules, command lists, events.
//!
//! Nothing is linked: [`LevelZero`] holds the functions of a loader that [`LevelZero::open`] opens at run time, so a program
//! starts where there is none. Types, constants and functions have the names of the specification, which says what they do.
//!
//! `bindings.rs` was made by bindgen and is checked in. To make it again, with the header of the package `libze-dev` and libclang:
//!
//! ```sh
//! plugins/level-zero-sys/bindings.sh
//! ```
//!
//! After a failed `zeInit` no other function may be called: loaders of some systems have let go of their drivers then, and crash.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, reason = "the names are those of the specification of Level Zero")]

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn,
    dead_code,
    reason = "generated code"
)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;

/// Names of the loader's library, in the order in which they are tried.
#[cfg(not(windows))]
pub const LOADERS: [&str; 2] = ["libze_loader.so.1", "libze_loader.so"];
/// Names of the loader's library, in the order in which they are tried.
#[cfg(windows)]
pub const LOADERS: [&str; 1] = ["ze_loader.dll"];

impl LevelZero {
    /// The functions of a loader: that of a path, or by a name that the system's loader finds.
    ///
    /// # Errors
    /// There is no such library, or it lacks a function.
    ///
    /// # Safety
    /// The library is a Level Zero loader of version 1.4 or newer: its initialisers run, and its functions have the types of these
    /// bindings.
    pub unsafe fn open(library: &str) -> Result<Self, libloading::Error> {
        // SAFETY: the caller's promise.
        unsafe { Self::new(library) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_or_is_another_is_refused() {
        // SAFETY: there is no such file, and the C library's initialisers have run.
        unsafe {
            assert!(LevelZero::open("libno_such_loader.so.1").is_err());
            assert!(LevelZero::open("libc.so.6").is_err());
        }
    }
}
