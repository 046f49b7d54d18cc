//! `hiprtc`, the compiler that comes with a whole ROCm: for chips that no code object here is for.

use super::Hip;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

/// File names of the compiler's library, the newest first; before ROCm 6 it may be a part of the HIP library.
const LIBRARIES: [&str; 4] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"];

/// Versions of HIP whose compiler ends the whole process on a chip that it does not know.
const FIRST_SAFE_VERSION: c_int = 60_000_000;

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

/// The compiler.
pub struct Compiler {
    create: Create,
    compile: Compile,
    code_size: Size,
    code: Get,
    log_size: Size,
    log: Get,
    destroy: Destroy,
}

impl Compiler {
    /// Finds the compiler: in the HIP library, or beside it.
    ///
    /// # Errors
    /// It is not there, or so old that trying it is not safe.
    pub fn find(hip: &Hip) -> Result<Self, String> {
        if hip.version().is_ok_and(|version| version < FIRST_SAFE_VERSION) {
            return Err(
                "the compiler hiprtc of this ROCm is too old to be asked: install ROCm 6 or newer".into()
            );
        }
        if let Some(compiler) = Self::in_library(hip.library) {
            return Ok(compiler);
        }
        for name in LIBRARIES {
            // SAFETY: the library's initialisation has no conditions.
            if let Ok(library) = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
                // It has threads of its own, so it stays.
                if let Some(compiler) = Self::in_library(Box::leak(Box::new(library))) {
                    return Ok(compiler);
                }
            }
        }
        Err(format!("there is no compiler: none of {} was found", LIBRARIES.join(", ")))
    }

    fn in_library(library: &Library) -> Option<Self> {
        // SAFETY: the types are those of the library's header.
        unsafe {
            Some(Self {
                create: *library.get(b"hiprtcCreateProgram\0").ok()?,
                compile: *library.get(b"hiprtcCompileProgram\0").ok()?,
                code_size: *library.get(b"hiprtcGetCodeSize\0").ok()?,
                code: *library.get(b"hiprtcGetCode\0").ok()?,
                log_size: *library.get(b"hiprtcGetProgramLogSize\0").ok()?,
                log: *library.get(b"hiprtcGetProgramLog\0").ok()?,
                destroy: *library.get(b"hiprtcDestroyProgram\0").ok()?,
            })
        }
    }

    /// Compiles a text to a code object.
    ///
    /// # Errors
    /// The compiler's log.
    pub fn compile(&self, name: &str, text: &str, options: &[String]) -> Result<Vec<u8>, String> {
        let c_string = |text: &str| CString::new(text).map_err(|_| "a zero inside of a source".to_owned());
        let (text, name) = (c_string(text)?, c_string(name)?);
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>, _>>()?;
        let list: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        // SAFETY: the texts live to the end of the block; the program is destroyed once.
        unsafe {
            let code = (self.create)(&mut program, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null());
            if code != 0 {
                return Err(format!("hiprtc cannot begin: error {code}"));
            }
            let code = (self.compile)(program, list.len() as c_int, list.as_ptr());
            let result = match code {
                0 => self.read(program, self.code_size, self.code),
                code => {
                    let log = self.read(program, self.log_size, self.log).unwrap_or_default();
                    let log = String::from_utf8_lossy(&log);
                    Err(format!("hiprtc: error {code}: {}", log.trim_end_matches('\0').trim()))
                }
            };
            (self.destroy)(&mut program);
            result
        }
    }

    /// # Safety
    /// The functions tell a size and fill as many bytes, for a program that exists.
    unsafe fn read(&self, program: Program, size: Size, get: Get) -> Result<Vec<u8>, String> {
        let mut length = 0;
        // SAFETY: promised by the caller.
        unsafe {
            let code = size(program, &mut length);
            let mut bytes = vec![0u8; length];
            match if code == 0 { get(program, bytes.as_mut_ptr().cast()) } else { code } {
                0 => Ok(bytes),
                code => Err(format!("hiprtc: error {code}")),
            }
        }
    }
}
