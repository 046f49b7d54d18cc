//! Values from the environment and the command line, plugins that files ask for, and what is only noted.

use std::collections::BTreeSet;
use std::path::PathBuf;

use insta::assert_snapshot;
use paceline_registry::Environment;
use paceline_registry::settings::{ConfigFile, Given, Layer, PluginSet, Resolver, Schema, Strategy};

use super::support::{World, backend, file, offer, on, plugin, qwen35, rule, sorted_json, strategy};

fn variables(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn faulty(world: World) -> String {
    world.resolver().unwrap_err().to_string()
}

#[test]
fn variables_are_named_after_keys() {
    let world = World::shipped();
    let schema = world.schema();
    assert_eq!(schema.get("mtp-chain.depth").unwrap().variable(), "PACELINE_MTP_CHAIN__DEPTH");
    assert_eq!(
        schema.get("speculation.most_verified").unwrap().variable(),
        "PACELINE_SPECULATION__MOST_VERIFIED"
    );
    assert_eq!(schema.get("context").unwrap().variable(), "PACELINE_CONTEXT");
    let world = world.variable("PACELINE_NGRAM_ADAPTIVE__MATCH", "7");
    assert_eq!(world.value(&on(qwen35(), &offer("cpu", 0)), "ngram-adaptive.match"), "7");
}

#[test]
fn strange_variables() {
    let schema = World::shipped().schema();
    let read = |all: &[(&str, &str)]| Given::environment(&schema, variables(all), &["PACELINE_PLUGIN_DIRS"]);
    let fault = |name: &str| read(&[(name, "1")]).unwrap_err().to_string();
    assert_snapshot!(fault("PACELINE_CONTXT"), @"the variable PACELINE_CONTXT is no setting; did you mean `PACELINE_CONTEXT`?");
    assert_snapshot!(fault("PACELINE_MTP_CHAIN__DEPHT"), @"the variable PACELINE_MTP_CHAIN__DEPHT is no setting; did you mean `PACELINE_MTP_CHAIN__DEPTH`?");
    assert_snapshot!(fault("PACELINE_PLUGIN_DIR"), @"the variable PACELINE_PLUGIN_DIR is no setting; did you mean `PACELINE_PLUGIN_DIRS`?");
    let others =
        read(&[("PACELINE_PLUGIN_DIRS", "/x"), ("PATH", "/y"), ("PACELINE_CUDA__STREAMS", "4")]).unwrap();
    assert!(others.given.is_empty());
    assert_snapshot!(others.notes.join("\n"), @"the variable PACELINE_CUDA__STREAMS: the plugin `cuda` for NVIDIA GPUs is not installed, so `cuda.streams` has no effect");
}

#[test]
fn wrong_values_name_what_gave_them() {
    let world = World::shipped;
    assert_snapshot!(faulty(world().variable("PACELINE_SPECULATION__CONTROLLER", "banana")), @"PACELINE_SPECULATION__CONTROLLER=banana: `speculation.controller` cannot be `banana`: it takes on or off");
    assert_snapshot!(faulty(world().set("mtp-chain.depth", "16")), @"--set mtp-chain.depth=16: `mtp-chain.depth` cannot be `16`: it takes a whole number from 0 to 15");
    assert_snapshot!(faulty(world().set("mtp-chain.depth", "")), @"--set mtp-chain.depth=: `mtp-chain.depth` cannot be ``: it takes a whole number from 0 to 15");
    assert_snapshot!(faulty(world().set("mtp-chian.depth", "4")), @"--set mtp-chian.depth=4: there is no plugin `mtp-chian`, so `mtp-chian.depth` has no effect; did you mean `mtp-chain.depth`?");
    assert_snapshot!(faulty(world().set("cuda.streams", "4")), @"--set cuda.streams=4: the plugin `cuda` for NVIDIA GPUs is not installed, so `cuda.streams` has no effect");
    assert_snapshot!(faulty(world().set("mtp-chain.depth", "4").set("mtp-chain.depth", "5")), @"--set mtp-chain.depth=5: `mtp-chain.depth` is given twice, by --set too");
    let mut twice = world().set("context", "4096");
    twice.given.push(Given::option("--ctx", "context", "2048"));
    assert_snapshot!(faulty(twice), @"--ctx 2048: `context` is given twice, by --set too");
    assert_snapshot!(faulty(world().request("mtp-chain.depth", "deep")), @"`mtp-chain.depth` of the request: `mtp-chain.depth` cannot be `deep`: it takes a whole number from 0 to 15");
    let mut type_of_cache = world();
    type_of_cache.given.push(Given::option("--kv-type", "kv_types", "q4"));
    assert_snapshot!(faulty(type_of_cache), @"--kv-type q4: `kv_types` cannot be `q4`: it takes one of f16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, or two of them as `A/B`");
}

/// What is given for this run must have an effect in it; a file may speak of other runs.
#[test]
fn values_without_effect() {
    let facts = on(qwen35(), &offer("cpu", 0));
    let mut world = World::shipped();
    world.plugins.push(backend("cuda"));
    let fault = |world: World| world.try_resolve(&facts).unwrap_err().to_string();
    assert_snapshot!(fault(world.clone().set("cuda.streams", "4")), @"`cuda.streams` is 4 by --set, which has no effect: `cuda` runs no layers here");
    let resolver = world.clone().set("speculation.select", "order").resolver().unwrap();
    let before = resolver.before_placement(facts.model()).unwrap();
    assert_snapshot!(resolver.on_placement(&facts, &BTreeSet::new(), &before).unwrap_err(), @"`speculation.select` is order by --set, which has no effect: no strategy is used here");
    let resolution = world.file(Layer::Site, "[plugin.cuda.settings]\nstreams = 4\n").resolve(&facts);
    assert_eq!(resolution.unused().len(), 1);
}

#[test]
fn what_is_for_absent_plugins_is_noted() {
    let text = "[plugin.cdua.settings]\nstreams = 4\n".to_owned() + &rule("rocm.waves", "4", "sequences = 1");
    let resolver = World::new([backend("cuda")]).file(Layer::Site, &text).resolver().unwrap();
    assert_snapshot!(resolver.notes().join("\n"), @r"
    /etc/paceline/registry.toml:3: there is no plugin `cdua`, so `cdua.streams` has no effect; did you mean `cuda.streams`?
    /etc/paceline/registry.toml:5: the plugin `rocm` for AMD GPUs is not installed, so `rocm.waves` has no effect
    ");
}

#[test]
fn one_file_of_each_layer() {
    let world = World::new([]).file(Layer::Site, "").file(Layer::Site, "");
    assert_snapshot!(faulty(world), @"there are two site files of settings");
}

#[test]
fn plugins_that_cannot_be_told_apart() {
    let mut schema = Schema::host();
    schema.add(&backend("cuda")).unwrap();
    assert_snapshot!(schema.add(&backend("cuda")).unwrap_err(), @"the settings of plugin `cuda` are there twice");
    assert_snapshot!(schema.add(&strategy("speculation")).unwrap_err(), @"a plugin cannot be named `speculation`: `speculation.acceptance` is a setting of the host");
    assert_snapshot!(schema.add(&strategy("context")).unwrap_err(), @"a plugin cannot be named `context`: `context` is a setting of the host");
    let keys = "[[setting]]\nkey = \"a-b\"\ntype = \"bool\"\ndefault = false\nstage = \"run\"\ndoc = \"\"\n";
    let both = keys.to_owned() + &keys.replace("a-b", "a_b");
    assert_snapshot!(schema.add(&plugin("x", "backend", &both)).unwrap_err(), @"the settings `x.a-b` and `x.a_b` have the same variable PACELINE_X__A_B");
}

/// A newer plugin may know facts that this host does not: its other rules hold all the same.
#[test]
fn rules_of_newer_plugins() {
    let text = format!(
        "{}[[rule]]\nset = \"cuda.streams\"\nvalue = 8\nwhen = {{ moon = \"full\" }}\n",
        backend("cuda").text.replace("built = \"1.0\"", "built = \"1.999\"")
    );
    let world = World::new([paceline_registry::Descriptor::parse(&text).unwrap()]);
    let facts = on(qwen35(), &offer("cuda", 0));
    assert_eq!(world.value(&facts, "cuda.capture"), "on");
    assert_eq!(world.value(&facts, "cuda.streams"), "1");
}

fn plugin_set(files: &[(Layer, &str)]) -> Result<PluginSet, String> {
    let files: Vec<_> = files.iter().map(|(layer, text)| file(*layer, text).unwrap()).collect();
    PluginSet::of(&files).map_err(|faults| faults.to_string())
}

#[test]
fn entries_of_stronger_files_win() {
    let set = plugin_set(&[
        (Layer::User, "[select]\nstrategy = \"none\"\n[plugin.rocm]\nenabled = false\n"),
        (
            Layer::Shipped,
            "[search]\ndirs = [\"$EXE/plugins\"]\n[select]\nbackend = [\"cuda\", \"cpu\"]\n\
             [plugin.cuda]\nversion = \">=0.1\"\n[plugin.rocm]\nversion = \">=0.1\"\n",
        ),
        (
            Layer::Site,
            "[search]\ndirs = [\"/opt/paceline\", \"$XDG_DATA_HOME/p\"]\n[select]\nbackend = [\"rocm\"]\n\
             fallback = [\"cpu\"]\n[plugin.cuda]\npath = \"/opt/cuda.so\"\n",
        ),
    ])
    .unwrap();
    assert_eq!(set.backends, ["rocm"]);
    assert_eq!(set.strategy, Strategy::Named(Vec::new()));
    assert_eq!(set.fallback, ["cpu"]);
    assert_eq!(set.disabled, BTreeSet::from(["rocm".to_owned()]));
    assert_eq!(set.pins.keys().collect::<Vec<_>>(), ["cuda"]);
    assert_eq!(set.pins["cuda"].path, Some("/opt/cuda.so".into()));
    assert!(set.pins["cuda"].version.is_some());
    let environment = Environment {
        program_directory: Some("/bin".into()),
        home: Some("/home/me".into()),
        plugin_directories: Some("/first:relative".into()),
        ..Environment::default()
    };
    let expected = ["/first", "/opt/paceline", "/home/me/.local/share/p"].map(PathBuf::from);
    assert_eq!(set.directories(&environment), expected);
}

#[test]
fn a_fallback_must_be_there() {
    let error = plugin_set(&[
        (Layer::Site, "[select]\nfallback = [\"cpu\"]\n"),
        (Layer::User, "[plugin.cpu]\nenabled = false\n"),
    ]);
    assert_snapshot!(error.unwrap_err(), @"/etc/paceline/registry.toml:3:13: `fallback` has `cpu`, which another file switches off");
}

#[test]
fn the_schema_for_programs() {
    let json = World::shipped().schema().as_json();
    let depth = json.as_array().unwrap().iter().find(|setting| setting["key"] == "mtp-chain.depth").unwrap();
    assert_snapshot!(sorted_json(depth), @r#"
    {
      "default": 0,
      "default_from": null,
      "doc": "Length of drafts; 0 lets the host adapt it, up to 8.",
      "key": "mtp-chain.depth",
      "plugin": "mtp-chain",
      "stage": "context",
      "takes": [
        0,
        15
      ],
      "type": "integer",
      "unit": "tokens",
      "variable": "PACELINE_MTP_CHAIN__DEPTH"
    }
    "#);
}

/// What `config show` has to show: all that gives values, whether it holds or not.
#[test]
fn all_entries_can_be_shown() {
    let world =
        World::shipped().file(Layer::Site, "[settings]\nmicrobatch = \"auto\"\n").set("context", "2048");
    let resolver: Resolver = world.resolver().unwrap();
    let lines = resolver.entries().iter().map(|entry| {
        let value = entry.value.as_ref().map_or_else(|| "auto".to_owned(), ToString::to_string);
        let when = entry.when().map(|when| format!(" when {when}")).unwrap_or_default();
        format!("{} = {value} by {}{when}", entry.key, entry.source)
    });
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    context = 2048 by --set
    microbatch = auto by /etc/paceline/registry.toml:3
    mtp-chain.head = trimmed by rule registry.toml:28 when model.has_trimmed_head = true
    mtp-chain.kv_only = on by rule registry.toml:35 when backend = cpu
    speculation.rollback = replay by rule registry.toml:20 when backend = cpu, arch = qwen35, recurrent_layers = all-on-one, sequences = 1, rollback.kind = gdn-replay, for recurrent layers
    ");
}

#[test]
fn files_are_read_from_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment { config_home: Some(folder.path().to_owned()), ..Environment::default() };
    let before = ConfigFile::all(&environment).unwrap().len();
    let path = environment.user_settings().unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "schema = 1\n[settings]\ncontext = 1024\n").unwrap();
    assert_eq!(ConfigFile::all(&environment).unwrap().len(), before + 1);
    std::fs::write(&path, "schema = 1\n[setting]\n").unwrap();
    let fault = ConfigFile::all(&environment).unwrap_err().to_string();
    assert_snapshot!(fault.replace(&folder.path().display().to_string(), "[folder]"), @"[folder]/paceline/registry.toml:2:2: the key `setting` is not known; did you mean `settings`?");
    std::fs::write(&path, [0xff]).unwrap();
    let fault = ConfigFile::all(&environment).unwrap_err().to_string();
    assert_snapshot!(fault.replace(&folder.path().display().to_string(), "[folder]"), @"[folder]/paceline/registry.toml cannot be read: stream did not contain valid UTF-8");
}
