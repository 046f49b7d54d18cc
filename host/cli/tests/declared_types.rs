//! Models with weights of a type that only a plugin has.
#![cfg(feature = "backend-cpu")]

mod support;

use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use paceline_gguf::{Gguf, OpenOptions, TensorType, Value, Writer};
use support::Folder;

/// The demo model with one tensor under another type, of which nothing is known.
fn write_model(folder: &Folder) -> String {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/demo-qwen35-Q8_0.gguf");
    let demo = Gguf::open(demo, &OpenOptions::default()).expect("the demo model is there");
    let mut writer = Writer::new("qwen35");
    for (key, value) in demo.entries().filter(|(key, _)| *key != "general.architecture") {
        let value: Value = value.try_into().expect("a value of the demo");
        writer.metadata(key, value);
    }
    for tensor in demo.tensors() {
        let bytes = demo.tensor_bytes(&tensor).expect("a known type").to_vec();
        let odd = tensor.name == "blk.0.ffn_down.weight";
        let tensor_type = if odd { TensorType::from_id(200) } else { tensor.tensor_type };
        writer.tensor(tensor.name, tensor.dims, tensor_type, bytes);
    }
    let path = folder.file("odd.gguf");
    writer.write_file(&path).expect("the folder can be written");
    path
}

/// A backend without kernels whose descriptor declares the type.
fn write_plugin(folder: &Folder) {
    let headers = Folder::new();
    headers.write("descriptor.h", "");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-DNO_SECTION", "-I", &headers.path().display().to_string(), "-I"])
        .arg(root.join("../../plugin-api/include"))
        .args(["-DID=\"acme\"", "-DVERSION=\"1.0.0\"", "-DON_LOAD="])
        .arg(root.join("../registry/tests/fixtures/plugin.c"))
        .args(["-o", &folder.file("acme.so")])
        .output()
        .expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    folder.write(
        "acme.so.plugin.toml",
        "id = \"acme\"\nkind = \"backend\"\nversion = \"1.0.0\"\nabi = { oldest = \"1.0\", built = \"1.0\" }\n\
         operations = [\"acme.negate/1\"]\n\
         [[weight_type]]\nid = 200\nname = \"T1_58\"\nelements = 256\nbytes = 54\n",
    );
}

#[test]
fn a_backend_without_the_type_refuses_the_model_and_the_plugin_that_has_it_is_named() {
    let folder = Folder::new();
    let model = write_model(&folder);
    assert_snapshot!(folder.run_searching(&["run", &model, "-p", "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/odd.gguf: tensor `blk.0.ffn_down.weight` has the weight type 200, which is not one of GGUF's and not declared by backend `cpu`
    hint: no plugin that is installed declares this type: install the one that the file was made for, or use a copy quantised to a known type
    ");
    write_plugin(&folder);
    assert_snapshot!(folder.run_searching(&["run", &model, "-p", "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/odd.gguf: tensor `blk.0.ffn_down.weight` has the weight type 200, which is not one of GGUF's and not declared by backend `cpu`
    hint: plugin `acme` declares this type as T1_58: give `--backend acme`
    ");
}

#[test]
fn the_model_can_be_inspected_by_anyone() {
    let folder = Folder::new();
    let model = write_model(&folder);
    let text = folder.run_searching(&["models", "inspect", &model]);
    assert!(text.starts_with("exit 0\n") && text.contains("unknown(200)"), "{text}");
}

#[test]
fn declarations_are_shown() {
    let folder = Folder::new();
    write_plugin(&folder);
    assert_snapshot!(folder.run_searching(&["plugins", "inspect", "acme"]), @r#"
    exit 0
    --- stdout
    id          acme
    kind        backend
    version     1.0.0
    abi         1.0
    origin      [folder]/acme.so
    weight type T1_58, number 200: 256 elements in 54 bytes
    operation   acme.negate/1
    descriptor
      id = "acme"
      kind = "backend"
      version = "1.0.0"
      abi = { oldest = "1.0", built = "1.0" }
      operations = ["acme.negate/1"]
      [[weight_type]]
      id = 200
      name = "T1_58"
      elements = 256
      bytes = 54
    --- stderr
    "#);
}
