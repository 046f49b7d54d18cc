//! `tools trim-head`.

mod support;

use std::fs;

use insta::assert_snapshot;
use paceline_gguf::{Gguf, OpenOptions, TensorType, Writer};
use support::{Folder, bytes, json, program, shown, small_model};

const WEIGHT: &str = "blk.1.nextn.draft_head.weight";
const IDS: &str = "blk.1.nextn.draft_head_ids";

/// A model with a prediction block: single letters as tokens, and a control token in their midst.
fn model() -> Writer<'static> {
    let mut writer = Writer::new("tiny");
    writer
        .metadata("tiny.block_count", 2_u32)
        .metadata("tiny.nextn_predict_layers", 1_u32)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "qwen2")
        .metadata("tokenizer.ggml.tokens", vec!["a", "b", "<|end|>", "c", "d", "e", "f", "g", "ab"])
        .metadata("tokenizer.ggml.token_type", vec![1_i32, 1, 3, 1, 1, 1, 1, 1, 1])
        .metadata("tokenizer.ggml.merges", vec!["a b"])
        .tensor("token_embd.weight", &[32, 9], TensorType::Q8_0, rows_of(34, 0))
        .tensor("blk.1.nextn.eh_proj.weight", &[4], TensorType::F32, vec![9; 16]);
    writer
}

/// Nine rows, each of whose bytes is its number, counted from `first`.
fn rows_of(row_bytes: usize, first: u8) -> Vec<u8> {
    (first..first + 9).flat_map(|row| vec![row; row_bytes]).collect()
}

fn open(path: &str) -> Gguf {
    Gguf::open(path, &OpenOptions::default()).unwrap()
}

fn tensor<'a>(gguf: &'a Gguf, name: &str) -> &'a [u8] {
    gguf.tensor_bytes(&gguf.require_tensor(name).unwrap()).unwrap()
}

fn ids(gguf: &Gguf, name: &str) -> Vec<u32> {
    let bytes = tensor(gguf, name).chunks_exact(4);
    bytes.map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Everything that `before` has is in `after`, as it was.
fn assert_contains(after: &Gguf, before: &Gguf) {
    assert!(after.entries().map(|it| format!("{it:?}")).eq(before.entries().map(|it| format!("{it:?}"))));
    assert_eq!(after.tensor_count(), before.tensor_count() + 2);
    for old in before.tensors() {
        let new = after.require_tensor(old.name).unwrap();
        assert_eq!((new.dims, new.tensor_type), (old.dims, old.tensor_type), "{}", old.name);
        assert!(after.tensor_bytes(&new).unwrap() == before.tensor_bytes(&old).unwrap(), "{}", old.name);
    }
}

/// A folder with a model and a corpus, and their paths.
fn prepared(model: &Writer<'_>) -> (Folder, String, String, String) {
    let folder = Folder::new();
    let model = folder.write("model.gguf", bytes(model));
    let corpus = folder.write("corpus.txt", "ggggfffcca");
    let out = folder.file("out.gguf");
    (folder, model, corpus, out)
}

#[test]
fn frequent_rows_are_added_and_nothing_else_changes() {
    let (folder, model, corpus, out) = prepared(&model());
    assert_snapshot!(
        folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "--keep", "3", "-o", &out]),
        @r"
    exit 0
    --- stdout
    file       [folder]/out.gguf
    rows kept  4 of 9, with 1 special token
    coverage   90.00 % of 10 tokens of the corpus
    head       token_embd.weight Q8_0: 306 B before, 136 B after
    --- stderr
    "
    );
    let trimmed = open(&out);
    assert_contains(&trimmed, &open(&model));
    assert_eq!(ids(&trimmed, IDS), [2, 3, 6, 7]);
    let head = trimmed.require_tensor(WEIGHT).unwrap();
    assert_eq!((head.dims, head.tensor_type), (&[32, 4][..], TensorType::Q8_0));
    let rows = [2, 3, 6, 7].map(|row| [row; 34]).concat();
    assert_eq!(tensor(&trimmed, WEIGHT), rows);
    assert!(paceline_gguf::verify(&out).is_ok());
}

#[test]
fn the_result_as_json() {
    let (_folder, model, corpus, out) = prepared(&model());
    let report = json(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out, "--json"]);
    // Without a number, a quarter of the vocabulary.
    assert_eq!(report["kept"], 3);
    assert_eq!(report["special"], 1);
    assert_eq!((&report["corpus_tokens"], &report["covered_tokens"]), (&10.into(), &7.into()));
    assert_eq!(report["coverage_percent"], 70.0);
    assert_eq!((&report["head_bytes_before"], &report["head_bytes_after"]), (&306.into(), &102.into()));
    assert_eq!((&report["tensors"]["weight"], &report["tensors"]["ids"]), (&WEIGHT.into(), &IDS.into()));
}

#[test]
fn the_prediction_block_s_own_head_comes_first() {
    let mut with_output = model();
    with_output.tensor("output.weight", &[2, 9], TensorType::F16, rows_of(4, 10));
    let (_folder, model, corpus, out) = prepared(&with_output);
    let arguments = ["tools", "trim-head", &model, "--corpus", &corpus, "--keep", "1", "-o", &out, "--json"];
    assert_eq!(json(&arguments)["head"], "output.weight");
    assert_eq!(tensor(&open(&out), WEIGHT), [12, 12, 12, 12, 17, 17, 17, 17]);

    with_output.tensor("blk.1.nextn.shared_head_head.weight", &[1, 9], TensorType::F16, rows_of(2, 20));
    let (_folder, model, corpus, out) = prepared(&with_output);
    let arguments = ["tools", "trim-head", &model, "--corpus", &corpus, "--keep", "1", "-o", &out, "--json"];
    assert_eq!(json(&arguments)["head"], "blk.1.nextn.shared_head_head.weight");
    assert_eq!(tensor(&open(&out), WEIGHT), [22, 22, 27, 27]);
}

#[test]
fn no_more_than_the_vocabulary_is_kept() {
    let (_folder, model, corpus, out) = prepared(&model());
    let report =
        json(&["tools", "trim-head", &model, "--corpus", &corpus, "--keep", "1000", "-o", &out, "--json"]);
    assert_eq!((&report["kept"], &report["coverage_percent"]), (&9.into(), &100.0.into()));
}

#[test]
fn a_split_model_becomes_a_whole_one() {
    let (folder, _, corpus, out) = prepared(&model());
    let parts = model().write_split(folder.path(), "parts", 2).unwrap();
    let part = parts[1].display().to_string();
    let report = json(&["tools", "trim-head", &part, "--corpus", &corpus, "-o", &out, "--json"]);
    assert_eq!(report["kept"], 3);
    assert!(paceline_gguf::verify(&out).is_ok());
    assert_eq!(open(&out).tensor_count(), 4);
}

#[test]
fn a_model_without_prediction_block() {
    let (folder, model, corpus, out) = prepared(&small_model());
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf has no prediction block: `tiny.nextn_predict_layers` is 0 or not there
    hint: a prediction block (also called MTP or NextN) is part of some models of the family `qwen35`
    ");
    // Nothing is left behind.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn prediction_blocks_that_do_not_fit() {
    let refusal = |writer: &Writer<'_>| {
        let (folder, model, corpus, out) = prepared(writer);
        folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out])
    };
    let with_blocks = |predictions: u32| {
        let mut writer = Writer::new("tiny");
        writer.metadata("tiny.block_count", 4_u32).metadata("tiny.nextn_predict_layers", predictions);
        writer.tensor("token_embd.weight", &[1], TensorType::F32, vec![0; 4]);
        writer
    };
    assert_snapshot!(refusal(&with_blocks(2)), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf has 2 prediction blocks (`tiny.nextn_predict_layers`); a head can be trimmed for one
    ");
    assert_snapshot!(refusal(&with_blocks(1)), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf lacks the tensors of its prediction block, `blk.3.nextn.*`
    hint: use a file that was converted with them
    ");
}

#[test]
fn a_head_without_a_row_for_each_token() {
    let mut writer = model();
    writer.tensor("output.weight", &[4, 7], TensorType::F32, vec![0; 112]);
    let (folder, model, corpus, out) = prepared(&writer);
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/model.gguf: tensor 'output.weight' of shape [4, 7] is no head for 9 tokens
    hint: look for its faults with `paceline models verify`
    ");
}

#[test]
fn a_head_is_trimmed_once() {
    let (folder, model, corpus, out) = prepared(&model());
    json(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out, "--json"]);
    let again = folder.file("again.gguf");
    assert_snapshot!(folder.run(&["tools", "trim-head", &out, "--corpus", &corpus, "-o", &again]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/out.gguf has a trimmed head already: tensor 'blk.1.nextn.draft_head.weight'
    hint: trim the model that it was made from
    ");
}

#[test]
fn files_that_are_there() {
    let (folder, model, corpus, out) = prepared(&model());
    let before = fs::read(&model).unwrap();
    assert_snapshot!(
        folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &model, "--force"]),
        @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/model.gguf is the model itself
    hint: give another path with `--out`
    "
    );
    assert!(fs::read(&model).unwrap() == before);

    fs::write(&out, "something").unwrap();
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out]), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/out.gguf is there already
    hint: give another path, or replace it with `--force`
    ");
    assert_eq!(fs::read_to_string(&out).unwrap(), "something");
    json(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &out, "--force", "--json"]);
    assert!(paceline_gguf::verify(&out).is_ok());

    let nowhere = folder.file("missing/out.gguf");
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &corpus, "-o", &nowhere]), @r"
    exit 1
    --- stdout
    --- stderr
    error: cannot write [folder]/missing/out.gguf
    cause: No such file or directory (os error 2)
    ");
}

#[test]
fn a_corpus_without_text() {
    let (folder, model, _, out) = prepared(&model());
    let empty = folder.write("empty.txt", "");
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &empty, "-o", &out]), @r"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/empty.txt is empty
    hint: give a text like those that the model will write
    ");
    let missing = folder.file("missing.txt");
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &missing, "-o", &out]), @r"
    exit 1
    --- stdout
    --- stderr
    error: cannot read [folder]/missing.txt
    cause: No such file or directory (os error 2)
    ");
    assert_snapshot!(folder.run(&["tools", "trim-head", &model, "--corpus", &empty, "--keep", "0", "-o", &out]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value '0' for '--keep <N>': 0 is not in 1..=4294967295

    For more information, try '--help'.
    ");
}

/// The demo with a trimmed head is sound, has all that it had, and writes what it wrote.
#[cfg(feature = "demo-model")]
#[test]
fn the_demo_still_runs() {
    let folder = Folder::new();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let out = folder.file("demo-trimmed.gguf");
    let report =
        json(&["tools", "trim-head", "demo", "--corpus", corpus, "--keep", "1024", "-o", &out, "--json"]);
    assert_eq!(report["head"], "token_embd.weight");
    let kept = report["kept"].as_u64().unwrap();
    assert!((1024..1040).contains(&kept), "{kept}");

    let demo = open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/demo-qwen35-Q8_0.gguf"));
    let trimmed = open(&out);
    assert_contains(&trimmed, &demo);
    let embedding = tensor(&demo, "token_embd.weight").chunks_exact(512 / 32 * 34).collect::<Vec<_>>();
    let kept_ids = ids(&trimmed, "blk.8.nextn.draft_head_ids");
    assert!(kept_ids.is_sorted() && (0..8).all(|special| kept_ids.contains(&special)));
    let rows: Vec<u8> = kept_ids.iter().flat_map(|id| embedding[*id as usize]).copied().collect();
    assert!(tensor(&trimmed, "blk.8.nextn.draft_head.weight") == rows);
    assert!(paceline_gguf::verify(&out).is_ok());

    let run =
        program().args(["run", &out, "-p", support::PROMPT, "--temp", "0", "-n", "32"]).output().unwrap();
    assert!(run.status.success(), "{}", shown(&run));
    assert!(String::from_utf8_lossy(&run.stdout).starts_with(support::GREEDY), "{}", shown(&run));
}
