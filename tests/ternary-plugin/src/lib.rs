//! A backend with a weight type and an operation of its own, for tests.
//!
//! It is the reference backend with both turned into what that knows: weights of the type `T1_58` become f32 when they
//! are imported, and `acme.negate/1` becomes a `scale/1` by -1.

mod backend;
mod format;

use backend::TernaryBackend;
use format::TernaryFormat;
use paceline_plugin_api::{PluginInfo, abi, backend_plugin, export_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "ternary",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: DESCRIPTOR,
};

backend_plugin!(INFO, TernaryBackend, TernaryBackend::new(), weight_types: TernaryFormat);

export_plugin!(crate::plugin_entry, crate::DESCRIPTOR);
