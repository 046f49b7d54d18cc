//! Compares the layouts of the frozen ABI types between a plugin and a host.
//!
//! The ABI is C, and a plugin needs nothing of this crate. A plugin that was built with another copy of
//! `paceline-plugin-api` could still be wrong about a struct; this crate lets it carry a description of the types that
//! every version shares, made by `abi_stable` from the types themselves, and compares that with the host's own.
//!
//! - `types` has the types: texts, statuses, what a plugin, a device and a tensor are. A struct that grows is there as
//!   version 1.0 has it, so growing makes no difference, in either direction. The tables of functions, which grow, are
//!   not there.
//! - `carry_layouts!` puts the description into a plugin's library: an `abi_stable` root module, frozen like the types,
//!   which also hands over the C entry.
//! - `compare` holds a library's description against this crate's.
//!
//! All of it is behind the feature `layouts`, so that nothing of `abi_stable` enters a build that does not ask for it.

#[cfg(feature = "layouts")]
mod compare;
#[cfg(feature = "layouts")]
mod module;
#[cfg(feature = "layouts")]
pub mod types;

#[cfg(feature = "layouts")]
pub use compare::{LayoutDifference, compare};
#[cfg(feature = "layouts")]
pub use module::{PluginModule, PluginModuleRef, module};

/// What the macros refer to.
#[cfg(feature = "layouts")]
#[doc(hidden)]
pub mod private {
    pub use abi_stable;
}
