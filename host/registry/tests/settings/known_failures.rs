//! Ways in which other programs choose wrong defaults, each of which people met in practice.

use insta::assert_snapshot;
use paceline_registry::settings::{
    DeviceKind, DrafterPlace, Layer, ModelFacts, Offer, Placement, PluginSet, Role,
};

use super::support::{World, backend, file, llama, offer, on, over, plugin, qwen35, rule, strategy};

/// Both are there, each with defaults of its own.
fn two_backends() -> World {
    World::new([backend("cuda"), backend("sycl"), strategy("replay")])
        .file(Layer::Shipped, &rule("replay.mode", "\"on\"", "backend = \"sycl\""))
}

#[test]
fn no_default_of_sycl_is_on_for_a_model_on_cuda() {
    let resolution = two_backends().resolve(&on(qwen35(), &offer("cuda", 0)));
    assert_eq!(resolution.get("replay.mode").unwrap().winner.text(), "off");
    assert!(resolution.get("sycl.capture").is_none() && resolution.settings_of("sycl").is_empty());
    assert_eq!(resolution.get("cuda.capture").unwrap().winner.text(), "on");
}

#[test]
fn no_default_of_cuda_is_on_for_a_model_on_sycl() {
    let resolution = two_backends().resolve(&on(qwen35(), &offer("sycl", 0)));
    assert_eq!(resolution.get("replay.mode").unwrap().winner.text(), "on");
    assert!(resolution.get("cuda.capture").is_none() && resolution.settings_of("cuda").is_empty());
}

#[test]
fn layers_on_both_get_what_both_allow() {
    for (first, second) in [("cuda", "sycl"), ("sycl", "cuda")] {
        let facts = over(qwen35(), &offer(first, 0), &offer(second, 0));
        assert_eq!(two_backends().value(&facts, "replay.mode"), "off");
    }
}

/// One layer elsewhere is enough.
#[test]
fn a_single_layer_elsewhere_counts() {
    let facts = Placement::new(qwen35())
        .layers(0..7, &offer("sycl", 0))
        .layers(7..8, &offer("cuda", 0))
        .commit()
        .unwrap();
    assert_eq!(two_backends().value(&facts, "replay.mode"), "off");
}

/// Two backends that run on the same kind of hardware are two backends.
#[test]
fn a_backend_that_looks_like_another_gets_none_of_its_defaults() {
    let lookalike = Offer { plugin: "zluda".to_owned(), label: "zluda:0".to_owned(), ..offer("sycl", 0) };
    let mut world = two_backends();
    world.plugins.push(backend("zluda"));
    assert_eq!(world.value(&on(qwen35(), &lookalike), "replay.mode"), "off");
}

/// A word for many, such as `gpu`, would resolve to whatever happens to be there.
#[test]
fn no_word_stands_for_several_backends() {
    for word in ["gpu", "any", "*", "CUDA"] {
        let text = rule("replay.mode", "\"on\"", &format!("backend = \"{word}\""));
        let world = World::new([backend("cuda"), strategy("replay")]).file(Layer::Shipped, &text);
        assert_eq!(world.value(&on(qwen35(), &offer("cuda", 0)), "replay.mode"), "off", "{word}");
    }
}

/// The device that runs layers counts, not the first one of its backend.
#[test]
fn the_device_in_use_counts() {
    let text = rule("replay.mode", "\"on\"", "device.arch = \"gfx906\"");
    let world = World::new([backend("rocm"), strategy("replay")]).file(Layer::Shipped, &text);
    let integrated = Offer {
        label: "rocm:1".to_owned(),
        arch: "gfx1103".to_owned(),
        kind: DeviceKind::Integrated,
        ..offer("rocm", 1)
    };
    assert_eq!(world.value(&on(qwen35(), &offer("rocm", 0)), "replay.mode"), "on");
    assert_eq!(world.value(&on(qwen35(), &integrated), "replay.mode"), "off");
}

/// The memory that an integrated device shares with the host is no reason for what needs memory of its own.
#[test]
fn memory_is_compared_within_a_kind() {
    let text = rule("replay.mode", "\"on\"", "device.kind = \"discrete\", device.memory = \">=16GiB\"");
    let world = World::new([backend("sycl"), strategy("replay")]).file(Layer::Shipped, &text);
    let integrated = Offer { kind: DeviceKind::Integrated, memory: 96 << 30, ..offer("sycl", 0) };
    assert_eq!(world.value(&on(qwen35(), &integrated), "replay.mode"), "off");
    assert_eq!(world.value(&on(qwen35(), &offer("sycl", 0)), "replay.mode"), "on");
}

#[test]
fn a_software_device_is_no_card() {
    let text = rule("replay.mode", "\"on\"", "device.kind = [\"discrete\", \"integrated\"]");
    let world = World::new([backend("sycl"), strategy("replay")]).file(Layer::Shipped, &text);
    let software = Offer { kind: DeviceKind::Software, ..offer("sycl", 0) };
    assert_eq!(world.value(&on(qwen35(), &software), "replay.mode"), "off");
}

/// The drafter's defaults follow its own place, and the target's follow the target's.
#[test]
fn a_drafter_elsewhere_has_defaults_of_its_own() {
    let drafter = ModelFacts { role: Role::Drafter, ..llama() };
    let drafter = on(drafter, &offer("sycl", 0));
    let target = Placement::new(qwen35())
        .layers(0..8, &offer("cuda", 0))
        .drafter_place(DrafterPlace::OtherDevice)
        .commit()
        .unwrap();
    assert_eq!(two_backends().value(&drafter, "replay.mode"), "on");
    assert_eq!(two_backends().value(&target, "replay.mode"), "off");
}

/// What one model needs is set for it, however the default came about.
#[test]
fn a_default_can_always_be_overridden() {
    let facts = on(qwen35(), &offer("sycl", 0));
    assert_eq!(two_backends().set("replay.mode", "off").value(&facts, "replay.mode"), "off");
    let site = two_backends().file(Layer::Site, "[plugin.replay.settings]\nmode = \"off\"\n");
    assert_eq!(site.value(&facts, "replay.mode"), "off");
}

/// Nothing that was asked for goes off without a word.
#[test]
fn what_was_asked_for_and_fails_is_an_error() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let mut resolution = two_backends().set("replay.mode", "on").resolve(&facts);
    let fault = resolution.refuse("replay.mode", "the backend lacks `gated_delta_net_replay/1`").unwrap_err();
    assert_snapshot!(fault, @"`replay.mode` is on by --set, which cannot be had here: the backend lacks `gated_delta_net_replay/1`");
}

/// A run whose backend fails does not go on elsewhere, unless a file says where.
#[test]
fn nothing_falls_back_to_the_processor_by_itself() {
    assert!(PluginSet::of(&World::shipped().files).unwrap().fallback.is_empty());
    let site = file(Layer::Site, "[select]\nfallback = [\"cpu\"]\n").unwrap();
    let files = [World::shipped().files, vec![site]].concat();
    assert_eq!(PluginSet::of(&files).unwrap().fallback, ["cpu"]);
}

/// The order of backends is a site's to choose.
#[test]
fn no_maker_always_comes_first() {
    let site =
        file(Layer::Site, "[select]\nbackend = [\"rocm\", \"cuda\"]\n[plugin.sycl]\nenabled = false\n")
            .unwrap();
    let set = PluginSet::of(&[World::shipped().files, vec![site]].concat()).unwrap();
    assert_eq!(set.backends, ["rocm", "cuda"]);
    assert!(set.disabled.contains("sycl"));
}

/// Faulty rules of one plugin count where this plugin is used.
#[test]
fn a_broken_plugin_hurts_nobody_else() {
    let broken = plugin(
        "rocm",
        "backend",
        "[[rule]]\nset = \"cuda.capture\"\nvalue = true\nwhen = { sequences = 1 }\n",
    );
    let world = World::new([backend("cuda"), broken]);
    assert_eq!(world.value(&on(qwen35(), &offer("cuda", 0)), "cuda.capture"), "on");
    let fault = world.try_resolve(&on(qwen35(), &offer("rocm", 0))).unwrap_err();
    assert_snapshot!(fault, @"descriptor of plugin rocm:6:7: a rule of plugin `rocm` can only set settings of `rocm`, and not `cuda.capture`");
}

/// The same card through two backends: what one of them runs concerns the other one in nothing.
#[test]
fn a_card_that_is_seen_twice_has_one_owner_in_a_context() {
    let facts = on(qwen35(), &offer("sycl", 0));
    assert_eq!(facts.backends().into_iter().collect::<Vec<_>>(), ["sycl"]);
}

#[test]
fn placements_that_cannot_be() {
    let fault = |placement: Placement| placement.commit().unwrap_err().to_string();
    let new = || Placement::new(qwen35());
    let cuda = offer("cuda", 0);
    assert_snapshot!(fault(new()), @"layer 0 is placed nowhere");
    assert_snapshot!(fault(new().layers(0..7, &cuda)), @"layer 7 is placed nowhere");
    assert_snapshot!(fault(new().layers(0..9, &cuda)), @"layers 0 to 8 were placed, and the model has 8");
    assert_snapshot!(fault(new().layers(0..8, &cuda).layers(3..4, &cuda)), @"layer 3 is placed twice, and the split is not by tensors");
    let namesake = Offer { memory: 1, ..cuda.clone() };
    assert_snapshot!(fault(new().layers(0..4, &cuda).layers(4..8, &namesake)), @"two devices have the name `cuda:0`");
}
