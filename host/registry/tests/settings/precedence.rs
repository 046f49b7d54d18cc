//! Which source wins.

use insta::assert_snapshot;
use paceline_registry::settings::{Layer, Source, Why};

use super::support::{World, backend, offer, on, over, qwen35, rule, strategy};

/// All sources of one setting, weakest first, each with a value of its own.
fn sources(world: World) -> Vec<World> {
    let rules = |value: u8| rule("cuda.streams", &value.to_string(), "sequences = 1");
    let plain = |value: u8| format!("[plugin.cuda.settings]\nstreams = {value}\n");
    let mut all = vec![world];
    let mut add = |next: &dyn Fn(World) -> World| {
        let last = all.last().cloned().unwrap_or_default();
        all.push(next(last));
    };
    for (layer, value) in [(Layer::Shipped, 2), (Layer::Site, 4), (Layer::User, 6)] {
        add(&|mut world| {
            world.files.retain(|file| !format!("{file:?}").contains(&format!("layer: {layer:?}")));
            world.file(layer, &rules(value))
        });
        add(&|mut world| {
            world.files.pop();
            world.file(layer, &format!("{}{}", plain(value + 1), rules(value)))
        });
    }
    add(&|world| world.variable("PACELINE_CUDA__STREAMS", "8"));
    add(&|world| world.set("cuda.streams", "9"));
    add(&|world| world.request("cuda.streams", "10"));
    all
}

#[test]
fn stronger_sources_win() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let values: Vec<String> = sources(World::new([backend("cuda")]))
        .iter()
        .map(|world| world.value(&facts, "cuda.streams"))
        .collect();
    assert_eq!(values, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
}

#[test]
fn all_that_lost_is_kept_with_its_reason() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let world = sources(World::new([backend("cuda")])).pop().unwrap();
    let resolution = world.resolve(&facts);
    let decided = resolution.get("cuda.streams").unwrap();
    let losers: Vec<String> = decided
        .losers
        .iter()
        .map(|loser| format!("{} {} {:?}", loser.candidate.text(), loser.candidate.source, loser.why))
        .collect();
    assert_snapshot!(losers.join("\n"), @r"
    9 --set Weaker
    8 PACELINE_CUDA__STREAMS Weaker
    7 ~/.config/paceline/registry.toml:3 Weaker
    6 rule ~/.config/paceline/registry.toml:4 Weaker
    5 /etc/paceline/registry.toml:3 Weaker
    4 rule /etc/paceline/registry.toml:4 Weaker
    3 registry.toml:3 Weaker
    2 rule registry.toml:4 Weaker
    1 default of cuda Weaker
    ");
    let warnings: Vec<String> = resolution.overridden().iter().map(ToString::to_string).collect();
    assert_snapshot!(warnings.join("\n"), @r"
    `cuda.streams` is 10 by request; 9 by --set is overridden
    `cuda.streams` is 10 by request; 8 by PACELINE_CUDA__STREAMS is overridden
    `cuda.streams` is 10 by request; 7 by ~/.config/paceline/registry.toml:3 is overridden
    `cuda.streams` is 10 by request; 5 by /etc/paceline/registry.toml:3 is overridden
    ");
}

/// The rule in a plugin's descriptor is the weakest that is no default.
#[test]
fn a_plugins_rule_gives_way_to_files() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let world = World::new([backend("cuda")]);
    assert_eq!(world.value(&facts, "cuda.capture"), "on");
    let off = rule("cuda.capture", "false", "backend = \"cuda\"");
    assert_eq!(world.file(Layer::Shipped, &off).value(&facts, "cuda.capture"), "off");
}

#[test]
fn auto_is_not_set() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let world = World::new([backend("cuda")])
        .file(Layer::Site, "[plugin.cuda.settings]\ncapture = \"auto\"\n")
        .set("cuda.capture", "auto");
    let resolution = world.resolve(&facts);
    let decided = resolution.get("cuda.capture").unwrap();
    assert!(matches!(decided.winner.source, Source::PluginRule { .. }));
    assert!(decided.losers.iter().filter(|loser| loser.why == Why::NotSet).count() == 2);
    assert!(resolution.overridden().is_empty());
}

#[test]
fn the_rule_with_more_conditions_is_the_exception() {
    let wide = rule("replay.mode", "\"on\"", "arch = [\"qwen35\", \"qwen3next\"]");
    let narrow = rule("replay.mode", "\"off\"", "arch = \"qwen35\", sequences = \">=2\"");
    let both = [format!("{wide}{narrow}"), format!("{narrow}{wide}")];
    for text in both {
        let world = World::new([strategy("replay"), backend("cuda")]).file(Layer::Shipped, &text);
        assert_eq!(world.value(&on(qwen35(), &offer("cuda", 0)), "replay.mode"), "on");
        let several = paceline_registry::settings::Placement::new(qwen35())
            .layers(0..8, &offer("cuda", 0))
            .sequences(4)
            .commit()
            .unwrap();
        assert_eq!(world.value(&several, "replay.mode"), "off");
        let resolution = world.resolve(&several);
        assert_eq!(resolution.get("replay.mode").unwrap().losers[0].why, Why::LessSpecific);
    }
}

#[test]
fn rules_that_can_both_hold_must_agree() {
    let text = rule("replay.mode", "\"on\"", "backend = \"cuda\"")
        + &rule("replay.mode", "\"off\"", "sequences = 1");
    let world = World::new([strategy("replay"), backend("cuda")]).file(Layer::Site, &text);
    assert_snapshot!(world.resolver().unwrap_err(), @"/etc/paceline/registry.toml:6:1: this rule gives `replay.mode` the value `off`, the one at /etc/paceline/registry.toml:2 gives `on`, and both can hold: give one of them all conditions of the other and a further one, so that it is the exception");
    let agree = text.replace("\"off\"", "\"on\"");
    let world = World::new([strategy("replay"), backend("cuda")]).file(Layer::Site, &agree);
    assert_eq!(world.value(&on(qwen35(), &offer("cuda", 0)), "replay.mode"), "on");
}

/// Between layers nothing can be in conflict: the stronger one wins.
#[test]
fn rules_of_different_layers_may_disagree() {
    let world = World::new([strategy("replay"), backend("cuda")])
        .file(Layer::Shipped, &rule("replay.mode", "\"on\"", "backend = \"cuda\", sequences = 1"))
        .file(Layer::Site, &rule("replay.mode", "\"off\"", "arch = \"qwen35\""));
    assert_eq!(world.value(&on(qwen35(), &offer("cuda", 0)), "replay.mode"), "off");
}

#[test]
fn rules_that_exclude_each_other_may_disagree() {
    for (one, other) in [
        ("backend = \"cuda\"", "backend = \"sycl\""),
        ("sequences = 1", "sequences = \">1\""),
        ("model.has_mtp = true", "model.has_mtp = false"),
        ("device.memory = \"<16GiB\"", "device.memory = \">=16GiB\""),
    ] {
        let text = rule("replay.mode", "\"on\"", one) + &rule("replay.mode", "\"off\"", other);
        World::new([strategy("replay")]).file(Layer::Site, &text).resolver().unwrap();
    }
}

#[test]
fn a_rule_for_layers_on_two_backends_must_hold_for_both() {
    let split = over(qwen35(), &offer("cuda", 0), &offer("sycl", 0));
    let world = |when: &str| {
        World::new([strategy("replay"), backend("cuda"), backend("sycl")])
            .file(Layer::Shipped, &rule("replay.mode", "\"on\"", when))
    };
    assert_eq!(world("backend = \"cuda\"").value(&split, "replay.mode"), "off");
    assert_eq!(world("backend = \"sycl\"").value(&split, "replay.mode"), "off");
    assert_eq!(world("backend = [\"cuda\", \"sycl\"]").value(&split, "replay.mode"), "on");
    assert_eq!(world("device.memory = \">=16GiB\"").value(&split, "replay.mode"), "on");
    assert_eq!(world("device.memory = \">16GiB\"").value(&split, "replay.mode"), "off");
    assert_eq!(world("device.capability = \"f16\"").value(&split, "replay.mode"), "on");
    assert_eq!(world("device.capability = [\"f16\", \"bf16\"]").value(&split, "replay.mode"), "off");
    assert_eq!(world("backend_version = \">=0.1\"").value(&split, "replay.mode"), "on");
    assert_eq!(world("recurrent_layers = \"split\"").value(&split, "replay.mode"), "on");
}

/// A rule for recurrent layers and one for all layers are about some of the same devices.
#[test]
fn rules_for_other_layers_exclude_each_other_too() {
    let recurrent = rule("replay.mode", "\"on\"", "backend = \"cuda\"") + "concerns = \"recurrent\"\n";
    let all = rule("replay.mode", "\"off\"", "backend = \"sycl\"");
    let attention = format!("{all}concerns = \"attention\"\n");
    let world = |text: String| World::new([strategy("replay")]).file(Layer::Site, &text);
    world(recurrent.clone() + &all).resolver().unwrap();
    world(recurrent + &attention).resolver().unwrap_err();
}

/// Sets of words that overlap leave a context in which both hold.
#[test]
fn rules_that_overlap_are_in_conflict() {
    for (one, other) in [
        ("backend = [\"cuda\", \"sycl\"]", "backend = [\"cuda\", \"rocm\"]"),
        ("sequences = \"<=4\"", "sequences = \">=4\""),
        ("device.capability = \"f16\"", "device.capability = \"bf16\""),
        ("backend_version = \">=0.1\"", "backend_version = \">=0.2\""),
    ] {
        let text = rule("replay.mode", "\"on\"", one) + &rule("replay.mode", "\"off\"", other);
        World::new([strategy("replay")]).file(Layer::Site, &text).resolver().unwrap_err();
    }
}

/// A backend's own setting is about its own layers, whoever runs the others.
#[test]
fn a_backends_own_rule_looks_at_its_own_devices() {
    let text = rule("sycl.capture", "false", "device.memory = \"<=16GiB\"")
        + &rule("cuda.capture", "false", "device.memory = \"<=16GiB\"");
    let world = World::new([backend("cuda"), backend("sycl")]).file(Layer::Shipped, &text);
    let split = over(qwen35(), &offer("cuda", 0), &offer("sycl", 0));
    assert_eq!(world.value(&split, "sycl.capture"), "off");
    assert_eq!(world.value(&split, "cuda.capture"), "on");
}

/// Only the layers concerned count, where a rule says which.
#[test]
fn a_rule_may_be_about_recurrent_layers_only() {
    let mut placement = paceline_registry::settings::Placement::new(qwen35());
    for layer in 0..8 {
        let device = if layer % 4 == 3 { offer("sycl", 0) } else { offer("cuda", 0) };
        placement = placement.layers(layer..layer + 1, &device);
    }
    let facts = placement.commit().unwrap();
    let when = "backend = \"cuda\", recurrent_layers = \"all-on-one\"";
    let all = rule("replay.mode", "\"on\"", when);
    let recurrent = format!("{all}concerns = \"recurrent\"\n");
    let world = World::new([strategy("replay")]);
    assert_eq!(world.clone().file(Layer::Shipped, &all).value(&facts, "replay.mode"), "off");
    assert_eq!(world.file(Layer::Shipped, &recurrent).value(&facts, "replay.mode"), "on");
}

#[test]
fn values_that_cannot_be_had_give_way_unless_somebody_asked_for_them() {
    let facts = on(qwen35(), &offer("cpu", 0));
    let mut resolution = World::shipped().resolve(&facts);
    assert_eq!(resolution.get("speculation.rollback").unwrap().winner.text(), "replay");
    resolution.refuse("speculation.rollback", "this program was built without `gdn-replay`").unwrap();
    assert_eq!(resolution.get("speculation.rollback").unwrap().winner.text(), "snapshots");
    let fault = resolution.refuse("speculation.rollback", "there is no memory").unwrap_err();
    assert_snapshot!(fault, @"`speculation.rollback` is snapshots by built-in default, which cannot be had here: there is no memory");
    let mut asked = World::shipped().set("speculation.rollback", "replay").resolve(&facts);
    assert_snapshot!(asked.refuse("speculation.rollback", "this program was built without `gdn-replay`").unwrap_err(), @"`speculation.rollback` is replay by --set, which cannot be had here: this program was built without `gdn-replay`");
    let mut site =
        World::shipped().file(Layer::Site, "[settings.speculation]\nrollback = \"replay\"\n").resolve(&facts);
    assert_snapshot!(site.refuse("speculation.rollback", "this program was built without `gdn-replay`").unwrap_err(), @"/etc/paceline/registry.toml:3:1: `speculation.rollback` is replay by /etc/paceline/registry.toml:3, which cannot be had here: this program was built without `gdn-replay`");
}

#[test]
fn plugins_get_what_is_set_and_keep_their_own_defaults() {
    let facts = on(qwen35(), &offer("cuda", 0));
    let world = World::new([backend("cuda"), strategy("replay")]).set("replay.share", "1");
    let resolution = world.resolve(&facts);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(resolution.settings_of("cuda"), [pair("capture", "on")]);
    assert_eq!(resolution.settings_of("replay"), [pair("share", "1")]);
}

#[test]
fn what_was_decided_before_the_placement_stays() {
    let world = World::shipped().set("context", "2048").set("cpu.threads", "3");
    let resolver = world.resolver().unwrap();
    let facts = on(qwen35(), &offer("cpu", 0));
    let before = resolver.before_placement(facts.model()).unwrap();
    assert_eq!(before.get("context").unwrap().winner.text(), "2048");
    assert_eq!(before.get("kv_types").unwrap().winner.text(), "f16");
    assert!(before.get("speculation.rollback").is_none());
    let after = resolver.on_placement(&facts, &world.strategies(), &before).unwrap();
    assert_eq!(after.settings_of("cpu"), [("threads".to_owned(), "3".to_owned())]);
}
