//! NVRTC: the CUDA compiler as a library. It needs no GPU.

use crate::{Compiled, CompiledModule, Image, Target, known_images};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The library, open for as long as the process runs.
pub struct Nvrtc {
    library: Library,
}

impl Nvrtc {
    /// Opens `libnvrtc.so.13` in a folder, such as `site-packages/nvidia/cu13/lib` of the Python package
    /// `nvidia-cuda-nvrtc`.
    ///
    /// # Errors
    /// A library that is not there.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let open = |name: &str| {
            let path = folder.join(name);
            // SAFETY: a compiler library, whose initialisation has no conditions.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        // NVRTC looks for its builtins by name; that finds what is open already.
        std::mem::forget(open("libnvrtc-builtins.so.13.0")?);
        Ok(Self { library: open("libnvrtc.so.13")? })
    }

    /// Compiles a text for `sm_NN` (to a cubin) or `compute_NN` (to PTX, without the zero at its end).
    ///
    /// # Errors
    /// The compiler's log.
    pub fn compile(&self, name: &str, text: &str, architecture: &str) -> Result<Vec<u8>, String> {
        let (text, name) = (c_string(text)?, c_string(name)?);
        let mut options = vec![c_string(&format!("--gpu-architecture={architecture}"))?];
        for flag in Target::Cuda.flags() {
            options.push(c_string(flag)?);
        }
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = core::ptr::null_mut();
        // SAFETY: the types of the functions are NVRTC's; the texts live to the end of the block.
        unsafe {
            let create: Create = self.function(b"nvrtcCreateProgram\0")?;
            let compile: Compile = self.function(b"nvrtcCompileProgram\0")?;
            let destroy: Destroy = self.function(b"nvrtcDestroyProgram\0")?;
            let none = core::ptr::null();
            let code = create(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none);
            if code != 0 {
                return Err(format!("NVRTC cannot begin: error {code}"));
            }
            let code = compile(program, options.len() as c_int, options.as_ptr());
            let result = if code != 0 {
                let log = self.read(program, b"nvrtcGetProgramLogSize\0", b"nvrtcGetProgramLog\0")?;
                let log =
                    CStr::from_bytes_until_nul(&log).map_or_else(|_| "no log".into(), CStr::to_string_lossy);
                Err(format!("NVRTC for {architecture}: error {code}\n{log}"))
            } else if architecture.starts_with("sm_") {
                self.read(program, b"nvrtcGetCUBINSize\0", b"nvrtcGetCUBIN\0")
            } else {
                self.read(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0").map(|mut text| {
                    text.pop();
                    text
                })
            };
            destroy(&mut program);
            result
        }
    }

    /// # Safety
    /// The type is that of the function.
    unsafe fn function<T: Copy>(&self, name: &[u8]) -> Result<T, String> {
        // SAFETY: promised by the caller.
        unsafe { self.library.get::<T>(name) }.map(|symbol| *symbol).map_err(|error| error.to_string())
    }

    /// # Safety
    /// The names are those of functions that tell a size and fill as many bytes.
    unsafe fn read(&self, program: Program, size: &[u8], get: &[u8]) -> Result<Vec<u8>, String> {
        // SAFETY: promised by the caller.
        unsafe {
            let (size, get): (Size, Get) = (self.function(size)?, self.function(get)?);
            let mut length = 0;
            let code = size(program, &mut length);
            let mut bytes = vec![0u8; length];
            match (code, if code == 0 { get(program, bytes.as_mut_ptr().cast()) } else { code }) {
                (0, 0) => Ok(bytes),
                (_, code) => Err(format!("NVRTC: error {code}")),
            }
        }
    }
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a zero inside of a source".into())
}

/// Kernels that a PTX text has.
fn entries(ptx: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(ptx);
    let after = |line: &str| line.split(".entry ").nth(1).map(str::to_owned);
    let name = |rest: String| rest.trim_end_matches('(').trim().to_owned();
    text.lines().filter_map(after).map(name).collect()
}

/// Images of all modules and architectures, and the kernels of each module.
///
/// # Errors
/// A source that cannot be read or compiled.
pub fn compile_all(nvrtc: &Nvrtc) -> Result<Compiled, String> {
    let mut compiled = Compiled::default();
    for module in Target::Cuda.modules() {
        if let Some(known) = known_images(Target::Cuda, &module)? {
            compiled.add(&module, known);
            continue;
        }
        let text = module.text()?;
        let mut made = CompiledModule { images: Vec::new(), entries: Vec::new() };
        for &architecture in module.architectures {
            let bytes = nvrtc.compile(module.name, &text, architecture)?;
            if architecture.starts_with("compute_") {
                made.entries = entries(&bytes);
            }
            made.images.push(Image { module: module.name, architecture, bytes });
        }
        if let (true, Some(chip)) = (made.entries.is_empty(), module.architectures.first()) {
            made.entries = entries(&nvrtc.compile(module.name, &text, &chip.replace("sm_", "compute_"))?);
        }
        compiled.add(&module, made);
    }
    Ok(compiled)
}
