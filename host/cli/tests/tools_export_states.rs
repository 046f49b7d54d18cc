//! `tools export-states`.

mod support;

use insta::assert_snapshot;
use paceline_gguf::{Gguf, OpenOptions};
use support::{Folder, json};

fn floats(path: &str, name: &str) -> Vec<f32> {
    let gguf = Gguf::open(path, &OpenOptions::default()).unwrap();
    let bytes = gguf.tensor_bytes(&gguf.require_tensor(name).unwrap()).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn the_states_of_every_token_are_written() {
    let folder = Folder::new();
    let text = folder.write("text", "fn main() {\n    println!(\"hello\");\n}\n".repeat(3));
    let out = folder.file("states.gguf");
    let arguments = [
        "tools",
        "export-states",
        "demo",
        &text,
        "--layers",
        "5,2,2",
        "--window",
        "16",
        "-o",
        &out,
        "--json",
    ];
    let found = json(&arguments);
    assert_eq!(found["tensors"], serde_json::json!(["hidden", "layer.2.input", "layer.5.input"]));
    let tokens = found["tokens"].as_u64().unwrap();
    let gguf = Gguf::open(&out, &OpenOptions::default()).unwrap();
    assert_eq!(gguf.architecture().unwrap(), "hidden-states");
    assert_eq!(gguf.get_u32("hidden-states.window").unwrap(), Some(16));
    for name in ["hidden", "layer.2.input", "layer.5.input"] {
        assert_eq!(gguf.require_tensor(name).unwrap().dims, [512, tokens], "{name}");
        assert!(floats(&out, name).iter().all(|x| x.is_finite()));
    }
    // Windows are alone: the first one's states do not change with what follows.
    let shorter = folder.file("shorter.gguf");
    let first = ["tools", "export-states", "demo", &text, "--tokens", "16", "-o", &shorter];
    assert_snapshot!(folder.run(&first));
    assert_eq!(floats(&shorter, "hidden"), floats(&out, "hidden")[..16 * 512]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = Folder::new();
    let (text, empty) = (folder.write("text", "some text"), folder.write("empty", ""));
    let out = folder.file("out.gguf");
    let run = |arguments: &[&str]| {
        let all = [&["tools", "export-states", "demo"], arguments].concat();
        folder.run(&all)
    };
    assert_snapshot!(run(&[&text, "--layers", "9", "-o", &out]));
    assert_snapshot!(run(&[&empty, "-o", &out]));
    assert_snapshot!(run(&["no-such-file", "-o", &out]));
    folder.write("out.gguf", "mine");
    assert_snapshot!(run(&[&text, "-o", &out]));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}
