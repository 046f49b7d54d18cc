//! A minimal host that enters the backend as it is linked in.

use paceline_backend_cpu::plugin_entry;
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::client::{BackendClient, PluginClient};

static HOST: HostTable = HostTable::empty();

/// The backend.
pub fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}
