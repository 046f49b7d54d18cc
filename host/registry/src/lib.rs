//! Finds plugins, built in or in shared libraries, and opens them through the ABI.
//!
//! ```no_run
//! # fn main() -> Result<(), paceline_registry::Error> {
//! use paceline_registry::Registry;
//!
//! let mut registry = Registry::new()?;
//! registry.expect_builtins(&["cpu"])?;
//! registry.load_file("plugins/libmy_backend.so")?;
//! let backend = registry.backend(None)?;
//! # let _ = backend;
//! # Ok(())
//! # }
//! ```
//!
//! Rules:
//!
//! - A file is looked at before it is loaded: who may write it, and whether it is a whole shared library for this
//!   machine. Loading runs code in it, so what fails these checks is refused first.
//! - A plugin is never unloaded.
//! - A file that is given explicitly takes the place of the built-in plugin with the same id. Two files with the
//!   same id are an error.
//! - One plugin or device that fails does not hide the others.

#![deny(unsafe_code)]

mod error;
mod host_table;
mod library;
mod log_bridge;
mod plugin;
mod registry;
mod shared_object;
mod trust;

pub use error::{Error, FileFault, Result};
pub use host_table::HOST_TABLE;
pub use plugin::{Origin, Plugin};
pub use registry::{BackendDevices, Registry};
