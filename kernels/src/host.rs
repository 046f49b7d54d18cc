//! Runs kernels on the CPU, a fibre per thread of a group, with addresses of host memory: to test kernels and what
//! launches them without a GPU. Slow, and exact: the same bits as on a GPU. Lanes that miss each other in a wave operation,
//! threads that miss a barrier and vectors at odd addresses are found. With waves of fewer than 32 lanes, so is a wave operation
//! across waves that not all threads of a group come to together, which a GPU with such waves does with barriers.

use crate::params::{Launch, Parameters};
use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn kn_launch_8(
        name: *const c_char,
        groups: *const u32,
        threads: u32,
        p: *const c_void,
        bytes: usize,
    ) -> c_int;
    fn kn_launch_16(
        name: *const c_char,
        groups: *const u32,
        threads: u32,
        p: *const c_void,
        bytes: usize,
    ) -> c_int;
    fn kn_launch_32(
        name: *const c_char,
        groups: *const u32,
        threads: u32,
        p: *const c_void,
        bytes: usize,
    ) -> c_int;
    fn kn_launch_64(
        name: *const c_char,
        groups: *const u32,
        threads: u32,
        p: *const c_void,
        bytes: usize,
    ) -> c_int;
}

/// Runs a kernel in the calling thread.
///
/// # Errors
/// An entry that does not exist or takes other parameters or threads, lanes that diverge, or another wave width than
/// 8, 16, 32 or 64.
///
/// # Safety
/// The addresses in the parameters are those of memory that holds what the kernel's structure says, and that nobody else
/// uses at the time.
pub unsafe fn launch(launch: &Launch, parameters: &[u8], wave: u32) -> Result<(), String> {
    let entry = launch.entry;
    let name = CString::new(entry).map_err(|_| format!("kernel `{entry}` does not exist"))?;
    let run = match wave {
        8 => kn_launch_8,
        16 => kn_launch_16,
        32 => kn_launch_32,
        64 => kn_launch_64,
        _ => return Err(format!("waves of {wave} lanes are not known; 8, 16, 32 and 64 are")),
    };
    // The structures hold 64-bit addresses, so a copy of the bytes has to be aligned for them.
    let mut words = vec![0u64; parameters.len().div_ceil(8)];
    // SAFETY: as many bytes as the words have room for.
    unsafe {
        core::ptr::copy_nonoverlapping(parameters.as_ptr(), words.as_mut_ptr().cast(), parameters.len());
    }
    // SAFETY: the kernel checks name, threads and the length of its parameters; the rest is the caller's promise.
    let code = unsafe {
        run(name.as_ptr(), launch.groups.as_ptr(), launch.threads, words.as_ptr().cast(), parameters.len())
    };
    match code {
        0 => Ok(()),
        1 => Err(format!("kernel `{entry}`: lanes diverge at waves of {wave}")),
        2 => Err(format!("kernel `{entry}` does not exist")),
        _ => Err(format!(
            "kernel `{entry}` does not take {} bytes of parameters and {} threads",
            parameters.len(),
            launch.threads
        )),
    }
}

/// Runs a kernel with the launch of its parameters.
///
/// # Errors
/// As [`launch`].
///
/// # Safety
/// As [`launch`].
pub unsafe fn run(parameters: &impl Parameters, wave: u32) -> Result<(), String> {
    // SAFETY: the caller's promise is passed on.
    unsafe { launch(&parameters.launch(), parameters.as_bytes(), wave) }
}
