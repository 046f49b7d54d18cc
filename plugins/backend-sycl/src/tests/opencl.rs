//! Intel's OpenCL runtime for processors, which takes the same SPIR-V as their GPUs. It is large, so whoever wants these tests
//! says where it is: `PACELINE_INTEL_OPENCL` is the folder of `libintelocl.so`, for example that of the packages
//! `intel-opencl-rt` and `intel-cmplr-lib-rt` of PyPI. The variables that make it be found have to be there when a process begins, so each test runs in a
//! process of its own.

use super::whole_suite;
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::client::{BackendClient, PluginClient};
use std::process::Command;

const RUNTIME: &str = "PACELINE_INTEL_OPENCL";
/// Set in the process that a test starts.
const INNER: &str = "PACELINE_INTEL_OPENCL_INNER";

static HOST: HostTable = HostTable::empty();

pub(super) fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(crate::plugin_entry, &HOST) }.unwrap().backend().unwrap()
}

/// Runs `inner` on the processor with sub-groups of `width` lanes, in a process of its own: the test `name` of this module,
/// begun again.
fn on_processor(name: &str, width: u32, inner: impl FnOnce(&BackendClient)) {
    if std::env::var_os(INNER).is_some() {
        let backend = backend();
        let devices = backend.devices().unwrap();
        assert_eq!(devices.len(), 1, "{devices:?}");
        assert!(devices[0].capabilities.contains(&format!("wave={width}")), "{devices:?}");
        return inner(&backend);
    }
    let Some(folder) = std::env::var_os(RUNTIME).filter(|folder| !folder.is_empty()) else {
        println!("skipped: {RUNTIME} is not set");
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let library = folder.join("libintelocl.so");
    assert!(library.exists(), "{RUNTIME}: there is no {}", library.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("tests::opencl::{name}"), "--exact", "--nocapture"]);
    command.env(INNER, "1").env("OCL_ICD_FILENAMES", &library).env("OCL_ICD_VENDORS", &library);
    let loader = folder.join("libOpenCL.so.1");
    if loader.exists() {
        command.env("OPENCL_DYLIB_PATH", loader);
    }
    command.env("ONEAPI_DEVICE_SELECTOR", "opencl:cpu").env("SYCL_SUBGROUP_WIDTH", width.to_string());
    assert!(command.status().unwrap().success(), "with sub-groups of {width}");
}

#[test]
fn conformance_at_8() {
    on_processor("conformance_at_8", 8, whole_suite);
}

#[test]
fn conformance_at_16() {
    on_processor("conformance_at_16", 16, whole_suite);
}

#[test]
fn conformance_at_32() {
    on_processor("conformance_at_32", 32, whole_suite);
}
