//! NVIDIA's driver, devices, kernels and words.

use crate::driver::{CudaDriver, NEEDED_VERSION, NoCuda, failure};
use paceline_gpu::capabilities::{FUSION, GRAPHS, OVERLAP, PROFILE, PROMPTS};
use paceline_gpu::driver::{DeviceFacts, Driver, DriverError, DriverResult};
use paceline_gpu::{Images, NoDriver, Platform};
use paceline_kernels::images::cuda;
use paceline_kernels::params::linear::cuda_shared_bytes;
use paceline_plugin_api::settings::Setting;
use paceline_plugin_api::{Error, ErrorKind};

/// The oldest compute capability that there are kernels for.
const OLDEST: (u32, u32) = (8, 0);

/// What is asked of whoever has no driver, or one that is too old.
const INSTALL: &str = "install NVIDIA's driver 580 or newer";

/// The settings of a device.
pub(crate) const SETTINGS: &[Setting] = &[GRAPHS, OVERLAP, FUSION, PROMPTS, PROFILE];

/// The platform; the driver is found by `find` and asked for its version.
pub(crate) struct Cuda {
    pub find: fn() -> Result<&'static dyn Driver, NoCuda>,
    pub version: fn() -> DriverResult<i32>,
}

/// The driver that is installed.
pub(crate) static INSTALLED: Cuda =
    Cuda { find: || CudaDriver::get().map(|driver| driver as &dyn Driver), version: CudaDriver::version };

/// The compute capability in a target, `sm_90`.
fn compute_capability(target: &str) -> Option<(u32, u32)> {
    let number: u32 = target.strip_prefix("sm_")?.parse().ok()?;
    Some((number / 10, number % 10))
}

fn not_started(error: &DriverError) -> NoDriver {
    let what_to_do = match u32::try_from(error.code).unwrap_or(0) {
        failure::STUB_LIBRARY => {
            "the library is the toolkit's stub: take the folder `stubs` off LD_LIBRARY_PATH"
        }
        failure::SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module are of different versions: restart the machine"
        }
        failure::DEVICE_UNAVAILABLE => "another process may hold the device for itself alone",
        _ => "`nvidia-smi` shows whether the driver works",
    };
    let text = format!("the CUDA driver does not start: {error}; {what_to_do}");
    NoDriver::Failed(Error::new(ErrorKind::Internal, text))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

impl Platform for Cuda {
    fn id(&self) -> &'static str {
        "cuda"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn driver(&self) -> Result<&'static dyn Driver, NoDriver> {
        let driver = (self.find)().map_err(|why| match why {
            NoCuda::Missing => {
                NoDriver::Missing(format!("there is no CUDA driver: libcuda.so.1 was not found; {INSTALL}"))
            }
            NoCuda::Failed(error) => not_started(&error),
        })?;
        let version = (self.version)().map_err(|error| not_started(&error))?;
        if version < NEEDED_VERSION {
            let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
            return Err(NoDriver::Failed(Error::unsupported(format!(
                "the CUDA driver is too old: it has CUDA {}, {} is needed; {INSTALL}",
                text(version),
                text(NEEDED_VERSION)
            ))));
        }
        Ok(driver)
    }

    /// The driver's own order is by speed, and other tools number devices by their PCI addresses. Who sets one of these
    /// variables has said which order is meant.
    fn order(&self, devices: &mut [(u32, DeviceFacts)]) {
        if !["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"].into_iter().any(is_set) {
            devices.sort_by(|(_, a), (_, b)| a.pci.cmp(&b.pci));
        }
    }

    fn hidden_by(&self) -> Option<&'static str> {
        std::env::var_os("CUDA_VISIBLE_DEVICES").map(|_| "CUDA_VISIBLE_DEVICES")
    }

    fn refuses(&self, target: &str) -> Option<String> {
        let oldest = format!("{}.{} is the oldest that there are kernels for", OLDEST.0, OLDEST.1);
        match compute_capability(target) {
            Some(capability) if capability >= OLDEST => None,
            Some((major, minor)) => {
                Some(format!("there are no kernels for compute capability {major}.{minor}; {oldest}"))
            }
            None => Some(format!("`{target}` is not a compute capability, such as `sm_90`")),
        }
    }

    /// Machine code, then PTX, which the driver compiles, for whatever the machine code does not suit.
    fn images(&self, target: &str) -> Vec<Images> {
        let capability = compute_capability(target);
        let code = capability.and_then(|(major, minor)| cuda::cubins(major, minor));
        // Only the machine code for newer devices waits by itself for the kernel before it.
        let code = code.map(|architecture| {
            Images::new(format!("the machine code for {architecture}"), architecture != "sm_80", move || {
                Ok(cuda::images(architecture))
            })
        });
        let ptx =
            Images::new("PTX, which the driver compiles, and that takes a while", false, || Ok(cuda::ptx()));
        code.into_iter().chain([ptx]).collect()
    }

    fn module_of(&self, entry: &str) -> Option<&'static str> {
        cuda::module_of(entry)
    }

    /// Warpgroups that multiply: compute capability 9.0 has the instructions, and no other.
    fn has_bf16(&self, target: &str) -> bool {
        compute_capability(target) == Some((9, 0))
    }

    fn shared_bytes(&self, entry: &str, threads: u32) -> u32 {
        cuda_shared_bytes(entry, threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_gpu::GpuBackend;
    use paceline_gpu::driver::Cause;
    use paceline_gpu::driver::double::DoubleDriver;
    use paceline_plugin_api::backend::Backend;

    fn backend(
        find: fn() -> Result<&'static dyn Driver, NoCuda>,
        version: fn() -> DriverResult<i32>,
    ) -> GpuBackend {
        GpuBackend::new(Box::leak(Box::new(Cuda { find, version })))
    }

    fn failed(name: &str) -> DriverError {
        DriverError {
            call: "cuInit",
            code: 803,
            cause: Cause::Other,
            name: name.into(),
            text: "system has unsupported display driver / cuda driver combination".into(),
            advice: "",
        }
    }

    #[test]
    fn no_driver_is_no_device() {
        let backend = backend(|| Err(NoCuda::Missing), || Ok(NEEDED_VERSION));
        assert_eq!(backend.devices(), Ok(Vec::new()));
        let error = backend.open(0, &[]).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("libcuda.so.1") && error.message.contains("580"), "{}", error.message);
    }

    #[test]
    fn a_driver_that_does_not_start_is_an_error() {
        let backend = backend(
            || Err(NoCuda::Failed(failed("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"))),
            || Ok(NEEDED_VERSION),
        );
        let error = backend.devices().unwrap_err();
        assert!(error.message.contains("cuInit") && error.message.contains("restart"), "{}", error.message);
    }

    #[test]
    fn a_driver_that_is_too_old_is_named_with_what_is_needed() {
        let backend = backend(|| Ok(DoubleDriver::leaked() as &dyn Driver), || Ok(12_040));
        let error = backend.devices().unwrap_err();
        assert!(error.message.contains("12.4") && error.message.contains("13.0"), "{}", error.message);
    }

    #[test]
    fn a_device_that_is_too_old_is_refused_by_its_number() {
        let backend = backend(
            || Ok(DoubleDriver::leaked_with(|driver| driver.facts.target = "sm_75".into()) as &dyn Driver),
            || Ok(NEEDED_VERSION),
        );
        assert_eq!(backend.devices().unwrap()[0].arch, "sm_75");
        let error = backend.open(0, &[]).err().unwrap();
        assert!(
            error.message.contains("7.5")
                && error.message.contains("8.0")
                && error.message.contains("cuda:0"),
            "{}",
            error.message
        );
    }

    #[test]
    fn every_target_has_machine_code_or_ptx() {
        for (target, forms, overlaps) in
            [("sm_80", 2, false), ("sm_89", 2, false), ("sm_90", 2, true), ("sm_120", 1, false)]
        {
            let images = INSTALLED.images(target);
            assert_eq!((images.len(), images[0].overlaps), (forms, overlaps), "{target}");
            assert_eq!(INSTALLED.refuses(target), None);
        }
        assert!(INSTALLED.refuses("gfx906").is_some());
    }

    /// Plans for compute capability 9.0 have kernels that are in the machine code for it and nowhere else.
    #[test]
    fn products_in_bf16_are_planned_where_they_are_loaded() {
        let module = INSTALLED.module_of("linear_q4_k_bf16_256").unwrap();
        for target in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let best = INSTALLED.images(target).into_iter().next().unwrap();
            let is_loaded = best.modules().unwrap().iter().any(|image| image.module == module);
            assert_eq!(INSTALLED.has_bf16(target), is_loaded, "{target}");
        }
        assert!(INSTALLED.has_bf16("sm_90"));
    }

    /// The descriptor can be read without loading the plugin, so it says the same.
    #[test]
    fn the_descriptor_has_these_settings() {
        for setting in SETTINGS {
            let key = format!("key = \"{}\"", setting.key);
            let doc = format!("doc = \"{}\"", setting.doc);
            assert!(crate::DESCRIPTOR.contains(&key) && crate::DESCRIPTOR.contains(&doc), "{}", setting.key);
        }
        assert_eq!(crate::DESCRIPTOR.matches("[[setting]]").count(), SETTINGS.len());
    }
}
