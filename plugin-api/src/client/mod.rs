//! The host's side: safe wrappers around a plugin's tables.
//!
//! Nothing here trusts the other side more than the ABI makes it necessary: versions, sizes and null pointers are
//! checked, texts are copied, codes are range-checked. What a plugin does inside its own functions is its own.

mod backend;
mod device;
mod interfaces;
mod session;
mod strategy;
mod weight_types;

pub use backend::{BackendClient, PlanClient};
pub use device::{
    ArenaClient, DeviceClient, ExecutableClient, LoadSpans, SemaphoreClient, SpanClient, WeightImportClient,
};
pub use weight_types::WeightTypesClient;

pub use strategy::{DrafterClient, DrafterPluginClient, RollbackClient, RollbackPluginClient};

use crate::abi::{self, EntryFn, HostTable, PluginTable, Str};
use crate::abi_function;
use crate::error::{Error, Result};
use interfaces::Interfaces;
use std::ffi::c_void;

/// A plugin whose entry was called.
#[derive(Clone, Copy)]
pub struct PluginClient {
    table: &'static PluginTable,
}

impl PluginClient {
    /// Enters a plugin and checks its table.
    ///
    /// # Errors
    /// A plugin that refuses this host, whose table is malformed, or whose range of ABI versions does not meet the
    /// host's; both ranges are named.
    ///
    /// # Safety
    /// `entry` must be a plugin's entry function in a library that is never unloaded.
    pub unsafe fn enter(entry: EntryFn, host: &'static HostTable) -> Result<Self> {
        // SAFETY: by the contract of this function.
        let table = unsafe { entry(host) };
        let range = |oldest: u32, newest: u32| format!("{}..={}", version_text(oldest), version_text(newest));
        let mine = range(host.abi_oldest, host.abi_current);
        if table.is_null() {
            return Err(Error::unsupported(format!(
                "the plugin refuses this host, which speaks ABI {mine}: use a plugin built for that range"
            )));
        }
        // SAFETY: a plugin's table begins with its size and lives as long as the process.
        let size = unsafe { *table.cast::<usize>() };
        if !table.is_aligned() || size < std::mem::offset_of!(PluginTable, shutdown) {
            return Err(Error::invalid(format!(
                "the plugin's table states a size of {size} bytes: too short"
            )));
        }
        // SAFETY: the size covers all fields that are read through this reference; `shutdown` is only read
        // through `abi_function!`.
        let table = unsafe { &*table };
        if table.abi_oldest > host.abi_current || table.abi_built < host.abi_oldest {
            return Err(Error::unsupported(format!(
                "the plugin speaks ABI {}, this host {mine}: they have no version in common",
                range(table.abi_oldest, table.abi_built),
            )));
        }
        let plugin = Self { table };
        if plugin.id().is_empty() || plugin.version().is_empty() || table.get_interface.is_none() {
            return Err(Error::invalid("the plugin's table lacks an id, a version or its interfaces"));
        }
        Ok(plugin)
    }

    /// The plugin's id.
    pub fn id(&self) -> String {
        // SAFETY: texts of the table live as long as the process.
        unsafe { self.table.id.to_text() }
    }

    /// The plugin's version.
    pub fn version(&self) -> String {
        // SAFETY: texts of the table live as long as the process.
        unsafe { self.table.plugin_version.to_text() }
    }

    /// The plugin's descriptor, TOML.
    pub fn descriptor(&self) -> String {
        // SAFETY: texts of the table live as long as the process.
        unsafe { self.table.descriptor.to_text() }
    }

    /// The plugin's kind, one of [`abi::kind`].
    pub fn kind(&self) -> u32 {
        self.table.kind
    }

    /// Oldest and newest ABI version that the plugin speaks, as text.
    pub fn abi_range(&self) -> (String, String) {
        (version_text(self.table.abi_oldest), version_text(self.table.abi_built))
    }

    /// An interface's table, `None` if the plugin lacks it.
    fn interface(&self, id: &str, min_minor: u32) -> Option<*const c_void> {
        let get = abi_function!(self.table, PluginTable, get_interface)?;
        // SAFETY: the text outlives the call.
        let table = unsafe { get(Str::new(id), min_minor) };
        (!table.is_null()).then_some(table)
    }

    /// The plugin as a backend.
    ///
    /// # Errors
    /// A plugin that is not a backend, or whose table is too short.
    pub fn backend(&self) -> Result<BackendClient> {
        let table = self.interface(abi::BACKEND_INTERFACE, 0).ok_or_else(|| {
            Error::unsupported(format!("plugin `{}` has no interface {}", self.id(), abi::BACKEND_INTERFACE))
        })?;
        let interfaces = Interfaces {
            peer_copy: self
                .interface(abi::PEER_COPY_INTERFACE, 0)
                // SAFETY: tables live as long as the process.
                .map(|it| unsafe { interfaces::table(it.cast(), abi::PEER_COPY_INTERFACE) })
                .transpose()?,
            graph_capture: self
                .interface(abi::GRAPH_CAPTURE_INTERFACE, 0)
                // SAFETY: as above.
                .map(|it| unsafe { interfaces::table(it.cast(), abi::GRAPH_CAPTURE_INTERFACE) })
                .transpose()?,
        };
        BackendClient::new(self.id(), table.cast(), interfaces)
    }

    /// What the plugin says about the weight types that it declares; `None` if it does not.
    ///
    /// # Errors
    /// A table that is too short.
    pub fn weight_types(&self) -> Result<Option<WeightTypesClient>> {
        self.interface(abi::WEIGHT_TYPES_INTERFACE, 0)
            .map(|table| WeightTypesClient::new(table.cast()))
            .transpose()
    }

    /// The plugin's drafters, `None` if it has none.
    ///
    /// # Errors
    /// A table that is too short.
    pub fn drafters(&self) -> Result<Option<DrafterPluginClient>> {
        let table = self.interface(abi::DRAFTER_INTERFACE, 0);
        table.map(|table| DrafterPluginClient::new(self.id(), table)).transpose()
    }

    /// The plugin's rollback strategies, `None` if it has none.
    ///
    /// # Errors
    /// A table that is too short.
    pub fn rollbacks(&self) -> Result<Option<RollbackPluginClient>> {
        let table = self.interface(abi::ROLLBACK_INTERFACE, 0);
        table.map(|table| RollbackPluginClient::new(self.id(), table)).transpose()
    }
}

/// `major.minor` of an ABI version.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xFFFF)
}

/// Reports a function that the table lacks.
fn missing(name: &str) -> Error {
    Error::unsupported(format!("the plugin lacks the function `{name}`"))
}
