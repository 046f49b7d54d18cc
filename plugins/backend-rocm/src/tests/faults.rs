//! What a card in good health does not do: failures of the runtime, one by one.

use super::Double;
use paceline_gpu::testing::{LONG_NS, Running, doubling};
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::backend::{Arena, ArenaClass, Backend, Device, Plan, Semaphore};

const OUT_OF_MEMORY: i32 = 2;
const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_FAILURE: i32 = 719;

#[test]
fn everything_is_given_back() {
    for settings in [&[][..], &[("graphs", "false")], &[("profile", "true")]] {
        let double = Double::new("gfx1030");
        let running = Running::new(&double.backend(), settings).unwrap();
        assert_eq!((running.run(1), running.run(5)), (Ok(2.0), Ok(10.0)));
        assert!(double.alive() > 0);
        drop(running);
        assert_eq!(double.alive(), 0, "{settings:?}");
    }
}

/// A stream begins after a pause: whoever does not wait sees what was there before.
#[test]
fn a_missing_wait_shows() {
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx1030"), ("HIP_DOUBLE_DELAY_US", "100000")]);
    let running = Running::new(&double.backend(), &[]).unwrap();
    assert_eq!(running.run(1), Ok(2.0));
    running.set(0, 4.0);
    running.launch(2).unwrap();
    assert_eq!((running.result(0), running.semaphore.value()), (2.0, 1));
    running.semaphore.wait(2, LONG_NS).unwrap();
    assert_eq!(running.result(0), 8.0);
}

#[test]
fn launches_neither_allocate_nor_wait() {
    let double = Double::new("gfx1101");
    let running = Running::new(&double.backend(), &[]).unwrap();
    running.run(1).unwrap();
    let made = [
        "hipMalloc",
        "hipHostMalloc",
        "hipEventCreateWithFlags",
        "hipStreamCreateWithFlags",
        "hipStreamBeginCapture",
        "hipStreamSynchronize",
        "hipModuleLaunchKernel",
    ];
    let counts = || made.map(|call| double.calls(call));
    let (before, launched) = (counts(), double.calls("hipGraphLaunch"));
    for value in 2..40 {
        assert_eq!(running.run(value), Ok(2.0 * value as f32));
    }
    assert_eq!(counts(), before);
    assert_eq!(double.calls("hipGraphLaunch") - launched, 38);
}

#[test]
fn too_much_memory_is_refused_and_costs_nothing() {
    let double = Double::new("gfx1101:1GiB");
    let device = double.backend().open(0, &[]).unwrap();
    let error = device.create_arena(ArenaClass::Weights, 2 << 30).err().unwrap();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    for word in ["rocm:0", "2147483648", "hipMalloc", "hipErrorOutOfMemory"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
    assert_eq!(device.counters().arena_bytes, 0);
    assert_eq!(device.create_arena(ArenaClass::Weights, 100).unwrap().bytes(), 100);
    double.fail("hipHostMalloc", 0, OUT_OF_MEMORY);
    assert_eq!(device.create_arena(ArenaClass::Io, 100).err().unwrap().kind, ErrorKind::OutOfMemory);
}

#[test]
fn a_capture_that_fails_is_an_error_and_leaves_nothing() {
    for call in ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphInstantiate"] {
        let double = Double::new("gfx906");
        let backend = double.backend();
        double.fail(call, 0, OUT_OF_MEMORY);
        let error = Running::new(&backend, &[]).err().unwrap();
        assert_eq!(error.kind, ErrorKind::OutOfMemory, "{call}");
        assert!(error.message.contains("captur"), "{}", error.message);
        assert_eq!(double.alive(), 0, "{call}");
    }
}

/// The launch is accepted, and the kernel fails while it runs.
#[test]
fn a_device_that_is_lost_fails_what_waits_and_all_that_follows() {
    for (graphs, code) in [("true", ILLEGAL_ADDRESS), ("false", LAUNCH_FAILURE)] {
        let double = Double::new("gfx906,gfx1101");
        let backend = double.backend();
        let running = Running::new(&backend, &[("graphs", graphs)]).unwrap();
        running.run(1).unwrap();
        double.fail("kernel", 0, code);
        running.launch(2).unwrap();
        let _ = running.launch(3);
        let error = running.semaphore.wait(3, LONG_NS).unwrap_err();
        assert_eq!(error.kind, ErrorKind::DeviceLost);
        for word in ["rocm:0", &code.to_string(), "dmesg"] {
            assert!(error.message.contains(word), "{}", error.message);
        }
        assert_eq!(running.launch(4), Err(error.clone()));
        assert_eq!(running.device.create_arena(ArenaClass::Kv, 10).err(), Some(error));
        // What was reached stays reached, and other devices go on.
        assert_eq!((running.semaphore.value(), running.semaphore.wait(1, 0)), (1, Ok(())));
        assert!(backend.open(1, &[]).is_ok_and(|other| other.create_arena(ArenaClass::Kv, 10).is_ok()));
        drop(running);
        assert_eq!(double.alive(), 0);
    }
}

#[test]
fn a_launch_that_is_refused_leaves_the_device_usable() {
    let double = Double::new("gfx1201");
    let running = Running::new(&double.backend(), &[]).unwrap();
    double.fail("hipGraphLaunch", 0, 1);
    let error = running.launch(1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert_eq!(running.run(2), Ok(4.0));
}

/// Devices of one runtime work side by side, each in the thread that asks.
#[test]
fn devices_run_side_by_side() {
    let double = Double::new("gfx906,gfx1101");
    let backend = double.backend();
    let plan = |at: usize| {
        let capabilities = backend.devices().unwrap().remove(at).capabilities;
        backend.plan(doubling(), &capabilities, &[]).unwrap()
    };
    // A plan of one device is not bound to it, and both have waves of their own.
    assert_eq!(plan(0).summary().workspace_bytes, plan(1).summary().workspace_bytes);
    let running = Running::new(&backend, &[]).unwrap();
    let other = backend.open(1, &[]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (1..20).for_each(|value| assert_eq!(running.run(value), Ok(2.0 * value as f32))));
        scope.spawn(|| (0..20).for_each(|_| drop(other.create_arena(ArenaClass::Kv, 1 << 20).unwrap())));
    });
}
