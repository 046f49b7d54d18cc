//! What a card in good health does not do: failures of the driver, one by one.

use super::DoublePlatform;
use crate::GpuBackend;
use crate::driver::Cause;
use crate::driver::double::{DoubleDriver, Fault, MEMORY};
use crate::testing::{LONG_NS, Running, doubling};
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::backend::{Arena, ArenaClass, Backend, Device, Executable, Point, Semaphore};

fn fault(driver: &DoubleDriver, call: &'static str, after: u32, cause: Cause) {
    driver.fail(Fault { call, after, cause });
}

#[test]
fn everything_is_given_back() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    assert_eq!(running.run(1), Ok(2.0));
    assert_eq!(running.run(5), Ok(10.0));
    assert!(driver.alive() > 0);
    drop(running);
    assert_eq!(driver.alive(), 0);
}

#[test]
fn what_nobody_waited_for_is_given_back_too() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    running.launch(1).unwrap();
    let gate = running.device.create_semaphore(0).unwrap();
    running.executable.launch(0, &[Point { semaphore: &gate, value: 1 }], &[]).unwrap();
    let Running { executable, semaphore, io, workspace, device } = running;
    drop(device);
    assert_eq!(semaphore.value(), 1);
    drop((executable, gate, semaphore, io, workspace));
    assert_eq!(driver.alive(), 0);
}

#[test]
fn launches_neither_allocate_nor_wait() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    running.run(1).unwrap();
    let made =
        ["allocate", "allocate_pinned", "create_event", "create_stream", "begin_capture", "synchronize"];
    let before = made.map(|call| driver.calls(call));
    let launched = driver.calls("launch_graph");
    for value in 2..100 {
        running.run(value).unwrap();
    }
    assert_eq!(made.map(|call| driver.calls(call)), before);
    assert_eq!(driver.calls("launch_graph") - launched, 98);
    let counters = running.device.counters();
    assert_eq!((counters.launches, counters.uploads, counters.downloads), (99, 99, 99));
}

#[test]
fn no_driver_is_no_device() {
    let backend = GpuBackend::new(&DoublePlatform(None));
    assert_eq!(backend.devices(), Ok(Vec::new()));
    let error = backend.open(0, &[]).err().unwrap();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unsupported, "there is no double"));
}

#[test]
fn a_device_without_kernels_is_refused() {
    let driver = DoubleDriver::leaked_with(|driver| driver.facts.target = "old".into());
    let backend = DoublePlatform::backend(driver);
    let capabilities = backend.devices().unwrap().remove(0).capabilities;
    for error in [
        backend.open(0, &[]).err().unwrap(),
        backend.plan(doubling(), &capabilities, &[]).err().unwrap(),
        backend.layout_weights(&capabilities, &[]).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("no kernels for `old`"), "{}", error.message);
    }
    assert_eq!(driver.alive(), 0);
    let error = backend.open(3, &[]).err().unwrap();
    assert!(error.message.contains("double:3") && error.message.contains("double:0"), "{}", error.message);
}

#[test]
fn a_driver_that_cannot_capture_runs_step_by_step() {
    let driver = DoubleDriver::leaked_with(|driver| driver.facts.captures = false);
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    assert_eq!(running.run(1), Ok(2.0));
    assert_eq!((driver.calls("begin_capture"), driver.calls("launch")), (0, 1));
}

#[test]
fn machine_code_that_is_refused_is_compiled_by_the_driver() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    fault(driver, "load_module", 1, Cause::NoImage);
    assert_eq!(Running::new(&backend, &[]).unwrap().run(1), Ok(2.0));
}

#[test]
fn no_code_for_the_device_is_an_error() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    fault(driver, "load_module", 0, Cause::NoImage);
    fault(driver, "load_module", 0, Cause::NoImage);
    let error = backend.open(0, &[]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("no kernels"), "{}", error.message);
    assert_eq!(driver.alive(), 0);
    assert!(backend.open(0, &[]).is_ok());
}

#[test]
fn too_much_memory_is_refused_and_costs_nothing() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let device = backend.open(0, &[]).unwrap();
    for class in [ArenaClass::Weights, ArenaClass::Io] {
        let error = device.create_arena(class, 2 * MEMORY).err().unwrap();
        assert_eq!(error.kind, ErrorKind::OutOfMemory);
        let has_size = error.message.contains(&(2 * MEMORY).to_string());
        assert!(has_size && error.message.contains("double:0"), "{}", error.message);
    }
    assert_eq!(device.counters().arena_bytes, 0);
    assert_eq!(device.create_arena(ArenaClass::Weights, 100).unwrap().bytes(), 100);
}

#[test]
fn memory_that_runs_out_while_a_step_is_captured_is_an_error() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    fault(driver, "end_capture", 0, Cause::OutOfMemory);
    let error = Running::new(&backend, &[]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.message.contains("captur"), "{}", error.message);
    assert_eq!(driver.alive(), 0);
    assert_eq!(Running::new(&backend, &[]).unwrap().run(1), Ok(2.0));
}

/// The launch is accepted, and the fault shows while it runs.
#[test]
fn a_device_that_is_lost_fails_what_waits_and_all_that_follows() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    running.run(1).unwrap();
    fault(driver, "has_passed", 0, Cause::Lost);
    running.launch(2).unwrap();
    running.launch(3).unwrap();
    let error = running.semaphore.wait(3, LONG_NS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DeviceLost);
    assert!(error.message.contains("double:0") && error.message.contains("Lost"), "{}", error.message);
    assert_eq!(running.semaphore.failure(), Some(error.clone()));
    assert_eq!(running.launch(4), Err(error.clone()));
    assert_eq!(running.device.memory().unwrap_err(), error);
    assert_eq!(running.device.create_arena(ArenaClass::Kv, 10).err(), Some(error));
    // What was reached stays reached, and the end is orderly.
    assert_eq!(running.semaphore.value(), 1);
    assert_eq!(running.semaphore.wait(1, 0), Ok(()));
}

#[test]
fn a_launch_that_is_refused_leaves_the_device_usable() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    fault(driver, "launch_graph", 0, Cause::Other);
    let error = running.launch(1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert_eq!(running.run(2), Ok(4.0));
}

/// A launch that waits for the host fails when it is its turn and the device is gone.
#[test]
fn what_waits_behind_a_lost_device_fails_too() {
    let driver = DoubleDriver::leaked();
    let backend = DoublePlatform::backend(driver);
    let running = Running::new(&backend, &[]).unwrap();
    let gate = running.device.create_semaphore(0).unwrap();
    let signals = [Point { semaphore: &running.semaphore, value: 1 }];
    running.executable.launch(0, &[Point { semaphore: &gate, value: 1 }], &signals).unwrap();
    fault(driver, "launch_graph", 0, Cause::Lost);
    gate.signal(1);
    assert_eq!(running.semaphore.wait(1, LONG_NS).unwrap_err().kind, ErrorKind::DeviceLost);
}

/// Nobody but the waiter of the second device looks after the first.
#[test]
fn who_waits_for_a_device_looks_after_what_that_waits_for() {
    let driver = DoubleDriver::leaked_with(|driver| driver.devices = 2);
    let backend = DoublePlatform::backend(driver);
    let [first, second] = [0, 1].map(|index| Running::of(&backend, index, doubling(), &[]).unwrap());
    let made = [Point { semaphore: &first.semaphore, value: 1 }];
    let done = [Point { semaphore: &second.semaphore, value: 1 }];
    second.executable.launch(0, &made, &done).unwrap();
    first.executable.launch(0, &[], &made).unwrap();
    second.semaphore.wait(1, LONG_NS).unwrap();
    assert_eq!(second.semaphore.value(), 1);
    drop((first, second));
    assert_eq!(driver.alive(), 0);
}
