//! The conformance suite at both wave widths. Kernels on the processor are slow, so the suite's largest parts run only with
//! `PACELINE_LONG_TESTS`.

use super::Double;
use paceline_conformance::suite::{Suite, SuiteOptions};
use paceline_gpu::GpuBackend;
use paceline_plugin_api::abi::HostTable;
use paceline_plugin_api::backend_plugin;
use paceline_plugin_api::client::{BackendClient, PluginClient};
use std::sync::OnceLock;

/// Waves of 32 lanes, waves of 64.
const DEVICES: &str = "gfx1101,gfx906";

backend_plugin!(crate::INFO, GpuBackend, double().backend());

fn double() -> &'static Double {
    static DOUBLE: OnceLock<Double> = OnceLock::new();
    DOUBLE.get_or_init(|| Double::new(DEVICES))
}

static HOST: HostTable = HostTable::empty();

fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}

fn run_on(device: u32, groups: &[&str], graphs: bool) {
    let options = SuiteOptions {
        device,
        settings: vec![("graphs".into(), graphs.to_string())],
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        required: vec!["*".into()],
        ..SuiteOptions::default()
    };
    let report = Suite::new(&backend(), options).run();
    println!("{report}");
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.passed() > 0);
}

fn run(groups: &[&str]) {
    (0..2).for_each(|device| run_on(device, groups, true));
}

fn run_if_long(groups: &[&str]) {
    match std::env::var_os("PACELINE_LONG_TESTS") {
        Some(_) => run(groups),
        None => println!("skipped: {groups:?} run with PACELINE_LONG_TESTS"),
    }
}

/// Both devices with `PACELINE_LONG_TESTS`, that with waves of 64 lanes otherwise.
#[test]
fn contract() {
    let groups = ["plan", "load", "launch", "semaphore", "device", "state"];
    run_on(1, &groups, true);
    run_if_long(&groups);
}

#[test]
fn launches_without_graphs() {
    match std::env::var_os("PACELINE_LONG_TESTS") {
        Some(_) => run_on(1, &["launch", "state"], false),
        None => run_on(0, &["state"], false),
    }
}

#[test]
fn elements() {
    run_if_long(&["add", "mul", "scale", "activation", "glu", "reshape", "slice", "concat"]);
}

#[test]
fn norms_and_choices() {
    run_if_long(&["rope", "rms_norm", "l2_norm", "softmax", "argmax", "draw", "top_k", "lookup"]);
}

#[test]
fn products() {
    run_if_long(&["embed", "linear"]);
}

#[test]
fn rows_and_tables() {
    run(&["select_rows", "table_update", "rows_store", "rows_load", "kv_append"]);
}

#[test]
fn attention() {
    run_if_long(&["attention"]);
}

#[test]
fn recurrent_layers() {
    run_if_long(&["conv_causal", "gated_delta_net", "gated_delta_net_replay"]);
}

#[test]
fn experts() {
    run_if_long(&["route", "experts"]);
}
