//! A minimal host that enters the backend as it is linked in.

use paceline_backend_sim::plugin_entry;
use paceline_plugin_api::abi::{self, HostTable};
use paceline_plugin_api::client::{BackendClient, PluginClient};

/// A host that offers nothing.
static HOST: HostTable = HostTable {
    size: size_of::<HostTable>(),
    abi_oldest: abi::version(abi::ABI_MAJOR, abi::ABI_OLDEST_MINOR),
    abi_current: abi::version(abi::ABI_MAJOR, abi::ABI_MINOR),
    context: std::ptr::null_mut(),
    log_enabled: None,
    log_event: None,
    span_new: None,
    span_enter: None,
    span_exit: None,
    span_close: None,
    get_interface: None,
};

/// The backend.
pub fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}
