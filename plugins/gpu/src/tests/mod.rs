//! The whole plugin on a stand-in for the driver, whose kernels run on the processor.

mod conformance;
mod experts;
mod faults;
mod fusions;
mod led;
mod peers;
mod plans;
mod prompts;
mod shared;

use crate::capabilities::{FUSION, GRAPHS, OVERLAP, PROFILE, PROMPTS};
use crate::driver::Driver;
use crate::driver::double::DoubleDriver;
use crate::{GpuBackend, Images, NoDriver, Platform};
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::backend_plugin;
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::settings::Setting;
use paceline_plugin_api::{PluginInfo, abi};

/// A platform whose driver is a stand-in.
struct DoublePlatform(Option<&'static DoubleDriver>);

impl DoublePlatform {
    fn backend(driver: &'static DoubleDriver) -> GpuBackend {
        GpuBackend::new(Box::leak(Box::new(Self(Some(driver)))))
    }
}

impl Platform for DoublePlatform {
    fn id(&self) -> &'static str {
        "double"
    }

    fn settings(&self) -> &'static [Setting] {
        &[GRAPHS, OVERLAP, FUSION, PROMPTS, PROFILE]
    }

    fn driver(&self) -> Result<&'static dyn Driver, NoDriver> {
        self.0
            .map(|driver| driver as &dyn Driver)
            .ok_or_else(|| NoDriver::Missing("there is no double".into()))
    }

    fn hidden_by(&self) -> Option<&'static str> {
        None
    }

    fn refuses(&self, target: &str) -> Option<String> {
        (target == "old").then(|| "there are no kernels for `old`".into())
    }

    fn images(&self, _: &str) -> Vec<Images> {
        let image =
            || paceline_kernels::images::Image { module: "all", architecture: "host", bytes: Vec::new() };
        ["machine code", "what a driver compiles"]
            .map(|what| Images::new(what, what == "machine code", move || Ok(vec![image(), image()])))
            .into()
    }

    fn module_of(&self, _: &str) -> Option<&'static str> {
        Some("all")
    }

    fn has_bf16(&self, target: &str) -> bool {
        target == "with-bf16"
    }
}

const INFO: PluginInfo = PluginInfo {
    id: "double",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::BACKEND,
    descriptor: "id = \"double\"\nkind = \"backend\"\nversion = \"0.1.0\"\n\
                 abi = { oldest = \"1.0\", built = \"1.0\" }\nlicense = \"MIT\"\nsummary = \"A stand-in.\"\n",
};

backend_plugin!(INFO, GpuBackend, DoublePlatform::backend(DoubleDriver::leaked()));

static HOST: HostTable = HostTable::empty();

fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}
