//! AMD's runtime, devices, kernels and words.

use crate::driver::HipDriver;
use crate::hip::rtc::Compiler;
use crate::hip::{Hip, LIBRARIES, OLDEST_VERSION, OpenError};
use paceline_gpu::capabilities::{GRAPHS, PROFILE};
use paceline_gpu::driver::{Driver, DriverError};
use paceline_gpu::{Images, NoDriver, Platform};
use paceline_kernels::images::{Image, hip};
use paceline_kernels::sources;
use paceline_kernels::tuning::Tuning;
use paceline_plugin_api::settings::Setting;
use paceline_plugin_api::{Error, ErrorKind};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable that names the library's file.
const LIBRARY_VARIABLE: &str = "PACELINE_ROCM_LIBRARY";
/// The variable that changes tuning values, and so has the kernels compiled again.
const TUNING_VARIABLE: &str = "PACELINE_ROCM_TUNING";

/// Variables that hide devices, as the runtime knows them.
const HIDING: [&str; 3] = ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];

/// What every process talks to the kernel module through.
const DEVICE_NODE: &str = "/dev/kfd";

/// The settings of a device.
pub(crate) const SETTINGS: &[Setting] = &[GRAPHS, PROFILE];

/// The platform on one library.
pub(crate) struct Rocm {
    /// The library's file; none for the one that is installed, or that a variable names.
    library: Option<PathBuf>,
    driver: OnceLock<Result<&'static HipDriver, NoDriver>>,
}

/// The library that is installed.
pub(crate) static INSTALLED: Rocm = Rocm { library: None, driver: OnceLock::new() };

impl Rocm {
    /// The platform on the library in a file.
    pub fn on(library: PathBuf) -> Self {
        Self { library: Some(library), driver: OnceLock::new() }
    }

    /// Opens and starts the library, once in a process.
    pub fn start(&self) -> Result<&'static HipDriver, NoDriver> {
        let start = || -> Result<&'static HipDriver, NoDriver> {
            let named = || std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
            let library = self.library.clone().map(PathBuf::into_os_string).or_else(named);
            let driver = HipDriver::start(open(library)?).map_err(|error| not_started(&error))?;
            let version = driver.hip.version().unwrap_or(0);
            if version < OLDEST_VERSION {
                return Err(NoDriver::Failed(Error::unsupported(format!(
                    "the HIP runtime is too old: it has version {}, {} is needed; install ROCm 5 or newer",
                    version_text(version),
                    version_text(OLDEST_VERSION)
                ))));
            }
            if driver.device_count().is_ok_and(|count| count == 0)
                && hidden_by().is_none()
                && let Some(why) = node_fault(Path::new(DEVICE_NODE))
            {
                return Err(NoDriver::Failed(Error::unsupported(why)));
            }
            // A runtime is never unloaded.
            Ok(Box::leak(Box::new(driver)))
        };
        self.driver.get_or_init(start).clone()
    }
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 10_000_000, version % 10_000_000 / 100_000)
}

/// Opens the library: the one that is named, or the newest that is installed.
fn open(named: Option<OsString>) -> Result<Hip, NoDriver> {
    let unusable = |name: &str, why: &str| {
        let text = format!("the HIP runtime {name} {why}; install ROCm 5 to 7 again");
        NoDriver::Failed(Error::new(ErrorKind::Internal, text))
    };
    if let Some(path) = named {
        return Hip::open(&path).map_err(|error| match error {
            OpenError::Missing => NoDriver::Failed(Error::unsupported(format!(
                "there is no HIP runtime at {}: {LIBRARY_VARIABLE} names the file",
                path.display()
            ))),
            OpenError::Unusable(why) => unusable(&path.to_string_lossy(), &why),
        });
    }
    for name in LIBRARIES {
        match Hip::open(name.as_ref()) {
            Ok(hip) => return Ok(hip),
            Err(OpenError::Missing) => {}
            Err(OpenError::Unusable(why)) => return Err(unusable(name, &why)),
        }
    }
    Err(NoDriver::Missing(format!(
        "there is no HIP runtime: none of {} was found; install ROCm 5 to 7, or name the library's file in \
         {LIBRARY_VARIABLE}",
        LIBRARIES.join(", ")
    )))
}

fn not_started(error: &DriverError) -> NoDriver {
    let what_to_do = node_fault(Path::new(DEVICE_NODE))
        .unwrap_or_else(|| "`rocminfo` shows whether the runtime works".to_owned());
    let text = format!("the HIP runtime does not start: {error}; {what_to_do}");
    NoDriver::Failed(Error::new(ErrorKind::Internal, text))
}

/// Why a device node that is there cannot be used; none if it can, or is not there.
fn node_fault(node: &Path) -> Option<String> {
    refused(node, File::options().read(true).write(true).open(node).map(drop))
}

fn refused(node: &Path, opened: io::Result<()>) -> Option<String> {
    let error = opened.err().filter(|error| error.kind() == io::ErrorKind::PermissionDenied)?;
    Some(format!(
        "there is no permission on {}: {error}; add the user to the groups `render` and `video`, and log in again",
        node.display()
    ))
}

fn hidden_by() -> Option<&'static str> {
    HIDING.into_iter().find(|name| std::env::var_os(name).is_some())
}

/// What the variable for tuning values says; none if it is not set.
fn tuning() -> Option<String> {
    std::env::var(TUNING_VARIABLE).ok().filter(|text| !text.trim().is_empty())
}

/// Compiles all kernels for a target, with its tuning values, changed by the text.
fn compile(hip: &Hip, target: &str, changed: &str) -> Result<Vec<Image>, String> {
    let tuning = Tuning::read(target, changed).map_err(|why| format!("{TUNING_VARIABLE}: {why}"))?;
    let compiler = Compiler::find(hip)?;
    let mut options = vec![format!("--gpu-architecture={target}")];
    options.extend(sources::HIP_FLAGS.iter().map(|&flag| flag.to_owned()));
    options.extend(tuning.defines());
    let image = |(module, text): (&'static str, &'static str)| {
        let bytes = compiler.compile(module, text, &options)?;
        Ok(Image { module, architecture: "hiprtc", bytes })
    };
    sources::hip_modules().map(image).collect()
}

/// Chips that the sources compile for.
fn is_compiled(target: &str) -> bool {
    ["gfx9", "gfx10", "gfx11", "gfx12"].iter().any(|family| target.starts_with(family))
}

impl Platform for Rocm {
    fn id(&self) -> &'static str {
        "rocm"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn driver(&self) -> Result<&'static dyn Driver, NoDriver> {
        self.start().map(|driver| driver as &dyn Driver)
    }

    fn hidden_by(&self) -> Option<&'static str> {
        hidden_by()
    }

    fn refuses(&self, target: &str) -> Option<String> {
        if hip::targets().contains(&target) {
            return None;
        }
        let why = match self.start() {
            Ok(driver) if is_compiled(target) => match Compiler::find(&driver.hip) {
                Ok(_) => return None,
                Err(why) => why,
            },
            _ => "and they cannot be compiled here".to_owned(),
        };
        Some(format!("there are no kernels for `{target}`, only for {}; {why}", hip::targets().join(", ")))
    }

    /// The code object for exactly this chip, then what a compiler makes of the sources. Other tuning values are only to
    /// be had from the compiler.
    fn images(&self, target: &str) -> Vec<Images> {
        let changed = tuning();
        let known = hip::targets().iter().find(|known| **known == target && changed.is_none());
        let code = known.map(|&known| {
            Images::new(format!("the code object for {known}"), false, move || {
                hip::images(known).ok_or_else(|| format!("there is none for {known}"))
            })
        });
        let compiled = self.start().ok().filter(|_| is_compiled(target)).map(|driver| {
            let (target, changed) = (target.to_owned(), changed.unwrap_or_default());
            Images::new("what hiprtc compiles, and that takes a while", false, move || {
                compile(&driver.hip, &target, &changed)
            })
        });
        code.into_iter().chain(compiled).collect()
    }

    fn module_of(&self, entry: &str) -> Option<&'static str> {
        hip::module_of(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_gpu::GpuBackend;
    use paceline_plugin_api::backend::Backend;

    fn backend(library: &str) -> GpuBackend {
        crate::backend_on(library)
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_variable() {
        let error = backend("/no/such/libamdhip64.so").devices().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        for word in ["/no/such/libamdhip64.so", LIBRARY_VARIABLE] {
            assert!(error.message.contains(word), "{}", error.message);
        }
    }

    #[test]
    fn a_library_of_something_else_is_unusable() {
        let error = backend("libm.so.6").devices().unwrap_err();
        assert!(
            error.message.contains("libm.so.6") && error.message.contains("hipInit"),
            "{}",
            error.message
        );
    }

    /// Where no runtime is installed there is no device, and whoever asks for one learns what to install.
    #[test]
    fn no_runtime_is_no_device() {
        let Err(NoDriver::Missing(why)) = open(None) else { return println!("skipped: HIP is installed") };
        for word in ["libamdhip64.so.7", "libamdhip64.so.5", "ROCm", LIBRARY_VARIABLE] {
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_device_node_without_permission_is_named_with_the_groups() {
        let node = Path::new("/dev/kfd");
        let why = refused(node, Err(io::ErrorKind::PermissionDenied.into())).unwrap();
        assert!(why.contains("/dev/kfd") && why.contains("`render`") && why.contains("`video`"), "{why}");
        assert_eq!(refused(node, Err(io::ErrorKind::NotFound.into())), None);
        assert_eq!(refused(node, Ok(())), None);
        assert_eq!(node_fault(Path::new("/no/such/node")), None);
    }

    #[test]
    fn chips_without_kernels_are_refused_with_those_that_have_some() {
        let platform = Rocm::on("/no/such/libamdhip64.so".into());
        assert!(hip::targets().iter().all(|target| platform.refuses(target).is_none()));
        for target in ["gfx803", "gfx1010", "sm_90", ""] {
            let why = platform.refuses(target).unwrap();
            assert!(why.contains(&format!("`{target}`")) && why.contains("gfx1101"), "{why}");
        }
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
        assert!(LIBRARIES.iter().all(|name| crate::DESCRIPTOR.contains(name)));
    }
}
