//! The stand-in for Level Zero's loader: the sequence of calls, real asynchrony, failures, and a device that is lost.

use super::{bits_of, strict_suite};
use crate::driver::level_zero::{LevelZeroDriver, NoLevelZero};
use crate::driver::opencl::NoOpenCl;
use crate::platform::choose;
use crate::selector::Selector;
use level_zero_sys as ze;
use paceline_gpu::GpuBackend;
use paceline_gpu::driver::Driver;
use paceline_gpu::testing::{LONG_NS, Running};
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::backend::{Backend, Semaphore};
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::graph::{Builder, DType};
use paceline_plugin_api::{ErrorKind, Result};
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The stand-in's library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    let name =
        format!("{}paceline_level_zero_double{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found =
        [folder.join(&name), folder.parent().unwrap().join(&name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("there is no {name} in {} or above it", folder.display()))
}

/// A machine of its own: a copy of the stand-in.
struct Machine {
    path: PathBuf,
    control: libloading::Library,
}

impl Machine {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("paceline-ze-{}-{}.so", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::copy(library(), &path).unwrap();
        // SAFETY: the stand-in's initialisers do nothing.
        let control = unsafe { libloading::Library::new(&path) }.unwrap();
        // What is open stays, also without a name.
        Self { path, control }
    }

    fn start(&self) -> Result<LevelZeroDriver, NoLevelZero> {
        LevelZeroDriver::start(&[self.path.to_str().unwrap()], &Selector::default(), None)
    }

    fn backend(&self) -> GpuBackend {
        self.backend_at(None)
    }

    fn backend_at(&self, width: Option<u32>) -> GpuBackend {
        crate::backend_on(self.path.to_str().unwrap(), width).unwrap()
    }

    fn fail(&self, call: &str, after: u32, code: ze::ze_result_t) {
        let call = CString::new(call).unwrap();
        // SAFETY: the function that the stand-in has.
        unsafe {
            let fail: libloading::Symbol<'_, unsafe extern "C" fn(*const c_char, u32, ze::ze_result_t)> =
                self.control.get(b"double_fail").unwrap();
            fail(call.as_ptr(), after, code);
        }
    }

    fn calls(&self, call: &str) -> u64 {
        let call = CString::new(call).unwrap();
        // SAFETY: as above.
        unsafe {
            let calls: libloading::Symbol<'_, unsafe extern "C" fn(*const c_char) -> u64> =
                self.control.get(b"double_calls").unwrap();
            calls(call.as_ptr())
        }
    }

    fn alive(&self) -> u64 {
        // SAFETY: as above.
        unsafe {
            let alive: libloading::Symbol<'_, unsafe extern "C" fn() -> u64> =
                self.control.get(b"double_alive").unwrap();
            alive()
        }
    }

    fn only_width(&self, width: u32) {
        // SAFETY: as above.
        unsafe {
            let only: libloading::Symbol<'_, unsafe extern "C" fn(u32)> =
                self.control.get(b"double_width").unwrap();
            only(width);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// y = 7 x, by way of three launches.
fn running(backend: &GpuBackend, settings: &[(&str, &str)]) -> Result<Running> {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[3, 4], None);
    let twice = b.scale(x, 2.0);
    let six = b.scale(twice, 3.0);
    let y = b.add(six, x);
    b.result("y", y);
    Running::of(backend, 0, b.finish(), settings)
}

const PLAIN: &[(&str, &str)] = &[("graphs", "false")];

#[test]
fn recorded_steps_and_single_launches_give_the_same() {
    let machine = Machine::new();
    let backend = machine.backend();
    let (graphs, single) = (running(&backend, &[]).unwrap(), running(&backend, PLAIN).unwrap());
    for value in 1..20 {
        assert_eq!(graphs.run(value), Ok(value as f32 * 7.0));
        assert_eq!(single.run(value), Ok(value as f32 * 7.0));
    }
    // Launches of both slots queue up behind one another.
    for value in (100..140).step_by(2) {
        graphs.set(0, value as f32);
        graphs.set(1, 1.0 + value as f32);
        graphs.launch_slot(0, value).unwrap();
        graphs.launch_slot(1, value + 1).unwrap();
        graphs.semaphore.wait(value + 1, LONG_NS).unwrap();
        assert_eq!((graphs.result(0), graphs.result(1)), (value as f32 * 7.0, (1.0 + value as f32) * 7.0));
    }
    assert!(machine.calls("zeCommandQueueExecuteCommandLists") >= 59);
    // Kernels were built once for both.
    assert_eq!(machine.calls("zeModuleCreate"), 2);
    drop((graphs, single));
    assert_eq!(machine.alive(), 0);
}

#[test]
fn kernels_are_timed() {
    let machine = Machine::new();
    let running = running(&machine.backend(), &[("profile", "true")]).unwrap();
    assert_eq!(running.run(1), Ok(7.0));
    assert!(machine.calls("zeCommandListAppendWriteGlobalTimestamp") >= 5);
    drop(running);
    assert_eq!(machine.alive(), 0);
}

/// The stand-in ends the process if anything is called after this.
#[test]
fn nothing_is_called_after_a_start_that_failed() {
    let machine = Machine::new();
    machine.fail("zeInit", 0, ze::ZE_RESULT_ERROR_UNINITIALIZED);
    let Err(NoLevelZero::NoDriver(error)) = machine.start() else { panic!("it has to fail") };
    assert_eq!(error.name, "ZE_RESULT_UNINITIALIZED");
    assert_eq!(machine.calls("zeInit"), 1);
    assert_eq!(machine.calls("zeDriverGet"), 0);
    // OpenCL is asked next.
    let why = choose(Err(NoLevelZero::NoDriver(error)), || Err(NoOpenCl::Missing)).err().unwrap();
    assert!(matches!(why, paceline_gpu::NoDriver::Missing(text) if text.contains("zeInit")));
}

#[test]
fn a_device_without_usable_sub_groups_is_left_out() {
    let machine = Machine::new();
    machine.only_width(64);
    assert_eq!(machine.start().unwrap().device_count(), Ok(0));
}

#[test]
fn a_device_with_one_width_gets_it() {
    for width in [8, 16, 32] {
        let machine = Machine::new();
        machine.only_width(width);
        let backend = machine.backend();
        assert!(backend.devices().unwrap()[0].capabilities.contains(&format!("wave={width}")));
        assert_eq!(running(&backend, &[]).unwrap().run(3), Ok(21.0));
    }
}

#[test]
fn a_kernel_that_does_not_build_is_named_with_what_the_compiler_said() {
    let machine = Machine::new();
    let backend = machine.backend();
    // The device is asked for its widths once, and has others when kernels are built.
    machine.only_width(64);
    let error = running(&backend, &[]).err().unwrap();
    for word in ["scale", "zeModuleCreate", "ZE_RESULT_MODULE_BUILD_FAILURE", "lanes"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
}

#[test]
fn a_failure_leaves_the_device_usable() {
    let machine = Machine::new();
    let backend = machine.backend();
    for call in [
        "zeMemAllocDevice",
        "zeMemAllocHost",
        "zeEventPoolCreate",
        "zeCommandListCreate",
        "zeCommandListClose",
    ] {
        machine.fail(call, 0, ze::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        let failed = running(&backend, &[]);
        if call == "zeEventPoolCreate" && failed.is_ok() {
            continue;
        }
        let error = failed.err().unwrap_or_else(|| panic!("{call} has to fail"));
        assert!(error.kind == ErrorKind::OutOfMemory && error.message.contains(call), "{}", error.message);
    }
    let running = running(&backend, &[]).unwrap();
    assert_eq!(running.run(1), Ok(7.0));
    drop(running);
    assert_eq!(machine.alive(), 0);
}

#[test]
fn a_lost_device_is_said_to_be_lost() {
    for (settings, call) in [
        (&[][..], "zeCommandQueueExecuteCommandLists"),
        (PLAIN, "zeCommandListAppendLaunchKernel"),
        (PLAIN, "zeEventQueryStatus"),
    ] {
        let machine = Machine::new();
        let backend = machine.backend();
        let running = running(&backend, settings).unwrap();
        assert_eq!(running.run(1), Ok(7.0));
        machine.fail(call, 0, ze::ZE_RESULT_ERROR_DEVICE_LOST);
        let error = running.run(2).err().unwrap();
        assert_eq!(error.kind, ErrorKind::DeviceLost, "{call}: {}", error.message);
        assert!(error.message.contains("ZE_RESULT_DEVICE_LOST"), "{}", error.message);
        assert_eq!(running.run(3).err().unwrap().kind, ErrorKind::DeviceLost);
    }
}

/// Plugins whose device has sub-groups of one width.
macro_rules! plugins {
    ($($module:ident $width:literal),*) => {$(
        mod $module {
            paceline_plugin_api::backend_plugin!(
                crate::INFO, paceline_gpu::GpuBackend, super::Machine::new().backend_at(Some($width))
            );
        }
    )*};
}
plugins!(at_8 8, at_16 16, at_32 32);

static HOST: HostTable = HostTable::empty();

fn client(width: u32) -> BackendClient {
    let entry = match width {
        8 => at_8::plugin_entry,
        16 => at_16::plugin_entry,
        _ => at_32::plugin_entry,
    };
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(entry, &HOST) }.unwrap().backend().unwrap()
}

#[test]
fn contract() {
    strict_suite(&client(16), &["plan", "load", "launch", "semaphore", "device", "state"], true);
    strict_suite(&client(32), &["launch"], false);
}

#[test]
fn rows_and_tables() {
    strict_suite(&client(8), &["select_rows", "table_update", "rows_store", "rows_load"], true);
}

/// The rest of the suite; kernels are slow in fibres.
#[test]
fn operations() {
    let groups = [
        "add",
        "mul",
        "scale",
        "activation",
        "glu",
        "reshape",
        "slice",
        "concat",
        "rope",
        "rms_norm",
        "l2_norm",
        "softmax",
        "argmax",
        "draw",
        "top_k",
        "lookup",
        "embed",
        "linear",
        "kv_append",
        "attention",
        "conv_causal",
        "gated_delta_net",
        "gated_delta_net_replay",
    ];
    if_long(&groups);
}

#[test]
fn experts() {
    if_long(&["route", "experts"]);
}

fn if_long(groups: &[&str]) {
    match std::env::var_os("PACELINE_LONG_TESTS") {
        Some(_) => [8, 16, 32].into_iter().for_each(|width| strict_suite(&client(width), groups, true)),
        None => println!("skipped: {groups:?} run with PACELINE_LONG_TESTS"),
    }
}

#[test]
fn widths_have_the_same_bits() {
    let expected = bits_of(&client(32));
    assert_eq!(bits_of(&client(16)), expected);
    assert_eq!(bits_of(&client(8)), expected);
}
