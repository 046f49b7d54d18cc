//! The file and the descriptors that are part of the tree.

use paceline_registry::settings::{ModelFacts, Placement, PluginSet, Schema, Source, Strategy};

use super::support::{World, backend, llama, offer, on, over, plugin, qwen35};

/// With other backends, whose names nothing of the shipped file knows or only some.
fn world() -> World {
    let mut world = World::shipped();
    world.plugins.extend(["cuda", "rocm", "sycl"].map(backend));
    world
}

fn rollback(facts: &paceline_registry::settings::ContextFacts) -> String {
    world().value(facts, "speculation.rollback")
}

#[test]
fn the_shipped_file_fits_the_shipped_plugins() {
    let resolver = World::shipped().resolver().unwrap();
    assert!(resolver.notes().is_empty(), "{:?}", resolver.notes());
    assert_eq!(resolver.plugin_faults().count(), 0);
}

#[test]
fn every_plugin_of_the_tree_can_be_checked_alone() {
    World::shipped().plugins.iter().for_each(|plugin| Schema::check(plugin).unwrap());
    let wrong = plugin("x", "backend", "[[rule]]\nset = \"x.a\"\nvalue = 1\nwhen = { sequences = 1 }\n");
    assert!(Schema::check(&wrong).is_err());
}

#[test]
fn every_shipped_rule_names_its_evidence_and_what_is_untested() {
    let resolution =
        World::shipped().resolve(&on(ModelFacts { has_trimmed_head: true, ..qwen35() }, &offer("cpu", 0)));
    let rules = resolution.settings().iter().map(|it| &it.winner).filter(|it| it.when.is_some());
    let rules: Vec<_> = rules.collect();
    assert_eq!(rules.len(), 3);
    assert!(rules.iter().all(|rule| rule.measured.is_some() && rule.untested.is_some()));
}

/// A build without some plugins only has rules without effect.
#[test]
fn the_shipped_file_fits_a_build_without_plugins() {
    let mut world = World::shipped();
    world.plugins.clear();
    assert_eq!(world.resolver().unwrap().notes().len(), 2);
}

#[test]
fn replay_is_the_default_only_where_it_was_measured() {
    let cpu = offer("cpu", 0);
    assert_eq!(rollback(&on(qwen35(), &cpu)), "replay");
    for other in ["cuda", "rocm", "sycl"] {
        assert_eq!(rollback(&on(qwen35(), &offer(other, 0))), "snapshots", "{other}");
        assert_eq!(rollback(&over(qwen35(), &cpu, &offer(other, 0))), "snapshots", "cpu and {other}");
    }
    let family = ModelFacts { arch: "qwen3next".to_owned(), ..qwen35() };
    assert_eq!(rollback(&on(family, &cpu)), "snapshots");
    assert_eq!(rollback(&on(llama(), &cpu)), "snapshots");
    // Another strategy was not measured.
    let strategy = ModelFacts { rollback_kind: Some("other".to_owned()), ..qwen35() };
    assert_eq!(rollback(&on(strategy, &cpu)), "snapshots");
    let several = Placement::new(qwen35()).layers(0..8, &cpu).sequences(2).commit().unwrap();
    assert_eq!(rollback(&several), "snapshots");
}

/// Attention elsewhere takes nothing away from recurrent layers that all are where it was measured.
#[test]
fn replay_is_about_recurrent_layers() {
    let mut placement = Placement::new(qwen35());
    for layer in 0..8 {
        placement =
            placement.layers(layer..layer + 1, &offer(if layer % 4 == 3 { "cuda" } else { "cpu" }, 0));
    }
    assert_eq!(rollback(&placement.commit().unwrap()), "replay");
}

#[test]
fn a_trimmed_head_is_taken_where_the_file_has_one() {
    let cpu = offer("cpu", 0);
    let trimmed = ModelFacts { has_trimmed_head: true, ..qwen35() };
    assert_eq!(world().value(&on(trimmed.clone(), &cpu), "mtp-chain.head"), "trimmed");
    assert_eq!(world().value(&on(qwen35(), &cpu), "mtp-chain.head"), "auto");
    assert_eq!(world().set("mtp-chain.head", "full").value(&on(trimmed, &cpu), "mtp-chain.head"), "full");
}

/// What a type costs on a backend is in the plan; no rule may guess it from the backend's name.
#[test]
fn no_rule_sets_what_decides_the_placement() {
    let resolver = world().resolver().unwrap();
    let placed = ["context", "kv_types", "sequences", "microbatch"];
    let rules = resolver.entries().iter().filter(|entry| matches!(entry.source, Source::Rule { .. }));
    assert!(rules.clone().count() == 3 && rules.into_iter().all(|rule| !placed.contains(&rule.key.as_str())));
}

#[test]
fn the_plugin_set() {
    let set = PluginSet::of(&World::shipped().files).unwrap();
    assert_eq!(set.backends, ["cuda", "rocm", "sycl", "cpu"]);
    assert_eq!(set.strategy, Strategy::Auto);
    assert!(set.fallback.is_empty() && set.pins.is_empty() && set.disabled.is_empty());
    let environment = paceline_registry::Environment {
        program_directory: Some("/opt/paceline/bin".into()),
        home: Some("/home/me".into()),
        ..paceline_registry::Environment::default()
    };
    // The same as without any file.
    assert_eq!(set.directories(&environment), environment.search_directories());
}
