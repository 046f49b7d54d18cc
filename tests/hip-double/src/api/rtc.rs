//! The compiler in the library, `hiprtc`: here it is `clang-19`, with its own headers left out.

use crate::stream::lock;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const COMPILATION: c_int = 6;

type Program = *mut c_void;

#[derive(Default)]
struct State {
    source: Vec<u8>,
    code: Vec<u8>,
    log: String,
}

static PROGRAMS: LazyLock<Mutex<HashMap<usize, State>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Begins a program.
///
/// # Safety
/// The program may be written; the source ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    program: *mut Program,
    source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    if program.is_null() || source.is_null() {
        return INVALID_INPUT;
    }
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: promised by the caller.
    let source = unsafe { CStr::from_ptr(source) }.to_bytes().to_vec();
    lock(&PROGRAMS).insert(handle, State { source, ..State::default() });
    // SAFETY: promised by the caller.
    unsafe { program.write(handle as Program) };
    0
}

fn compile(source: &[u8], options: &[String], handle: usize) -> Result<Vec<u8>, String> {
    let folder = std::env::temp_dir().join(format!("hip-double-{}-{handle}", std::process::id()));
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(&folder).map_err(text)?;
    let (from, to) = (folder.join("program.hip"), folder.join("program.hsaco"));
    let run = || {
        std::fs::write(&from, source).map_err(text)?;
        let mut command = Command::new("clang-19");
        command.args(["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output"]);
        for option in options {
            match option.strip_prefix("--gpu-architecture=") {
                Some(target) => command.arg(format!("--offload-arch={target}")),
                None => command.arg(option),
            };
        }
        let output = command.arg("-o").args([&to, &from]).output().map_err(text)?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        std::fs::read(&to).map_err(text)
    };
    let result = run();
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// Compiles a program.
///
/// # Safety
/// The list has so many texts, each of which ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCompileProgram(
    program: Program,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    let handle = program as usize;
    let Some(source) = lock(&PROGRAMS).get(&handle).map(|state| state.source.clone()) else {
        return INVALID_PROGRAM;
    };
    // SAFETY: promised by the caller.
    let option = |at: usize| unsafe { CStr::from_ptr(*options.add(at)) }.to_string_lossy().into_owned();
    let options: Vec<String> = (0..usize::try_from(count).unwrap_or(0)).map(option).collect();
    let result = compile(&source, &options, handle);
    let mut programs = lock(&PROGRAMS);
    let Some(state) = programs.get_mut(&handle) else { return INVALID_PROGRAM };
    match result {
        Ok(code) => {
            state.code = code;
            0
        }
        Err(log) => {
            state.log = log + "\0";
            COMPILATION
        }
    }
}

/// # Safety
/// The pointer may be written.
unsafe fn size(program: Program, to: *mut usize, of: impl Fn(&State) -> usize) -> c_int {
    match lock(&PROGRAMS).get(&(program as usize)) {
        Some(state) => {
            // SAFETY: promised by the caller.
            unsafe { to.write(of(state)) };
            0
        }
        None => INVALID_PROGRAM,
    }
}

/// # Safety
/// The buffer has room for them.
unsafe fn bytes(program: Program, to: *mut c_char, of: impl Fn(&State) -> &[u8]) -> c_int {
    match lock(&PROGRAMS).get(&(program as usize)) {
        Some(state) => {
            let bytes = of(state);
            // SAFETY: promised by the caller.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
            0
        }
        None => INVALID_PROGRAM,
    }
}

/// Bytes of the code object.
///
/// # Safety
/// The pointer may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCodeSize(program: Program, to: *mut usize) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { size(program, to, |state| state.code.len()) }
}

/// The code object.
///
/// # Safety
/// The buffer has room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCode(program: Program, to: *mut c_char) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { bytes(program, to, |state| &state.code) }
}

/// Bytes of the compiler's log.
///
/// # Safety
/// The pointer may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLogSize(program: Program, to: *mut usize) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { size(program, to, |state| state.log.len()) }
}

/// The compiler's log.
///
/// # Safety
/// The buffer has room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLog(program: Program, to: *mut c_char) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { bytes(program, to, |state| state.log.as_bytes()) }
}

/// Gives a program back.
///
/// # Safety
/// The pointer is null or to a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcDestroyProgram(program: *mut Program) -> c_int {
    if program.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: promised by the caller.
    let handle = unsafe { program.read() } as usize;
    lock(&PROGRAMS).remove(&handle).map_or(INVALID_PROGRAM, |_| 0)
}
