//! What can be wrong with a MODEL argument; the same for every command that takes one.

mod support;

use insta::assert_snapshot;
use support::{Folder, bytes, small_model};

#[test]
fn a_missing_file_suggests_a_near_name() {
    let folder = Folder::new();
    folder.write("qwen3-4b-q8_0.gguf", "");
    folder.write("llama.gguf", "");
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("qwen3-4b-q8.gguf")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file [folder]/qwen3-4b-q8.gguf
    hint: did you mean [folder]/qwen3-4b-q8_0.gguf?
    ");
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("llama")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file [folder]/llama
    hint: did you mean [folder]/llama.gguf?
    ");
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("mistral.gguf")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file [folder]/mistral.gguf
    hint: the folder holds llama.gguf, qwen3-4b-q8_0.gguf
    ");
}

#[test]
fn a_missing_file_among_none() {
    let folder = Folder::new();
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("model.gguf")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file [folder]/model.gguf
    hint: give the path of a .gguf file, or `demo`
    ");
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("nowhere/model.gguf")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file [folder]/nowhere/model.gguf: there is no folder [folder]/nowhere
    ");
}

#[test]
fn a_misspelt_demo() {
    assert_snapshot!(support::run(&["tokenize", "dem", "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file dem
    hint: did you mean demo?
    ");
}

#[test]
fn a_directory_lists_its_models() {
    let folder = Folder::new();
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/ is a directory, not a model file
    hint: there is no .gguf file in it
    ");
    for name in ["b.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "notes.txt"] {
        folder.write(name, "");
    }
    assert_snapshot!(folder.run(&["models", "inspect", &folder.file("")]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/ is a directory, not a model file
    hint: it holds a-00001-of-00002.gguf, b.gguf; try [folder]/a-00001-of-00002.gguf
    ");
}

#[test]
fn a_web_page() {
    let folder = Folder::new();
    let page = folder.write("model.gguf", "<!doctype html>\n<title>Sign in</title>\n");
    assert_snapshot!(folder.run(&["tokenize", &page, "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf: not a GGUF file: byte 0 starts a web page; download the file itself, not the page about it (a login may be needed)
    ");
}

#[test]
fn a_truncated_model() {
    let folder = Folder::new();
    let whole = bytes(&small_model());
    let model = folder.write("model.gguf", &whole[..whole.len() - 40]);
    assert_snapshot!(folder.run(&["models", "inspect", &model]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf: file seems cut short: tensor 'weights' ends at byte 320, all tensors need 320 bytes and the file has 280; download the file again
    ");
}

#[test]
fn a_split_model_with_a_missing_part() {
    let folder = Folder::new();
    small_model().write_split(folder.path(), "model", 1).unwrap();
    let part = folder.write("model-00002-of-00003.gguf", bytes(&small_model()));
    assert_snapshot!(folder.run(&["models", "inspect", &part]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model-00002-of-00003.gguf: split model of 3 files, of which 2 are missing: model-00001-of-00003.gguf, model-00003-of-00003.gguf; put all of them in one folder
    ");
}

#[cfg(not(feature = "demo-model"))]
#[test]
fn a_build_without_the_demo() {
    assert_snapshot!(support::run(&["models", "inspect", "demo"]), @"
    exit 3
    --- stdout
    --- stderr
    error: this program was built without the demo model
    hint: build it with `--features demo-model`, or give the path of a .gguf file
    ");
}
