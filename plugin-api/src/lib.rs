//! Everything that a Paceline plugin author needs.
//!
//! A plugin is a shared library with one symbol, `paceline_plugin_entry_v1`, behind which stand plain C tables
//! ([`abi`]). Authors in Rust never see them: they implement the traits of [`backend`], make a
//! [`PluginInfo`], and write [`export_plugin!`]. Authors in C++ use the same tables.
//!
//! - [`graph`] is what crosses: the steps of a model as data, with the operations that exist;
//! - [`backend`] are the traits of a backend, and the data types that they speak;
//! - [`support`] has parts that most backends need: timelines, layouts of weights, places in a workspace,
//!   checks of parameters;
//! - [`strategy`] are the traits of drafters and rollback strategies;
//! - [`settings`] declares what a user may set;
//! - [`mod@weight_types`] are types of weights that only the plugin knows;
//! - [`error`] is the error that every call returns; a panic becomes one at the plugin's edge;
//! - [`log`] carries `tracing` events from a plugin to the host;
//! - [`client`] is the other side: safe wrappers with which the host, and tests, use a plugin through its tables.
//!
//! The guides in `plugin-api/docs` show a whole backend.

pub mod abi;
pub mod backend;
pub mod client;
pub mod descriptor;
pub mod error;
mod export;
mod export_strategy;
pub mod graph;
pub mod log;
pub mod settings;
mod shim;
pub mod strategy;
pub mod support;
pub mod weight_types;

pub use error::{Error, ErrorKind, Result};
pub use export::{Builtin, PluginInfo, builtins};
#[doc(hidden)]
pub use inventory;
#[doc(hidden)]
pub use shim::{backend_table, drafter_table, rollback_table};

/// What the macros refer to.
#[doc(hidden)]
pub mod shim_instance {
    pub use crate::export::{accept_host, can_talk_to};
    pub use crate::shim::{
        DrafterInstance, Instance, RollbackInstance, graph_capture_table, peer_copy_table,
    };
    pub use crate::weight_types::weight_types_table;
}
