//! What is wrong with a file is said with its line and column.

use insta::assert_snapshot;
use paceline_registry::settings::{ConfigFile, Layer};

use super::support::{World, backend, file, plugin, strategy};

fn text(text: &str) -> String {
    ConfigFile::parse("site.toml", text, Layer::Site).unwrap_err().to_string()
}

fn body(text: &str) -> String {
    file(Layer::Shipped, text).unwrap_err().to_string()
}

fn when(when: &str) -> String {
    body(&format!("[[rule]]\nset = \"a.b\"\nvalue = 1\nwhen = {when}\n"))
}

/// A file that can be read, and is wrong for these plugins.
fn checked(text: &str) -> String {
    let plugins = [backend("cuda"), strategy("replay")];
    World::new(plugins).file(Layer::Site, text).resolver().unwrap_err().to_string()
}

#[test]
fn the_form_of_a_file() {
    assert_snapshot!(text(""), @"site.toml:1:1: the file does not begin with `schema = 1`");
    assert_snapshot!(text("schema = 2\n"), @"site.toml:1:10: this version reads files with `schema = 1` only");
    assert_snapshot!(text("schema = 1\nselect = \n"), @"site.toml:2:10: string values must be quoted, expected literal string");
    assert_snapshot!(text("schema = 1\n[serach]\ndirs = []\n"), @"site.toml:2:2: the key `serach` is not known; did you mean `search`?");
    assert_snapshot!(text("schema = 1\n[banana]\n"), @"site.toml:2:2: the key `banana` is not known; there is `schema`, `search`, `trust`, `select`, `settings`, `plugin`, `rule`");
    assert_snapshot!(text("schema = 1\nplugin = 3\n"), @"site.toml:2:10: `plugin` takes a table, not the number 3");
    assert_snapshot!(text("schema = 1\nrule = 3\n"), @"site.toml:2:8: `rule` takes a list of tables, which are written as `[[rule]]`");
}

#[test]
fn search_and_select() {
    assert_snapshot!(body("[search]\ndirectories = []\n"), @"registry.toml:3:1: the key `directories` is not known in `search`; there is `dirs`");
    assert_snapshot!(body("[search]\ndirs = [\"/a\", \"plugins\"]\n"), @"registry.toml:3:15: the directory `plugins` depends on where the program is started: begin it with `/`, `$EXE` or `$XDG_DATA_HOME`");
    assert_snapshot!(body("[search]\ndirs = [\"/a\", 3]\n"), @"registry.toml:3:15: `dirs` takes text in quotes, not the number 3");
    assert_snapshot!(body("[search]\ndirs = \"/a\"\n"), @"registry.toml:3:8: `dirs` takes a list of texts, not the text `/a`");
    assert_snapshot!(body("[select]\nbackends = [\"cpu\"]\n"), @"registry.toml:3:1: the key `backends` is not known in `select`; did you mean `backend`?");
    assert_snapshot!(body("[select]\nbackend = [\"cpu\", \"cuda\", \"cpu\"]\n"), @"registry.toml:3:27: `backend` has `cpu` twice");
    assert_snapshot!(body("[select]\nstrategy = \"mtp-chain\"\n"), @"registry.toml:3:12: `strategy` takes `auto`, `none` or a list of strategies, not the text `mtp-chain`");
    assert_snapshot!(body("[select]\nstrategy = [\"mtp-chain\", \"auto\"]\n"), @"registry.toml:3:26: `auto` stands alone and not in a list");
    assert_snapshot!(body("[select]\nfallback = [\"cuda\"]\n[plugin.cuda]\nenabled = false\n"), @"registry.toml:3:13: `fallback` has `cuda`, which this file switches off");
}

#[test]
fn plugins() {
    assert_snapshot!(body("[plugin.cuda]\nversoin = \">=1\"\n"), @"registry.toml:3:1: the key `versoin` is not known in `[plugin.cuda]`, whose settings stand in `[plugin.cuda.settings]`; did you mean `version`?");
    assert_snapshot!(body("[plugin.cuda]\nstreams = 4\n"), @"registry.toml:3:1: the key `streams` is not known in `[plugin.cuda]`, whose settings stand in `[plugin.cuda.settings]`; there is `version`, `enabled`, `path`, `sha256`, `settings`");
    assert_snapshot!(body("[plugin.Cuda]\nenabled = true\n"), @"registry.toml:2:9: the id `Cuda` must be in lower case, as `cuda`");
    assert_snapshot!(body("[plugin.cuda]\nversion = \"new\"\n"), @"registry.toml:3:11: `new` is no range of versions: unexpected character 'n' while parsing major version number");
    assert_snapshot!(body("[plugin.cuda]\nenabled = \"no\"\n"), @"registry.toml:3:11: `enabled` takes true or false, not the text `no`");
    assert_snapshot!(body("[plugin.cuda]\npath = \"libcuda.so\"\n"), @"registry.toml:3:8: the path `libcuda.so` depends on where the program is started: begin it with `/`");
    assert_snapshot!(body("[plugin.cuda]\nsha256 = \"abc\"\n"), @"registry.toml:3:10: `abc` is no SHA-256, which has 64 hexadecimal digits");
    assert_snapshot!(body("[plugin.cuda]\nenabled = false\nversion = \">=1\"\n"), @"registry.toml:4:1: `cuda` is switched off here, so its `version` has no effect");
}

#[test]
fn rules() {
    assert_snapshot!(body("[[rule]]\nvalue = 1\nwhen = { sequences = 1 }\n"), @"registry.toml:2:1: the rule has no `set`");
    assert_snapshot!(body("[[rule]]\nset = \"a.b\"\nwhen = { sequences = 1 }\n"), @"registry.toml:2:1: the rule has no `value`");
    assert_snapshot!(body("[[rule]]\nset = \"a.b\"\nvalue = 1\n"), @"registry.toml:2:1: the rule has no `when`");
    assert_snapshot!(body("[[rule]]\nset = \"a.b\"\nvalue = 1\nif = { sequences = 1 }\n"), @"registry.toml:5:1: the key `if` is not known in a rule; there is `set`, `value`, `when`, `concerns`, `measured`, `untested`");
    assert_snapshot!(body("[[rule]]\nset = \"a.b\"\nvalue = [1]\nwhen = { sequences = 1 }\n"), @"registry.toml:4:9: `value` takes a value of a setting, not a list");
    assert_snapshot!(body("[[rule]]\nset = \"a.b\"\nvalue = \"auto\"\nwhen = { sequences = 1 }\n"), @"registry.toml:4:9: `auto` means not set, so the rule would do nothing");
    assert_snapshot!(
        body("[[rule]]\nset = \"a.b\"\nvalue = 1\nwhen = { backend = \"x\" }\nconcerns = \"mamba\"\n"),
        @"registry.toml:6:12: `concerns` cannot be `mamba`; there is `all`, `recurrent`, `attention`"
    );
    assert_snapshot!(when("3"), @"registry.toml:5:8: `when` takes a table, as in `{ sequences = 1 }`, not the number 3");
    assert_snapshot!(when("{}"), @"registry.toml:5:8: `when` is empty: a value without conditions is a plain setting");
}

#[test]
fn conditions() {
    assert_snapshot!(when("{ backends = \"cuda\" }"), @"registry.toml:5:10: the fact `backends` is not known; did you mean `backend`?");
    assert_snapshot!(when("{ gpu = true }"), @"registry.toml:5:10: the fact `gpu` is not known; there is `backend`, `backend_version`, `device.arch`, `device.kind`, `device.memory`, `device.capability`, `link`, `role`, `arch`, `layers.count`, `layers.kinds`, `recurrent_layers`, `split`, `group_size`, `stages`, `sequences`, `context`, `kv_types`, `weight_types`, `drafter.kind`, `drafter.place`, `rollback.kind`, `model.has_mtp`, `model.has_trimmed_head`");
    assert_snapshot!(when("{ device.name = \"x\" }"), @"registry.toml:5:17: the fact `device.name` is not known; there is `backend`, `backend_version`, `device.arch`, `device.kind`, `device.memory`, `device.capability`, `link`, `role`, `arch`, `layers.count`, `layers.kinds`, `recurrent_layers`, `split`, `group_size`, `stages`, `sequences`, `context`, `kv_types`, `weight_types`, `drafter.kind`, `drafter.place`, `rollback.kind`, `model.has_mtp`, `model.has_trimmed_head`");
    assert_snapshot!(when("{ device.archs = \"x\" }"), @"registry.toml:5:17: the fact `device.archs` is not known; did you mean `device.arch`?");
    assert_snapshot!(when("{ backend = 3 }"), @"registry.toml:5:20: the fact `backend` takes a word or a list of words, not the number 3");
    assert_snapshot!(when("{ backend = [] }"), @"registry.toml:5:20: the fact `backend` can never be in an empty list");
    assert_snapshot!(when("{ backend = [\"cuda\", 3] }"), @"registry.toml:5:29: the fact `backend` takes a word or a list of words, not the number 3");
    assert_snapshot!(when("{ device.kind = \"discret\" }"), @"registry.toml:5:24: the fact `device.kind` is never `discret`; did you mean `discrete`?");
    assert_snapshot!(when("{ link = \"nvlink\" }"), @"registry.toml:5:17: the fact `link` is never `nvlink`; there is `none`, `pcie`, `peer`, `coherent`");
    assert_snapshot!(when("{ role = [\"target\", \"drafter\"] }"), @"registry.toml:5:17: the fact `role` is always one of `target`, `drafter`: leave it out");
    assert_snapshot!(when("{ recurrent_layers = true }"), @"registry.toml:5:29: the fact `recurrent_layers` takes a word or a list of words, not true");
    assert_snapshot!(when("{ sequences = \"one\" }"), @r#"registry.toml:5:22: the fact `sequences` takes a whole number or a range, as in ">=2, <=8""#);
    assert_snapshot!(when("{ sequences = -1 }"), @r#"registry.toml:5:22: the fact `sequences` takes a whole number or a range, as in ">=2, <=8""#);
    assert_snapshot!(when("{ sequences = 1.5 }"), @r#"registry.toml:5:22: the fact `sequences` takes a whole number or a range, as in ">=2, <=8", not the number 1.5"#);
    assert_snapshot!(when("{ sequences = \">=4, <2\" }"), @"registry.toml:5:22: the fact `sequences` can never be in this range");
    assert_snapshot!(when("{ context = \">=4GiB\" }"), @r#"registry.toml:5:20: the fact `context` takes a whole number or a range, as in ">=2, <=8""#);
    assert_snapshot!(when("{ device.memory = \"16GB\" }"), @r#"registry.toml:5:26: the fact `device.memory` takes a whole number or a range, as in ">=16GiB""#);
    assert_snapshot!(when("{ backend_version = \"new\" }"), @"registry.toml:5:28: `new` is no range of versions: unexpected character 'n' while parsing major version number");
    assert_snapshot!(when("{ model.has_mtp = \"yes\" }"), @"registry.toml:5:26: the fact `model.has_mtp` takes true or false, not the text `yes`");
    assert_snapshot!(when("{ device.arch = \"a\", \"device.arch\" = \"b\" }"), @"registry.toml:5:29: the fact `device.arch` stands here twice");
}

#[test]
fn settings_and_their_values() {
    assert_snapshot!(checked("[settings]\ncontxt = 1\n"), @"/etc/paceline/registry.toml:3:1: the setting `contxt` is not known; did you mean `context`?");
    assert_snapshot!(checked("[settings]\ncontext = 0\n"), @"/etc/paceline/registry.toml:3:11: `context` cannot be `0`: it takes a whole number from 1 to 2147483647");
    assert_snapshot!(checked("[settings]\ncontext = \"4096\"\n"), @"/etc/paceline/registry.toml:3:11: `context` cannot be `4096`: it takes a whole number from 1 to 2147483647, without quotes");
    assert_snapshot!(checked("[settings]\nkv_types = \"q8_0/banana\"\n"), @"/etc/paceline/registry.toml:3:12: `kv_types` cannot be `q8_0/banana`: it takes one of f16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, or two of them as `A/B`");
    assert_snapshot!(checked("[settings.speculation]\ncontroler = true\n"), @"/etc/paceline/registry.toml:3:1: the setting `speculation.controler` is not known; did you mean `speculation.controller`?");
    assert_snapshot!(checked("[settings.speculation]\ncontroller = \"banana\"\n"), @"/etc/paceline/registry.toml:3:14: `speculation.controller` cannot be `banana`: it takes on or off");
    assert_snapshot!(checked("[plugin.cuda.settings]\nstream = 4\n"), @"/etc/paceline/registry.toml:3:1: the setting `cuda.stream` is not known; did you mean `cuda.streams`?");
    assert_snapshot!(checked("[plugin.cuda.settings]\nstreams = 17\n"), @"/etc/paceline/registry.toml:3:11: `cuda.streams` cannot be `17`: it takes a whole number from 1 to 16");
    assert_snapshot!(checked("[plugin.replay.settings]\nmode = \"of\"\n"), @"/etc/paceline/registry.toml:3:8: `replay.mode` cannot be `of`: it takes one of off, on");
    assert_snapshot!(checked("[plugin.replay.settings]\nshare = nan\n"), @"/etc/paceline/registry.toml:3:9: `replay.share` cannot be `NaN`: it takes a number from 0 to 1");
    assert_snapshot!(body("[settings]\n\"speculation.select\" = \"value\"\nspeculation.select = \"order\"\n"), @"registry.toml:3:1: `speculation.select` stands here and at registry.toml:4");
}

#[test]
fn rules_for_settings() {
    let rule = |rest: &str| checked(&format!("[[rule]]\n{rest}\n"));
    assert_snapshot!(rule("set = \"cuda.stream\"\nvalue = 4\nwhen = { sequences = 1 }"), @"/etc/paceline/registry.toml:3:7: the setting `cuda.stream` is not known; did you mean `cuda.streams`?");
    assert_snapshot!(rule("set = \"cuda.streams\"\nvalue = 40\nwhen = { sequences = 1 }"), @"/etc/paceline/registry.toml:4:9: `cuda.streams` cannot be `40`: it takes a whole number from 1 to 16");
    assert_snapshot!(rule("set = \"kv_types\"\nvalue = \"q8_0\"\nwhen = { backend = \"rocm\" }"), @"/etc/paceline/registry.toml:5:8: `kv_types` is decided before layers are placed, and `backend` is a fact of the placement; its rules can test role, arch, layers.count, layers.kinds, weight_types, drafter.kind, rollback.kind, model.has_mtp, model.has_trimmed_head");
    assert_snapshot!(rule("set = \"context\"\nvalue = 4096\nwhen = { context = \">=8192\" }"), @"/etc/paceline/registry.toml:5:8: `context` is decided before layers are placed, and `context` is a fact of the placement; its rules can test role, arch, layers.count, layers.kinds, weight_types, drafter.kind, rollback.kind, model.has_mtp, model.has_trimmed_head");
    assert_snapshot!(
        rule("set = \"replay.mode\"\nvalue = \"on\"\nwhen = { sequences = 1 }\nconcerns = \"recurrent\""),
        @"/etc/paceline/registry.toml:5:8: `concerns` has no effect: no condition is about a backend or a device"
    );
}

/// All of a file's faults are shown at once, in order.
#[test]
fn nothing_is_held_back() {
    assert_snapshot!(
        checked("[plugin.cuda.settings]\nstreams = 17\n[settings]\ncontxt = 1\nmicrobatch = true\n"),
        @r"
    /etc/paceline/registry.toml:3:11: `cuda.streams` cannot be `17`: it takes a whole number from 1 to 16
    /etc/paceline/registry.toml:5:1: the setting `contxt` is not known; did you mean `context`?
    /etc/paceline/registry.toml:6:14: `microbatch` cannot be `on`: it takes a whole number from 1 to 65536
    "
    );
}

#[test]
fn rules_of_plugins() {
    let fault = |rule: &str| {
        let setting =
            "[[setting]]\nkey = \"a\"\ntype = \"bool\"\ndefault = false\nstage = \"context\"\ndoc = \"\"\n";
        let world =
            World::new([plugin("x", "backend", &format!("{setting}[[rule]]\n{rule}\n")), backend("cuda")]);
        let resolver = world.resolver().unwrap();
        let faults: Vec<String> = resolver.plugin_faults().map(ToString::to_string).collect();
        faults.join("\n")
    };
    assert_snapshot!(fault("set = \"cuda.capture\"\nvalue = true\nwhen = { sequences = 1 }"), @"descriptor of plugin x:12:7: a rule of plugin `x` can only set settings of `x`, and not `cuda.capture`");
    assert_snapshot!(fault("set = \"context\"\nvalue = 1\nwhen = { sequences = 1 }"), @"descriptor of plugin x:12:7: a rule of plugin `x` can only set settings of `x`, and not `context`");
    assert_snapshot!(fault("set = \"x.b\"\nvalue = true\nwhen = { sequences = 1 }"), @"descriptor of plugin x:12:7: the setting `x.b` is not known; did you mean `x.a`?");
    assert_snapshot!(fault("set = \"x.a\"\nvalue = 3\nwhen = { sequence = 1 }"), @"descriptor of plugin x:14:10: the fact `sequence` is not known; did you mean `sequences`?");
}

/// Whatever is cut off or damaged, the reader does not panic.
#[test]
fn damaged_files_are_faults() {
    let whole = include_str!("../../../../registry.toml");
    for cut in (0..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
        let _ = ConfigFile::parse("x", &whole[..cut], Layer::Site);
        let damaged = format!("{}é{}", &whole[..cut], whole[cut..].chars().skip(1).collect::<String>());
        let _ = ConfigFile::parse("x", &damaged, Layer::Site);
    }
}
