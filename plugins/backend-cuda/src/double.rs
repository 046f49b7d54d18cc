//! The backend on a stand-in for the driver: what NVIDIA's devices get, run by the processor.

use crate::driver::NEEDED_VERSION;
use crate::platform::Cuda;
use paceline_gpu::GpuBackend;
use paceline_gpu::driver::Driver;
use paceline_gpu::driver::double::DoubleDriver;
use std::sync::OnceLock;

fn driver() -> &'static DoubleDriver {
    static DRIVER: OnceLock<&'static DoubleDriver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        DoubleDriver::leaked_with(|driver| {
            driver.facts.name = "CUDA double".into();
            driver.facts.target = "sm_90".into();
        })
    })
}

/// The backend with one device of compute capability 9.0 and 4 GiB.
pub fn backend() -> GpuBackend {
    static PLATFORM: Cuda = Cuda { find: || Ok(driver() as &dyn Driver), version: || Ok(NEEDED_VERSION) };
    GpuBackend::new(&PLATFORM)
}
