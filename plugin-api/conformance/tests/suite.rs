//! The suite passes on the reference backend, and fails on every wrong variant of it.

use paceline_conformance::reference_backend::{Fault, ReferenceBackend};
use paceline_conformance::suite::{Report, Suite, SuiteOptions, Tally};
use paceline_plugin_api::PluginInfo;
use paceline_plugin_api::abi::{self, EntryFn, HostTable};
use paceline_plugin_api::client::{BackendClient, PluginClient};

static HOST: HostTable = HostTable::empty();

const INFO: PluginInfo = PluginInfo {
    id: "reference",
    version: "0.1.0",
    kind: abi::kind::BACKEND,
    descriptor: "id = \"reference\"\nkind = \"backend\"\n",
};

fn enter(entry: EntryFn) -> BackendClient {
    // SAFETY: the entry is linked into this test and never unloaded.
    let plugin = unsafe { PluginClient::enter(entry, &HOST) }.expect("the plugin takes this host");
    plugin.backend().expect("the plugin is a backend")
}

mod right {
    use super::{INFO, ReferenceBackend};
    paceline_plugin_api::backend_plugin!(INFO, ReferenceBackend, ReferenceBackend::new());
}

/// Runs some groups of the suite on a backend with a fault, and checks that one of these groups fails.
macro_rules! fault_is_noticed {
    ($name:ident, $fault:ident, $groups:expr) => {
        mod $name {
            use super::{Fault, INFO, ReferenceBackend};
            paceline_plugin_api::backend_plugin!(
                INFO,
                ReferenceBackend,
                ReferenceBackend::wrong(Fault::$fault)
            );

            #[test]
            fn is_noticed() {
                let report = super::run(super::enter(plugin_entry), &$groups, &[]);
                assert!(report.failed() > 0, "{:?} went unnoticed:\n{report}", Fault::$fault);
                for group in $groups {
                    assert!(report.tally(group).failed > 0, "{:?} in {group}:\n{report}", Fault::$fault);
                }
            }
        }
    };
}

fn run(backend: BackendClient, groups: &[&str], required: &[&str]) -> Report {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let options =
        SuiteOptions { groups: owned(groups), required: owned(required), ..SuiteOptions::default() };
    Suite::new(&backend, options).run()
}

#[test]
fn the_reference_backend_passes_everything() {
    let report = run(enter(right::plugin_entry), &[], &["*"]);
    println!("{report}");
    assert_eq!((report.failed(), report.refused()), (0, 0), "{report}");
    let mut names: Vec<_> = report.entries().iter().map(|entry| (&entry.group, &entry.case)).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), report.entries().len(), "names of cases are unique");
    let operations = paceline_plugin_api::graph::ops::all().map(|(name, _)| name);
    for group in operations.chain(["plan", "load", "launch", "semaphore", "device", "state"]) {
        assert!(report.tally(group).passed > 0, "no case of {group}:\n{report}");
    }
}

#[test]
fn groups_and_requirements_select() {
    let report = run(enter(right::plugin_entry), &["add", "scale", "table_update", "plan"], &[]);
    assert_eq!(report.groups(), ["add", "scale", "table_update", "plan"]);
    assert_eq!(report.tally("mul"), Tally::default());
}

#[test]
fn a_device_that_cannot_be_opened_is_a_failure() {
    let options = SuiteOptions { device: 7, ..SuiteOptions::default() };
    let report = Suite::new(&enter(right::plugin_entry), options).run();
    assert_eq!((report.passed(), report.failed()), (0, 1));
    assert!(report.to_string().contains("there is no device 7"), "{report}");
}

fault_is_noticed!(norm_without_eps, NormWithoutEps, ["rms_norm", "l2_norm"]);
fault_is_noticed!(future, AttentionSeesTheFuture, ["attention"]);
fault_is_noticed!(window, WindowOffByOne, ["attention"]);
fault_is_noticed!(pairs, RopePairsAdjacent, ["rope"]);
fault_is_noticed!(rope_divisor, RopeWithoutDivisor, ["rope"]);
fault_is_noticed!(rope_factors, RopeWithoutFactors, ["rope"]);
fault_is_noticed!(delta_scale, DeltaWithoutScale, ["gated_delta_net"]);
fault_is_noticed!(softcap, NoSoftcap, ["activation", "attention"]);
fault_is_noticed!(slice, SliceFromZero, ["slice"]);
fault_is_noticed!(company, RowsDependOnCompany, ["linear", "softmax", "attention", "conv_causal"]);
fault_is_noticed!(unsteady, Unsteady, ["add", "gated_delta_net", "launch"]);
fault_is_noticed!(stale, KeepsStaleState, ["conv_causal", "gated_delta_net"]);
fault_is_noticed!(planes, ForgetsPlanes, ["conv_causal", "gated_delta_net"]);
fault_is_noticed!(banks, ForgetsBanks, ["gated_delta_net_replay"]);
fault_is_noticed!(too_few, ReplaysTooFew, ["gated_delta_net_replay"]);
fault_is_noticed!(any_slot, AcceptsAnySlot, ["launch"]);
fault_is_noticed!(
    unchecked,
    LaunchesUnchecked,
    ["launch", "rows_store", "rows_load", "conv_causal", "gated_delta_net_replay"]
);
fault_is_noticed!(negative_cells, NegativeCellsAreZero, ["rows_store", "rows_load"]);
fault_is_noticed!(any_setting, AcceptsAnySetting, ["device"]);
fault_is_noticed!(forgets, ForgetsFreedArenas, ["device"]);
fault_is_noticed!(counts, CountsNoLaunches, ["device"]);
fault_is_noticed!(no_wait, WaitsDoNotWait, ["semaphore"]);
fault_is_noticed!(ignores_waits, IgnoresWaits, ["semaphore"]);
fault_is_noticed!(plan_varies, PlanVaries, ["plan"]);
fault_is_noticed!(small_spans, AcceptsSmallSpans, ["load"]);
