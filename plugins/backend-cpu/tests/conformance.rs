//! The conformance suite against the backend as it is linked in, at every level.

#[path = "support/host.rs"]
mod host;

use host::backend;
use paceline_backend_cpu::level::Level;
use paceline_conformance::suite::{Suite, SuiteOptions};

/// Operations and types that this backend must have.
const REQUIRED: &[&str] = &[
    "embed q8_0",
    "linear f32",
    "linear f16",
    "linear bf16",
    "linear q8_0",
    "linear q4_0",
    "linear q4_1",
    "linear q5_0",
    "linear q5_1",
    "linear iq4_nl",
    "linear mxfp4",
    "linear q4_k",
    "linear q5_k",
    "linear q6_k",
    "rms_norm",
    "l2_norm",
    "scale",
    "glu",
    "rope",
    "table_update",
    "rows_store",
    "rows_load",
    "conv_causal",
    "gated_delta_net",
    "gated_delta_net_replay",
    "select_rows",
    "argmax",
    "draw",
    "top_k",
    "softmax",
    "route",
    "experts",
    "plan",
    "load",
    "launch",
    "semaphore",
    "device",
];

/// Heads and sequences are shared out among any number of threads, each with its own scratch.
#[test]
fn states_conform_with_any_number_of_threads() {
    let groups = ["rows_store", "rows_load", "conv_causal", "gated_delta_net", "gated_delta_net_replay"];
    for threads in ["1", "3"] {
        let options = SuiteOptions {
            settings: vec![("threads".into(), threads.into())],
            groups: groups.map(str::to_owned).to_vec(),
            required: groups.map(str::to_owned).to_vec(),
            ..SuiteOptions::default()
        };
        let report = Suite::new(&backend(), options).run();
        assert_eq!(report.failed(), 0, "{threads} threads\n{report}");
    }
}

#[test]
fn every_level_conforms() {
    let backend = backend();
    for level in Level::available() {
        let options = SuiteOptions {
            settings: vec![("level".into(), level.name().into())],
            required: REQUIRED.iter().map(|&r| r.to_owned()).collect(),
            ..SuiteOptions::default()
        };
        let report = Suite::new(&backend, options).run();
        println!("{level}\n{report}");
        assert_eq!(report.failed(), 0, "{level}\n{report}");
        assert!(report.passed() > 2000, "only {} cases passed", report.passed());
    }
}
