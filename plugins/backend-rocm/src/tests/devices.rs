//! What is said of devices, and of those that cannot be used.

use super::Double;
use paceline_gpu::driver::Driver;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::backend::{Backend, Device, DeviceInfo, DeviceKind};

#[test]
fn devices_are_described_by_what_the_runtime_says() {
    let double = Double::new("gfx1101:20GiB,gfx906,gfx1151:96GiB:integrated");
    let devices = double.backend().devices().unwrap();
    let expected = DeviceInfo {
        name: "Double gfx1101 (GPU-000000000000000a)".into(),
        arch: "gfx1101".into(),
        kind: DeviceKind::Discrete,
        units: 60,
        memory_total: 20 << 30,
        physical_id: "0000:03:00.0".into(),
        capabilities: "target=gfx1101 wave=32 units=60 memory=21474836480".into(),
    };
    assert_eq!(devices[0], expected);
    // The features behind a chip's name are no part of it.
    assert_eq!((devices[1].arch.as_str(), devices[1].physical_id.as_str()), ("gfx906", "0000:04:00.0"));
    assert!(devices[1].capabilities.contains("wave=64"));
    assert_eq!(devices[2].kind, DeviceKind::Integrated);
    assert_eq!(devices.len(), 3);
}

/// Before HIP 6 the chip's name is elsewhere, in a structure of its own.
#[test]
fn older_runtimes_say_the_same() {
    for version in ["50221153", "60342134", "71460850"] {
        let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx90a"), ("HIP_DOUBLE_VERSION", version)]);
        assert_eq!(double.backend().devices().unwrap()[0].arch, "gfx90a", "{version}");
    }
}

#[test]
fn a_runtime_that_is_too_old_is_named_with_what_is_needed() {
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx906"), ("HIP_DOUBLE_VERSION", "40421212")]);
    let error = double.backend().devices().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("4.4") && error.message.contains("ROCm 5"), "{}", error.message);
}

#[test]
fn devices_that_are_hidden_are_not_there() {
    for hidden in ["", "-1"] {
        let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx906"), ("HIP_VISIBLE_DEVICES", hidden)]);
        let backend = double.backend();
        assert_eq!(backend.devices(), Ok(Vec::new()));
        let error = backend.open(0, &[]).err().unwrap();
        assert!(error.message.contains("rocm:0") && error.message.contains("none"), "{}", error.message);
    }
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx906,gfx1030"), ("HIP_VISIBLE_DEVICES", "1")]);
    let devices = double.backend().devices().unwrap();
    assert_eq!((devices.len(), devices[0].arch.as_str()), (1, "gfx1030"));
}

/// What HIP 5.2 of Debian answered on a machine without a card.
#[test]
fn a_runtime_without_devices_is_no_fault_in_every_version() {
    for code in [100, 101] {
        let faults = format!("hipInit:0:{code},hipGetDeviceCount:0:{code},hipGetDeviceCount:0:{code}");
        let double = Double::with(&[("HIP_DOUBLE_FAULTS", &faults)]);
        assert_eq!(double.backend().devices(), Ok(Vec::new()), "{code}");
    }
}

#[test]
fn a_runtime_that_does_not_start_says_why() {
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx906"), ("HIP_DOUBLE_FAULTS", "hipInit:0:999")]);
    let error = double.backend().devices().unwrap_err();
    for word in ["hipInit", "hipErrorUnknown", "999", "rocminfo"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
}

/// There is no code object for gfx1103, so the sources are compiled, by whatever compiler the runtime brings.
#[test]
fn a_chip_without_code_object_is_compiled_for_if_there_is_a_compiler() {
    if std::process::Command::new("clang-19").arg("--version").output().is_err() {
        return println!("skipped: it wants clang-19");
    }
    let double = Double::new("gfx1103");
    assert!(double.backend().open(0, &[]).is_ok());
    assert_eq!(double.calls("hipModuleLoadData"), 2);
}

#[test]
fn a_chip_without_code_object_and_compiler_is_refused_by_name() {
    // The compiler of this version is not asked.
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx1103"), ("HIP_DOUBLE_VERSION", "50221153")]);
    let error = double.backend().open(0, &[]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    for word in ["rocm:0", "`gfx1103`", "gfx1101", "too old"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
    let double = Double::new("gfx803");
    let error = double.backend().open(0, &[]).err().unwrap();
    assert!(error.message.contains("`gfx803`") && error.message.contains("gfx906"), "{}", error.message);
    assert_eq!(double.calls("hipModuleLoadData"), 0);
}

/// The runtime itself refuses code for another chip, before anything is launched.
#[test]
fn every_target_opens_with_its_own_code_alone() {
    let targets = paceline_kernels::images::hip::targets();
    for (at, target) in targets.iter().enumerate() {
        let double = Double::new(target);
        let device = double.backend().open(0, &[]).unwrap_or_else(|error| panic!("{target}: {error:?}"));
        drop(device);
        assert_eq!(double.alive(), 0, "{target}");
        let driver = crate::platform::Rocm::on(double.path.clone()).start().unwrap();
        driver.open(0).unwrap();
        let other = targets[(at + 1) % targets.len()];
        let image = &paceline_kernels::images::hip::images(other).unwrap()[0];
        let error = driver.load_module(&image.bytes).unwrap_err();
        assert_eq!((error.code, error.name.as_str()), (209, "hipErrorNoBinaryForGpu"), "{other} on {target}");
    }
}

#[test]
fn memory_is_that_of_the_device() {
    let double = Double::new("gfx906:1GiB,gfx1030:2GiB");
    let device = double.backend().open(1, &[]).unwrap();
    let memory = device.memory().unwrap();
    assert!(memory.total == 2 << 30 && memory.free <= memory.total && memory.free > 1 << 30, "{memory:?}");
}
