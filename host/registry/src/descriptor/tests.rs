use insta::assert_snapshot;
use paceline_plugin_api::settings::Stage;

use super::*;

const WHOLE: &str = r#"
id = "cuda"
kind = "backend"
version = "0.3.0-rc.1"
abi = { oldest = "1.0", built = "1.0" }
license = "MIT"
summary = "Runs models on cards."
needs = [{ library = "libcuda.so.1", version = ">=535.54, <600" }, { library = "libnvrtc.so.*" }]
cpu_features = ["avx2"]
gpu_targets = ["sm_80", "sm_90"]

[[setting]]
key = "streams"
type = "integer"
range = [1, 16]
default = 2
stage = "context"
unit = "streams"
doc = "Streams."

[[setting]]
key = "share"
type = "float"
range = [0, 1]
default = 0.9
stage = "placement"
doc = "Share of the memory that is used."

[[rule]]
set = "cuda.streams"
value = 4
when = { sequences = 1 }
"#;

const SMALL: &str = r#"id = "x"
kind = "strategy"
version = "1.0.0"
abi = { oldest = "1.0", built = "1.0" }
"#;

#[test]
fn all_of_it_is_read() {
    let descriptor = Descriptor::parse(WHOLE).unwrap();
    assert_eq!((descriptor.id.as_str(), descriptor.kind), ("cuda", PluginKind::Backend));
    assert_eq!(descriptor.version, "0.3.0-rc.1".parse().unwrap());
    assert_eq!(descriptor.abi.to_string(), "1.0..=1.0");
    assert_eq!(descriptor.needs[0].libraries, ["libcuda.so.1"]);
    assert!(descriptor.needs[0].version.as_ref().unwrap().contains("535.104.05"));
    assert_eq!(descriptor.needs[1].version, None);
    assert_eq!(descriptor.cpu_features, ["avx2"]);
    assert_eq!(descriptor.gpu_targets, ["sm_80", "sm_90"]);
    assert_eq!(descriptor.settings[0].stage, Stage::Context);
    assert_eq!(descriptor.settings[0].kind, DeclaredType::Integer { default: 2, min: 1, max: 16 });
    assert_eq!(descriptor.settings[1].kind, DeclaredType::Float { default: 0.9, min: 0.0, max: 1.0 });
    assert_eq!((descriptor.rules.len(), descriptor.rules[0].line), (1, 29));
    assert_eq!(descriptor.rules[0].table["value"].as_integer(), Some(4));
    assert_eq!(descriptor.text, WHOLE);
}

fn fault(text: &str) -> String {
    Descriptor::parse(text).unwrap_err().to_string()
}

/// The small descriptor with one of its lines replaced.
fn with(key: &str, line: &str) -> String {
    SMALL
        .lines()
        .map(|it| if it.starts_with(key) { line } else { it })
        .fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn faults_say_where_they_are() {
    assert_snapshot!(fault("id = \"x\"\nkind = backend\n"), @"line 2, column 8: string values must be quoted, expected literal string");
    assert_snapshot!(fault("id = \"x\n"), @r#"line 1, column 8: invalid basic string, expected `"`"#);
    assert_snapshot!(fault(""), @"line 1, column 1: missing field `id`");
    assert_snapshot!(fault(&format!("{SMALL}licence = \"MIT\"\n")), @"line 5, column 1: the key `licence` is not known; did you mean `license`?");
    assert_snapshot!(fault(&format!("{SMALL}needs = [{{ library = \"a\", soname = \"b\" }}]\n")), @"line 5, column 27: the key `soname` is not known");
    let needs = |driver: &str| fault(&format!("{SMALL}needs = [{{ library = \"a\", {driver} }}]\n"));
    assert_snapshot!(needs("any_of = [\"b\"]"), @"line 5, column 10: a driver has a `library`, or some in `any_of` of which one will do");
    assert_snapshot!(needs("version_from = \"file_name\""), @"line 5, column 10: `a` has a `version_from` and no `version` to compare with");
    assert_snapshot!(needs("version = \">1\", version_from = \"symbol\""), @"line 5, column 10: `symbol` is no place where a driver's version stands; there is `file_name`");
    assert_snapshot!(fault(&with("id", "id = 3")), @"line 1, column 6: invalid type: integer `3`, expected a string");
    assert_snapshot!(fault(&with("id", "id = \"Cuda\"")), @"line 1, column 6: the id `Cuda` must be in lower case, as `cuda`");
    assert_snapshot!(fault(&with("id", "id = \"../cuda\"")), @"line 1, column 6: the id `../cuda` must be lower case letters, digits and dashes, at most 64, the first a letter");
    assert_snapshot!(fault(&with("kind", "kind = \"sampler\"")), @"line 2, column 8: the kind `sampler` is not known; there is `backend` and `strategy`");
    assert_snapshot!(fault(&with("version", "version = \"1.0\"")), @"line 3, column 11: `1.0` is no semantic version: unexpected end of input while parsing minor version number");
    assert_snapshot!(fault(&with("abi", "abi = { oldest = \"1\", built = \"1.0\" }")), @"line 4, column 18: `1` is no version of the ABI: it has the form `1.0`");
    assert_snapshot!(fault(&with("abi", "abi = { oldest = \"1.1\", built = \"1.0\" }")), @"line 4, column 7: 1.1..=1.0 is no range of versions of one ABI");
    assert_snapshot!(fault(&format!("{SMALL}needs = [{{ library = \"a\", version = \"new\" }}]\n")), @"line 5, column 10: `new` is no range of a driver's versions: it has the form `>=535.54, <600`");
}

#[test]
fn types_and_operations_of_a_vendor_are_read() {
    let text = with("kind", "kind = \"backend\"")
        + "operations = [\"acme.negate/1\", \"acme.negate/2\"]\n\
           [[weight_type]]\nid = 200\nname = \"T1_58\"\nelements = 256\nbytes = 54\n";
    let descriptor = Descriptor::parse(&text).unwrap();
    assert_eq!(descriptor.operations, ["acme.negate/1", "acme.negate/2"]);
    let expected = WeightType { id: 200, name: "T1_58".into(), elements: 256, bytes: 54 };
    assert_eq!(descriptor.weight_types, [expected]);
}

#[test]
fn faults_of_types_and_operations_name_them() {
    let backend = with("kind", "kind = \"backend\"");
    let declared = |id: i64, name: &str, elements: i64, bytes: i64| {
        format!("[[weight_type]]\nid = {id}\nname = \"{name}\"\nelements = {elements}\nbytes = {bytes}\n")
    };
    let types = |text: &str| fault(&format!("{backend}{text}"));
    assert_snapshot!(types(&declared(8, "MINE", 32, 34)), @"line 5, column 1: weight type `MINE`: the `id` 8 is one of GGUF's own, which are below 64: use a number from 64 on");
    assert_snapshot!(types(&declared(-1, "MINE", 32, 34)), @"line 5, column 1: weight type `MINE`: `id` is -1, which is no number from 0 to 4294967295");
    assert_snapshot!(types(&declared(1 << 32, "MINE", 32, 34)), @"line 5, column 1: weight type `MINE`: `id` is 4294967296, which is no number from 0 to 4294967295");
    assert_snapshot!(types(&declared(200, "Q4_K", 256, 144)), @"line 5, column 1: weight type `Q4_K`: the `name` `Q4_K` is that of one of GGUF's own types: use another");
    assert_snapshot!(types(&declared(200, "1 58", 256, 54)), @"line 5, column 1: weight type `1 58`: the `name` `1 58` must be letters, digits and `_-.`, at most 32, the first a letter");
    assert_snapshot!(types(&declared(200, "T1_58", 0, 54)), @"line 5, column 1: weight type `T1_58`: `elements` is 0; a block has from 1 to 65536");
    assert_snapshot!(types(&declared(200, "T1_58", 256, 1 << 21)), @"line 5, column 1: weight type `T1_58`: `bytes` is 2097152; a block has from 1 to 1048576");
    assert_snapshot!(types(&(declared(200, "A", 32, 8) + &declared(200, "B", 32, 8))), @"line 10, column 1: weight type `B`: its id or name is that of `A` (200) before it");
    assert_snapshot!(types(&(declared(200, "A", 32, 8) + &declared(201, "a", 32, 8))), @"line 10, column 1: weight type `a`: its id or name is that of `A` (200) before it");
    assert_snapshot!(types("[[weight_type]]\nid = 200\nname = \"A\"\nelements = 32\n"), @"line 5, column 1: missing field `bytes`");
    assert_snapshot!(types(&(declared(200, "A", 32, 8) + "size = 3\n")), @"line 10, column 1: the key `size` is not known");
    assert_snapshot!(fault(&format!("{SMALL}{}", declared(200, "A", 32, 8))), @"line 5, column 1: only a backend has a `weight_type`");
    let operations = |list: &str| fault(&format!("{backend}operations = [{list}]\n"));
    assert_snapshot!(operations("\"negate/1\""), @"line 5, column 15: `operations`: `negate/1` lacks the prefix of a vendor: write `acme.negate/1` with a word of your own for `acme`");
    assert_snapshot!(operations("\"acme.a/1\", \"acme.negate\""), @"line 5, column 27: `operations`: `acme.negate` is no vendor's operation: it has the form `acme.ternary_linear/1`, in lower case, at most 64 bytes");
    assert_snapshot!(operations("\"paceline.negate/1\""), @"line 5, column 15: `operations`: `paceline.negate/1` has the prefix `paceline`, which is not for vendors: use one of your own");
    assert_snapshot!(operations("\"acme.negate/1\", \"acme.negate/1\""), @"line 5, column 32: `operations`: `acme.negate/1` stands here twice");
    assert_snapshot!(fault(&format!("{SMALL}operations = [\"acme.negate/1\"]\n")), @"line 5, column 15: `operations`: only a backend has some");
}

#[test]
fn faults_of_settings_name_them() {
    let setting = |lines: &str| {
        fault(&format!("{SMALL}[[setting]]\nkey = \"a\"\nstage = \"run\"\ndoc = \"\"\n{lines}\n"))
    };
    assert_snapshot!(setting("type = \"text\""), @"line 5, column 1: setting `a`: the type `text` is not known; there is `bool`, `integer`, `float` and `choice`");
    assert_snapshot!(setting("type = \"bool\""), @"line 5, column 1: setting `a`: a bool needs a `default`, true or false");
    assert_snapshot!(setting("type = \"integer\"\nrange = [0, 9]\ndefault = 10"), @"line 5, column 1: setting `a`: the `default` does not lie in the `range`");
    assert_snapshot!(setting("type = \"integer\"\nrange = [0, 1.5]\ndefault = 1"), @"line 5, column 1: setting `a`: this integer needs a `range` of two numbers of its type");
    assert_snapshot!(setting("type = \"choice\"\noptions = [\"a\"]\ndefault = \"b\""), @"line 5, column 1: setting `a`: the `default` is none of the `options`");
    assert_snapshot!(setting("type = \"bool\"\ndefault = true\nrange = [0, 1]"), @"line 5, column 1: setting `a`: only a number has a `range`");
    assert_snapshot!(setting("type = \"bool\"\ndefault = true\n[[setting]]\nkey = \"a\"\nstage = \"run\"\ndoc = \"\"\ntype = \"bool\"\ndefault = true"), @"line 11, column 1: the setting `a` stands here twice");
}

/// A plugin of a later version runs on this host, so its descriptor is read too.
#[test]
fn a_newer_plugin_may_say_more() {
    let newer = format!("{}colour = \"red\"\n", with("abi", "abi = { oldest = \"1.0\", built = \"1.999\" }"));
    assert_eq!(Descriptor::parse(&newer).unwrap().id, "x");
}

#[test]
fn the_shipped_descriptor_is_read() {
    let text = include_str!("../../../../plugins/backend-cpu/descriptor.toml");
    let descriptor = Descriptor::parse(text).unwrap();
    assert_eq!((descriptor.id.as_str(), descriptor.settings.is_empty()), ("cpu", false));
}

/// Nothing that a descriptor holds makes the reader panic.
#[test]
fn damaged_texts_are_faults() {
    for cut in 0..WHOLE.len() {
        let _ = Descriptor::parse(&WHOLE[..cut]);
        let damaged: String =
            WHOLE.chars().enumerate().map(|(at, it)| if at == cut { 'é' } else { it }).collect();
        let _ = Descriptor::parse(&damaged);
    }
}
