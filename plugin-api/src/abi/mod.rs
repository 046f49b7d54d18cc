//! The C ABI: `#[repr(C)]` types and nothing else.
//!
//! Rules that every type here keeps:
//!
//! - Tables and argument structs begin with `size`, the number of bytes that their maker knows of, and only
//!   ever grow at the end. A reader uses a field only if `size` covers it ([`covers`]). Where a struct is filled in
//!   for the caller, `size` comes back as the number of bytes that were filled.
//! - Structs that cross in arrays or inside other structs ([`WeightUse`], [`WeightImport`], [`GraphAttribute`],
//!   [`SettingText`], spans and points) keep their size within a major version.
//! - What is optional is a separate interface, asked for by id and minor version.
//! - Handles are opaque pointers. What allocates frees, by a function of its own table.
//! - Strings and byte ranges cross as pointer and length; strings are UTF-8 and not terminated.
//! - No `bool` and no enum by value: small integers, checked by their reader.
//! - Cold calls return a [`Status`] pointer (null is success); hot calls return a [`code`] and keep their text
//!   in the handle.

mod backend;
mod graph;
mod graph_capture;
mod host;
mod numbers;
mod peer_copy;
mod strategy;
mod text;
mod weight_types;

pub use backend::*;
pub use graph::*;
pub use graph_capture::*;
pub use host::*;
pub use numbers::*;
pub use peer_copy::*;
pub use strategy::*;
pub use text::*;
pub use weight_types::*;

use core::ffi::c_void;

/// Major version of this ABI. A new major is a new entry symbol.
pub const ABI_MAJOR: u32 = 1;
/// Minor version that this crate was built with.
pub const ABI_MINOR: u32 = 0;
/// Oldest minor version of [`ABI_MAJOR`] that this crate can talk to.
pub const ABI_OLDEST_MINOR: u32 = 0;
/// Name of the one symbol that a plugin exports.
pub const ENTRY_SYMBOL: &str = "paceline_plugin_entry_v1";
/// Interface id of [`BackendTable`].
pub const BACKEND_INTERFACE: &str = "paceline.backend/1";
/// Interface id of [`GraphTable`], which the host offers to plugins.
pub const GRAPH_INTERFACE: &str = "paceline.graph/1";

/// Result codes of hot calls and of [`Status`].
pub mod code {
    /// Success.
    pub const OK: i32 = 0;
    /// The caller broke the contract of a function.
    pub const INVALID: i32 = 1;
    /// Something that was asked for is not known or not possible here.
    pub const UNSUPPORTED: i32 = 2;
    /// Memory of the device or the host is exhausted.
    pub const OUT_OF_MEMORY: i32 = 3;
    /// The device is gone; nothing of it can be used any more.
    pub const DEVICE_LOST: i32 = 4;
    /// A limit of time passed.
    pub const TIMEOUT: i32 = 5;
    /// The plugin panicked or threw during this call.
    pub const PANIC: i32 = 6;
    /// An earlier panic or failure made this handle unusable.
    pub const POISONED: i32 = 7;
    /// Anything else that went wrong inside the plugin.
    pub const INTERNAL: i32 = 8;
}

/// Kinds of plugins.
pub mod kind {
    /// Computes graphs on devices.
    pub const BACKEND: u32 = 1;
    /// Guesses ahead or rolls back; see the strategy interfaces.
    pub const STRATEGY: u32 = 2;
}

/// A version of the ABI as one number: major in the upper half, minor in the lower.
pub const fn version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// An error that crosses the ABI. Its maker frees it through `release`.
#[repr(C)]
pub struct Status {
    /// Size of this struct in bytes.
    pub size: usize,
    /// One of [`code`], never `OK`.
    pub code: i32,
    /// Reserved, zero.
    pub flags: u32,
    /// What went wrong, for people; valid until `release`.
    pub message: Str,
    /// Frees this object. Any thread.
    pub release: Option<unsafe extern "C" fn(status: *mut Status)>,
}

/// What a plugin's entry symbol returns; valid for the life of the process.
#[repr(C)]
pub struct PluginTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Oldest ABI version that the plugin can talk to.
    pub abi_oldest: u32,
    /// ABI version that the plugin was built with.
    pub abi_built: u32,
    /// Id, lower case with dashes.
    pub id: Str,
    /// Version of the plugin, semver.
    pub plugin_version: Str,
    /// One of [`kind`].
    pub kind: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// The whole descriptor, TOML.
    pub descriptor: Str,
    /// Returns an interface's table, or null if the plugin lacks it. Any thread.
    pub get_interface: Option<unsafe extern "C" fn(id: Str, min_minor: u32) -> *const c_void>,
    /// Called once before the process ends, after every handle was freed. May be absent.
    pub shutdown: Option<unsafe extern "C" fn()>,
}

/// Type of the entry symbol. Null means that the plugin refuses this host.
pub type EntryFn = unsafe extern "C" fn(host: *const HostTable) -> *const PluginTable;

/// A struct that a caller passes in, which may be of an older minor version than the reader.
pub trait Argument: Copy {
    /// Size of the struct in version 1.0: what every caller has.
    const FIRST_SIZE: usize;
}

impl Argument for LoadArgs {
    const FIRST_SIZE: usize = 136;
}

impl Argument for LaunchArgs {
    const FIRST_SIZE: usize = 48;
}

impl Argument for PeerCopyArgs {
    const FIRST_SIZE: usize = 88;
}

impl Argument for GraphValue {
    const FIRST_SIZE: usize = 64;
}

impl Argument for ContextFacts {
    const FIRST_SIZE: usize = 88;
}

impl Argument for DeltaNetShape {
    const FIRST_SIZE: usize = 48;
}

impl Argument for ProposeArgs {
    const FIRST_SIZE: usize = 56;
}

impl Argument for Outcome {
    const FIRST_SIZE: usize = 32;
}

/// True when a struct of `size` bytes, as its maker stated, holds the field at `offset` of `field_size` bytes.
pub const fn covers(size: usize, offset: usize, field_size: usize) -> bool {
    match offset.checked_add(field_size) {
        Some(end) => size >= end,
        None => false,
    }
}

/// Reads an optional function pointer of a table, `None` when the table is too short or the field is null.
///
/// `abi_function!(table_pointer, TableType, field)`
#[macro_export]
macro_rules! abi_function {
    ($table:expr, $type:ty, $field:ident) => {{
        let table: *const $type = $table;
        let offset = ::core::mem::offset_of!($type, $field);
        // SAFETY: every table starts with its size, which is read first; the field is only read when the size
        // that the maker stated covers it.
        unsafe {
            if $crate::abi::covers((*table).size, offset, ::core::mem::size_of::<usize>()) {
                (*table).$field
            } else {
                None
            }
        }
    }};
}
