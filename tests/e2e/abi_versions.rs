//! The ABI in both directions: plugins built with headers of other versions on this host, and hosts of other versions
//! that plugins of today meet. Each plugin that is taken also computes something.
#![cfg(all(unix, target_pointer_width = "64"))]

#[path = "abi_build.rs"]
mod abi_build;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::Bench;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::abi::{self, ENTRY_SYMBOL, EntryFn, HostTable, Str};
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::graph::{Builder, DType, Graph};
use paceline_registry::{HOST_TABLE, Registry};
use std::ffi::c_void;
use std::mem::offset_of;
use std::path::PathBuf;

/// Builds a plugin of `tests/abi`. Every test has a copy of its own: a library keeps the host that it met last.
fn build(plugin: &str, test: &str) -> PathBuf {
    let folder = abi_build::repository().join("tests/abi");
    let header = if plugin == "older" { "first" } else { "later" };
    let source = folder.join(plugin).with_extension("cpp");
    abi_build::library(&format!("{plugin}_{test}"), &source, &[folder.join("headers").join(header)])
}

/// The entry of a built library, which stays loaded.
fn entry(path: &PathBuf) -> EntryFn {
    // SAFETY: the library was built from sources of this repository and has no initialisers.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.expect("the library loads");
    // SAFETY: a symbol of this name is a plugin's entry.
    let entry = *unsafe { library.get::<EntryFn>(ENTRY_SYMBOL.as_bytes()) }.expect("it has the entry");
    std::mem::forget(library);
    entry
}

fn enter(entry: EntryFn, host: &'static HostTable) -> paceline_plugin_api::Result<PluginClient> {
    // SAFETY: the entry belongs to a library that stays loaded.
    unsafe { PluginClient::enter(entry, host) }
}

/// x + y for rows of four.
fn sum_graph() -> Graph {
    let mut b = Builder::new();
    let (x, y) = (b.parameter("x", DType::F32, &[2, 4], None), b.parameter("y", DType::F32, &[4], None));
    let sum = b.add(x, y);
    let twice = b.add(sum, sum);
    b.result("twice", twice);
    b.finish()
}

/// Runs a graph of two additions through a backend.
fn check_sums(backend: &BackendClient) {
    let graph = sum_graph();
    let mut loaded =
        Bench::open(backend, 0, &[]).and_then(|bench| bench.load(&graph, &[])).expect("the graph loads");
    let mut block = ParameterBlock::new(&graph);
    block.set_floats("x", 0, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    block.set_floats("y", 0, &[0.5, 0.25, -1.0, 100.0]);
    let results = loaded.run(block.bytes()).expect("the launch works");
    let sums: Vec<f32> = results.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(sums, [3.0, 4.5, 4.0, 208.0, 11.0, 12.5, 12.0, 216.0]);
}

/// A host of another version: the table of today with other versions, cut after `size` bytes.
fn host(versions: [(u32, u32); 2], size: usize) -> HostTable {
    let [oldest, current] = versions.map(|(major, minor)| abi::version(major, minor));
    HostTable {
        size,
        abi_oldest: oldest,
        abi_current: current,
        context: HOST_TABLE.context,
        log_enabled: HOST_TABLE.log_enabled,
        log_event: HOST_TABLE.log_event,
        span_new: HOST_TABLE.span_new,
        span_enter: HOST_TABLE.span_enter,
        span_exit: HOST_TABLE.span_exit,
        span_close: HOST_TABLE.span_close,
        get_interface: HOST_TABLE.get_interface,
    }
}

fn kept(table: HostTable) -> &'static HostTable {
    Box::leak(Box::new(table))
}

#[test]
fn an_older_plugin_works_without_what_it_lacks() {
    let path = build("older", "works");
    let plugin = enter(entry(&path), &HOST_TABLE).expect("the ranges meet");
    assert_eq!((plugin.id(), plugin.abi_range()), ("older".into(), ("1.0".into(), "1.0".into())));
    let backend = plugin.backend().expect("it is a backend");
    check_sums(&backend);
    let device = &backend.devices().expect("it has a device")[0];
    assert_eq!((device.name.as_str(), device.arch.as_str()), ("older", "generic"));
    assert_eq!(device.memory_total, 0, "a field that the plugin does not know stays as the host set it");
    let opened = backend.open(0, &[]).expect("the device opens");
    let counters = opened.counters().expect("it counts");
    assert_eq!((counters.launches, counters.quantized_rows, counters.arena_bytes), (1, 0, 0));
    // Functions behind the end of its table, and one inside of it that is null.
    let semaphore = opened.create_semaphore(3).expect("it has semaphores");
    semaphore.wait(3, 0).expect("the value is reached");
    assert_eq!(semaphore.wait(4, 0).expect_err("it is not").kind, ErrorKind::Timeout);
    let error = semaphore.value().expect_err("the table ends before it");
    assert_eq!(error.message, "the plugin lacks the function `semaphore_value`");
    assert_eq!(semaphore.signal(9).expect_err("as above").kind, ErrorKind::Unsupported);
    assert_eq!(semaphore.failure(), None, "without the function there is no failure to tell of");
    let loaded = Bench::open(&backend, 0, &[]).and_then(|bench| bench.load(&sum_graph(), &[]));
    let error = loaded.expect("the graph loads").export_slots(0, 0, 1, 4).expect_err("it is null");
    assert_eq!(error.to_string(), "export_state: the plugin lacks the function `state_export`");
    assert_eq!(opened.memory().expect_err("it is null").kind, ErrorKind::Unsupported);
}

#[test]
fn a_newer_plugin_works_and_writes_nothing_that_this_host_does_not_know() {
    let path = build("newer", "works");
    let plugin = enter(entry(&path), &HOST_TABLE).expect("the ranges meet");
    assert_eq!((plugin.id(), plugin.abi_range()), ("newer".into(), ("1.0".into(), "1.7".into())));
    let backend = plugin.backend().expect("it is a backend");
    check_sums(&backend);
    let device = &backend.devices().expect("it has a device")[0];
    assert_eq!((device.name.as_str(), device.memory_total), ("newer, without a clock", 1 << 20));
    let error = backend.open(0, &[("a".into(), "b".into())]).map(drop).expect_err("it has no settings");
    assert_eq!(error.message, "there are no settings", "its longer status is read and released");
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[1, 4], None);
    let twice = b.scale(x, 2.0);
    b.result("twice", twice);
    let plan = backend.plan(&b.finish(), "add", &[]).expect("a plan is total");
    assert_eq!(plan.summary().refusal(), Some((0, "this backend can only add")));
}

/// The registry finds the descriptors, enters the plugins and gives out their backends.
#[test]
fn the_registry_takes_both() {
    let mut registry = Registry::new().expect("the built-ins are in order");
    for plugin in ["older", "newer"] {
        registry.load_file(build(plugin, "registry")).expect("the ranges meet");
        check_sums(&registry.backend(Some(plugin)).expect("it is a backend"));
    }
}

#[test]
fn without_a_common_version_both_ranges_are_named() {
    let path = build("future", "refused");
    let error = enter(entry(&path), &HOST_TABLE).map(drop).expect_err("the ranges do not meet");
    assert_eq!(
        error.message,
        "the plugin speaks ABI 2.0..=2.3, this host 1.0..=1.0: they have no version in common"
    );
    let mut registry = Registry::new().expect("the built-ins are in order");
    let text = registry.load_file(&path).map(drop).expect_err("as above").to_string();
    assert!(text.contains("2.0..=2.3") && text.contains("1.0..=1.0"), "{text}");
}

#[test]
fn a_later_host_takes_plugins_of_today_unless_it_gave_them_up() {
    let path = build("older", "later_host");
    let later = kept(host([(1, 0), (1, 9)], size_of::<HostTable>()));
    check_sums(&enter(entry(&path), later).and_then(|plugin| plugin.backend()).expect("the ranges meet"));
    let cpu = enter(paceline_backend_cpu::plugin_entry, later).expect("the ranges meet");
    assert!(!cpu.backend().and_then(|cpu| cpu.devices()).expect("it has a device").is_empty());

    let next = kept(host([(2, 0), (2, 1)], size_of::<HostTable>()));
    let error = enter(entry(&path), next).map(drop).expect_err("the ranges do not meet");
    assert_eq!(
        error.message,
        "the plugin speaks ABI 1.0..=1.0, this host 2.0..=2.1: they have no version in common"
    );
    // A plugin in Rust gives its table too, so that its range can be named.
    let error = enter(paceline_backend_cpu::plugin_entry, next).map(drop).expect_err("as above");
    assert_eq!(
        error.message,
        "the plugin speaks ABI 1.0..=1.0, this host 2.0..=2.1: they have no version in common"
    );
}

/// A host of version 1.7 of the made-up header.
#[repr(C)]
struct LaterHost {
    known: HostTable,
    clock_ns: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
}

unsafe extern "C" fn clock_ns(_: *mut c_void) -> u64 {
    1234
}

#[test]
fn a_longer_host_table_is_used_as_far_as_it_is_known() {
    let table = host([(1, 0), (1, 7)], size_of::<LaterHost>());
    let later: &'static LaterHost = Box::leak(Box::new(LaterHost { known: table, clock_ns: Some(clock_ns) }));
    for (plugin, name) in [("newer", "newer, with the clock"), ("older", "older")] {
        let path = build(plugin, "longer_host");
        let plugin = enter(entry(&path), &later.known).expect("the ranges meet");
        let backend = plugin.backend().expect("it is a backend");
        assert_eq!(backend.devices().expect("it has a device")[0].name, name);
        check_sums(&backend);
    }
    assert!(enter(paceline_backend_cpu::plugin_entry, &later.known).is_ok());
}

#[test]
fn a_shorter_host_table_is_not_read_beyond_its_end() {
    // A pointer that must not be called: the table ends before it.
    unsafe extern "C" fn beyond(_: *mut c_void, _: Str, _: u32) -> *const c_void {
        std::process::abort()
    }
    for size in [offset_of!(HostTable, context), offset_of!(HostTable, get_interface)] {
        let short = kept(HostTable { get_interface: Some(beyond), ..host([(1, 0), (1, 0)], size) });
        for plugin in ["newer", "older"] {
            let path = build(plugin, &format!("shorter_host_{size}"));
            let backend = enter(entry(&path), short).and_then(|plugin| plugin.backend());
            let backend = backend.expect("the versions are there, and they meet");
            assert_eq!(backend.devices().expect("it has a device").len(), 1);
            let error = backend.plan(&sum_graph(), "add", &[]).map(drop).expect_err("it cannot read graphs");
            assert_eq!(error.message, "the host has no interface paceline.graph/1");
        }
        let cpu = enter(paceline_backend_cpu::plugin_entry, short).and_then(|plugin| plugin.backend());
        check_sums(&cpu.expect("a plugin in Rust reads graphs by itself"));
    }
}
