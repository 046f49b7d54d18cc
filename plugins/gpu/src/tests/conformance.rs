//! The conformance suite. It finds what a wrong lowering, a wrong place or a missing wait does; the bits of a card it
//! cannot show. Kernels on the processor are slow, so the suite's largest parts run only with `PACELINE_LONG_TESTS`.

use super::backend;
use paceline_conformance::suite::{Suite, SuiteOptions};

fn run(groups: &[&str], graphs: bool) {
    let options = SuiteOptions {
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

fn run_if_long(groups: &[&str]) {
    match std::env::var_os("PACELINE_LONG_TESTS") {
        Some(_) => run(groups, true),
        None => println!("skipped: {groups:?} run with PACELINE_LONG_TESTS"),
    }
}

#[test]
fn contract() {
    run(&["plan", "load", "launch", "semaphore", "device", "state"], true);
}

#[test]
fn launches_without_graphs() {
    run(&["launch", "state"], false);
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
    run(&["select_rows", "table_update", "rows_store", "rows_load", "kv_append"], true);
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
