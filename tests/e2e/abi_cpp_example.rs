//! The backend in C++: built with the system's compiler, loaded from its file, held against the conformance suite.
#![cfg(all(unix, target_pointer_width = "64"))]

#[path = "abi_build.rs"]
mod abi_build;

use paceline_conformance::suite::{Outcome, Report, Suite, SuiteOptions};
use paceline_plugin_api::backend::NodePlan;
use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::descriptor::{MAGIC, read_section};
use paceline_plugin_api::graph::{Attribute, Builder, DType, StateKind, ops};
use paceline_registry::Registry;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The operations that the example has.
const OPERATIONS: [&str; 11] = [
    "embed",
    "rms_norm",
    "linear",
    "add",
    "mul",
    "activation",
    "glu",
    "softmax",
    "argmax",
    "select_rows",
    "conv_causal",
];

fn example() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = abi_build::repository().join("plugin-api");
        let source = folder.join("examples/cpp/plugin.cpp");
        abi_build::library("cpp_example", &source, &[folder.join("include")])
    })
}

fn backend() -> BackendClient {
    let mut registry = Registry::new().expect("the built-ins are in order");
    let plugin = registry.load_file(example()).expect("the example loads");
    assert_eq!((plugin.id(), plugin.client.version()), ("cpp-example".into(), "0.1.0".into()));
    assert_eq!(plugin.client.abi_range(), ("1.0".into(), "1.0".into()));
    plugin.client.backend().expect("it is a backend")
}

/// The reasons of a group's refusals.
fn reasons<'a>(report: &'a Report, group: &str) -> Vec<&'a str> {
    report
        .refusals()
        .filter(|entry| entry.group == group)
        .map(|entry| match &entry.outcome {
            Outcome::Refused { reason } => reason.as_str(),
            _ => unreachable!("only refusals are asked for"),
        })
        .collect()
}

#[test]
fn the_suite_passes_and_refusals_have_names() {
    let report = Suite::new(&backend(), SuiteOptions::default()).run();
    println!("{report}");
    assert_eq!(report.failed(), 0, "{report}");
    for (operation, _) in ops::all() {
        let (tally, reasons) = (report.tally(operation), reasons(&report, operation));
        if OPERATIONS.contains(&operation) {
            assert!(tally.passed > 0, "{operation} is not supported:\n{report}");
            // What is left are weights of other types.
            let is_of_type = |reason: &&str| reason.contains("is of type") && reason.contains('`');
            assert!(reasons.iter().all(is_of_type), "{operation}: {reasons:?}");
        } else {
            assert!(tally.passed == 0 && tally.refused > 0, "{operation}: {tally:?}");
            // It is refused by name, or for its weights already.
            let is_named = |reason: &&str| {
                reason.contains("/1 is not one of this backend's operations") || reason.contains("is of type")
            };
            assert!(reasons.iter().all(is_named), "{operation}: {reasons:?}");
        }
    }
    for group in ["plan", "load", "launch", "semaphore", "device", "state"] {
        let tally = report.tally(group);
        assert!(tally.passed > 0 && tally.refused == 0, "{group}: {tally:?}\n{report}");
    }
}

#[test]
fn every_node_of_a_plan_has_its_own_answer() {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[4, 8], Some(rows));
    let scaled = b.scale(x, 2.0);
    let sum = b.add(scaled, x);
    let positions = b.parameter("positions", DType::I32, &[4], Some(rows));
    let heads = b.reshape(sum, &[4, 2, 4]);
    let attributes = vec![("rotary".into(), Attribute::Integer(4)), ("base".into(), Attribute::Float(1e4))];
    let turned = b.node("rope", 1, &[heads, positions], attributes).expect("the node is well-formed");
    // A state of a type that the example does not know must not trouble the plan.
    let dims = [2, ops::KV_BLOCK, 2, 4];
    let caches = ["k", "v"].map(|name| b.state(name, StateKind::PerPosition, DType::F16, &dims));
    let cells = b.parameter("cells", DType::I32, &[4], Some(rows));
    b.kv_append(turned[0], turned[0], caches, cells);
    b.result("sum", sum);
    let plan = backend().plan(&b.finish(), "f32", &[]).expect("a plan is total");
    let nodes = plan.summary().nodes.iter().map(|node| match node {
        NodePlan::Kernel { kernel, .. } => format!("kernel {kernel}"),
        NodePlan::Refused { reason } => reason.clone(),
    });
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        [
            "scale/1 is not one of this backend's operations",
            "kernel add",
            "reshape/1 is not one of this backend's operations",
            "rope/1 is not one of this backend's operations",
            "kv_append/1 is not one of this backend's operations",
        ]
    );
}

#[test]
fn the_descriptor_can_be_read_without_running_the_file() {
    let bytes = std::fs::read(example()).expect("the library was built");
    let found = (0..bytes.len() - MAGIC.len())
        // The magic also stands in code that compares with it; only the section has a text behind it.
        .filter(|&at| bytes[at..].starts_with(MAGIC))
        .find_map(|at| read_section(&bytes[at..]).ok());
    let text = found.expect("the section is there and undamaged");
    let mut registry = Registry::new().expect("the built-ins are in order");
    let plugin = registry.load_file(example()).expect("the example loads");
    assert_eq!(text, plugin.client.descriptor());
    assert!(text.starts_with("id = \"cpp-example\"\nkind = \"backend\"\n"), "{text}");
}

#[test]
fn errors_come_back_with_their_texts() {
    let backend = backend();
    let error = backend.open(0, &[("speed".into(), "9".into())]).map(drop).expect_err("no setting is known");
    assert_eq!(error.message, "the setting `speed` is not known: there are none");
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[1, 8], None);
    b.add(x, x);
    let error = backend.plan(&b.finish(), "bf16", &[]).map(drop).expect_err("other capabilities");
    assert_eq!(error.message, "these capabilities are not this backend's");
}
