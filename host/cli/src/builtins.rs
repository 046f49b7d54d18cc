//! The plugins that are linked into this program.

// A crate that nothing refers to is dropped by the linker, and its plugin with it.
#[cfg(feature = "backend-cpu")]
use paceline_backend_cpu as _;

/// Their ids.
pub const BUILTINS: &[&str] = &[
    #[cfg(feature = "backend-cpu")]
    "cpu",
];
