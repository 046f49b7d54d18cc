//! What changes no value.

use paceline_registry::Descriptor;
use paceline_registry::settings::{ConfigFile, ContextFacts, Layer, Placement};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::support::{World, backend, file, offer, qwen35, rule, strategy};

/// Conditions, of which some hold in some contexts.
const CONDITIONS: [&str; 14] = [
    "backend = \"cuda\"",
    "backend = [\"cuda\", \"sycl\"]",
    "backend = [\"cuda\", \"rocm\"]",
    "backend = \"rocm\"",
    "device.capability = \"f16\"",
    "device.kind = \"discrete\"",
    "device.memory = \">=32GiB\"",
    "sequences = 1",
    "sequences = \">=2\"",
    "arch = \"qwen35\"",
    "recurrent_layers = \"all-on-one\"",
    "recurrent_layers = \"split\"",
    "split = \"layer\"",
    "stages = \"<=2\"",
];

const VALUES: [(&str, &[&str]); 4] = [
    ("replay.mode", &["\"on\"", "\"off\""]),
    ("speculation.rollback", &["\"replay\"", "\"snapshots\""]),
    ("cuda.streams", &["2", "3"]),
    ("sycl.capture", &["true", "false"]),
];

fn rules() -> impl Strategy<Value = Vec<String>> {
    let one =
        (select(VALUES.to_vec()), any::<proptest::sample::Index>(), subsequence(CONDITIONS.to_vec(), 1..4));
    let one = one.prop_filter_map("a fact stands twice", |((key, values), value, when)| {
        let facts: Vec<&str> = when.iter().filter_map(|it| it.split(' ').next()).collect();
        let is_distinct = (1..facts.len()).all(|index| !facts[..index].contains(&facts[index]));
        is_distinct.then(|| rule(key, values[value.index(values.len())], &when.join(", ")))
    });
    proptest::collection::vec(one, 0..6)
}

/// Each layer on a device of one of these backends.
fn facts() -> impl Strategy<Value = (Vec<(&'static str, u32)>, u64)> {
    let device = (select(vec!["cuda", "sycl"]), 0..2_u32);
    let spread = proptest::collection::vec(device.clone(), 8);
    let same = device.prop_map(|device| vec![device; 8]);
    (prop_oneof![spread, same], 1..3_u64)
}

fn placed(devices: &[(&str, u32)], sequences: u64, rename: impl Fn(&str) -> String) -> ContextFacts {
    let mut placement = Placement::new(qwen35()).sequences(sequences);
    for (layer, (plugin, index)) in devices.iter().enumerate() {
        let mut offer = offer(plugin, *index);
        offer.label = rename(&offer.label);
        placement = placement.layers(layer..layer + 1, &offer);
    }
    placement.commit().unwrap()
}

fn same_name(label: &str) -> String {
    label.to_owned()
}

fn plugins() -> Vec<Descriptor> {
    vec![backend("cuda"), backend("sycl"), strategy("replay")]
}

fn world(plugins: Vec<Descriptor>, files: Vec<ConfigFile>) -> World {
    World { plugins, files, given: Vec::new() }
}

fn files(shipped: &[String], site: &[String]) -> Vec<ConfigFile> {
    vec![file(Layer::Shipped, &shipped.concat()).unwrap(), file(Layer::Site, &site.concat()).unwrap()]
}

/// All that came of it, with sources and losers, or what is wrong.
fn outcome(world: &World, facts: &ContextFacts) -> Result<String, String> {
    world.try_resolve(facts).map(|it| format!("{:#?}", it.settings())).map_err(|faults| faults.to_string())
}

/// Values only, or that something is wrong.
fn values(world: &World, facts: &ContextFacts) -> Option<Vec<(String, String)>> {
    let resolution = world.try_resolve(facts).ok()?;
    Some(resolution.settings().iter().map(|it| (it.key.clone(), it.winner.text())).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn other_backends_change_nothing(shipped in rules(), site in rules(), (devices, sequences) in facts()) {
        let facts = placed(&devices, sequences, same_name);
        let before = outcome(&world(plugins(), files(&shipped, &site)), &facts);
        let more = [plugins(), vec![backend("rocm"), backend("vulkan")]].concat();
        let mut after = world(more, files(&shipped, &site));
        after.given.push(paceline_registry::settings::Given {
            key: "rocm.streams".to_owned(),
            value: "9".to_owned(),
            source: paceline_registry::settings::Source::Environment { variable: "PACELINE_ROCM__STREAMS".to_owned() },
        });
        prop_assert_eq!(before, outcome(&after, &facts));
    }

    #[test]
    fn the_order_of_plugins_and_files_changes_nothing(
        shipped in rules(),
        site in rules(),
        (devices, sequences) in facts(),
        order in Just(plugins()).prop_shuffle(),
    ) {
        let facts = placed(&devices, sequences, same_name);
        let before = outcome(&world(plugins(), files(&shipped, &site)), &facts);
        let reversed = files(&shipped, &site).into_iter().rev().collect();
        prop_assert_eq!(before, outcome(&world(order, reversed), &facts));
    }

    #[test]
    fn the_order_of_rules_changes_no_value(
        (rules, shuffled) in rules().prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        (devices, sequences) in facts(),
    ) {
        let facts = placed(&devices, sequences, same_name);
        let before = values(&world(plugins(), files(&rules, &[])), &facts);
        prop_assert_eq!(before, values(&world(plugins(), files(&shuffled, &[])), &facts));
    }

    #[test]
    fn the_names_of_devices_change_nothing(shipped in rules(), (devices, sequences) in facts()) {
        let world = world(plugins(), files(&shipped, &[]));
        let before = outcome(&world, &placed(&devices, sequences, same_name));
        let renamed = placed(&devices, sequences, |label| label.chars().rev().collect::<String>() + " of Acme");
        prop_assert_eq!(before, outcome(&world, &renamed));
    }

    /// What the check lets pass, no context trips over.
    #[test]
    fn conflicts_are_found_before_any_context(shipped in rules(), site in rules(), (devices, sequences) in facts()) {
        let world = world(plugins(), files(&shipped, &site));
        if world.resolver().is_ok() {
            prop_assert!(world.try_resolve(&placed(&devices, sequences, same_name)).is_ok());
        }
    }

    /// A default of a backend is on only where this backend alone runs layers.
    #[test]
    fn a_rule_for_one_backend_holds_where_it_runs_all_layers((devices, sequences) in facts()) {
        let only = rule("replay.mode", "\"on\"", "backend = \"sycl\"");
        let world = world(plugins(), files(&[only], &[]));
        let facts = placed(&devices, sequences, same_name);
        let expected = if devices.iter().all(|(plugin, _)| *plugin == "sycl") { "on" } else { "off" };
        prop_assert_eq!(world.value(&facts, "replay.mode"), expected);
    }
}
