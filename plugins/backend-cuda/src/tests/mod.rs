//! The whole plugin on a stand-in for the driver, whose kernels run on the processor.

mod conformance;
mod faults;
mod fusions;
mod shared;

use crate::backend::CudaBackend;
use crate::driver::Driver;
use crate::driver::double::DoubleDriver;
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::backend_plugin;
use paceline_plugin_api::client::{BackendClient, PluginClient};
use std::sync::OnceLock;

backend_plugin!(crate::INFO, CudaBackend, CudaBackend::on(|| Ok(driver() as &dyn Driver)));

fn driver() -> &'static DoubleDriver {
    static DRIVER: OnceLock<&'static DoubleDriver> = OnceLock::new();
    DRIVER.get_or_init(DoubleDriver::leaked)
}

static HOST: HostTable = HostTable::empty();

fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}
