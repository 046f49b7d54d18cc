//! The whole plugin on a stand-in for the HIP library, opened as the real one is: see `tests/hip-double`.

mod conformance;
mod devices;
mod faults;
mod peers;

use libloading::os::unix::Library;
use paceline_gpu::GpuBackend;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};

/// A copy of the stand-in, with devices of its own.
struct Double {
    library: Library,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("a text without zeros")
}

impl Double {
    /// A copy with these devices, such as `gfx1101,gfx906:1GiB`.
    fn new(devices: &str) -> Self {
        Self::with(&[("HIP_DOUBLE_DEVICES", devices)])
    }

    /// A copy with these variables.
    fn with(variables: &[(&str, &str)]) -> Self {
        let test = std::env::current_exe().expect("a test has a path");
        let built = test.parent().and_then(Path::parent).expect("tests lie in `<profile>/deps`");
        let built = built.join("examples/libhip_double.so");
        let folder = tempfile::tempdir().expect("a folder for the copy");
        let path = folder.path().join("libamdhip64.so.6");
        std::fs::copy(&built, &path).unwrap_or_else(|error| {
            panic!(
                "{}: {error}: run `cargo test` without `--lib`, or `cargo build --examples`",
                built.display()
            )
        });
        // SAFETY: the stand-in does nothing when it is loaded.
        let library = unsafe { Library::new(&path) }.expect("the stand-in can be loaded");
        let double = Self { library, path, _folder: folder };
        // A variable of whoever runs the tests must not hide devices.
        for (name, value) in [("HIP_VISIBLE_DEVICES", "0,1,2,3")].iter().chain(variables) {
            // SAFETY: the function's type, and texts that live during the call.
            unsafe {
                let set =
                    double.function::<unsafe extern "C" fn(*const c_char, *const c_char)>("hip_double_set");
                set(c_string(name).as_ptr(), c_string(value).as_ptr());
            }
        }
        double
    }

    /// # Safety
    /// The type is that of the function.
    unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: promised by the caller.
        *unsafe { self.library.get::<T>(c_string(name).as_bytes_with_nul()) }.expect("the stand-in has it")
    }

    fn backend(&self) -> GpuBackend {
        crate::backend_on(&self.path)
    }

    /// Lets a call fail once, after it succeeded so often.
    fn fail(&self, call: &str, after: u64, code: c_int) {
        // SAFETY: the function's type, and a text that lives during the call.
        unsafe {
            let fail = self.function::<unsafe extern "C" fn(*const c_char, u64, c_int)>("hip_double_fail");
            fail(c_string(call).as_ptr(), after, code);
        }
    }

    /// How often a call was made.
    fn calls(&self, call: &str) -> u64 {
        // SAFETY: as above.
        unsafe {
            let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>("hip_double_calls");
            calls(c_string(call).as_ptr())
        }
    }

    /// Allocations, streams, events, modules and graphs that exist.
    fn alive(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("hip_double_alive")() }
    }
}
