//! `tokenize` and `detokenize`.

#![cfg(feature = "demo-model")]

mod support;

use insta::assert_snapshot;
use support::{Folder, bytes, json, output, output_with_input, run, shown, small_model};

const TEXT: &str = "fn main() {\n\tprintln!(\"Grüße, 世界 🚲\");\n}\n";

#[test]
fn ids_of_a_text() {
    assert_snapshot!(run(&["tokenize", "demo", "Hello, world"]), @r"
    exit 0
    --- stdout
    5453 19 2523
    --- stderr
    3 tokens
    ");
    assert_snapshot!(run(&["tokenize", "demo", "-q", "Hello, world"]), @r"
    exit 0
    --- stdout
    5453 19 2523
    --- stderr
    ");
}

#[test]
fn control_tokens_only_when_asked() {
    assert_snapshot!(run(&["tokenize", "demo", "-q", "<|im_end|>"]), @r"
    exit 0
    --- stdout
    35 99 468 2649 99 37
    --- stderr
    ");
    assert_snapshot!(run(&["tokenize", "demo", "-q", "<|im_end|>", "--special"]), @r"
    exit 0
    --- stdout
    2
    --- stderr
    ");
    assert_snapshot!(run(&["detokenize", "demo", "2"]), @r"
    exit 0
    --- stdout
    --- stderr
    ");
    assert_snapshot!(run(&["detokenize", "demo", "2", "--special"]), @r"
    exit 0
    --- stdout
    <|im_end|>--- stderr
    ");
}

#[test]
fn text_survives_the_way_there_and_back() {
    let ids = output_with_input(&["tokenize", "demo"], TEXT);
    assert!(ids.status.success(), "{}", shown(&ids));
    let text = output_with_input(&["detokenize", "demo"], &ids.stdout);
    assert_eq!(String::from_utf8_lossy(&text.stdout), TEXT);
}

#[test]
fn json_has_each_token() {
    let tokens = json(&["tokenize", "demo", TEXT, "--json"]);
    let list = tokens["tokens"].as_array().unwrap();
    assert_eq!(tokens["count"], list.len());
    let ids: Vec<String> = list.iter().map(|token| token["id"].to_string()).collect();
    let mut arguments = vec!["detokenize", "demo", "--json"];
    arguments.extend(ids.iter().map(String::as_str));
    let text = json(&arguments);
    assert_eq!((&text["text"], &text["valid_utf8"]), (&TEXT.into(), &true.into()));
}

#[test]
fn an_empty_text_has_no_tokens() {
    assert_snapshot!(run(&["tokenize", "demo", ""]), @r"
    exit 0
    --- stdout

    --- stderr
    0 tokens
    ");
}

#[test]
fn ids_that_are_none() {
    assert_snapshot!(run(&["detokenize", "demo", "17", "8192"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: token 8192 does not exist: demo has 8,192 tokens
    hint: ids go from 0 to 8191
    ");
    assert_snapshot!(run(&["detokenize", "demo", "abc"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'abc' for '[ID]...': a token id is a whole number, 0 or greater

    For more information, try '--help'.
    ");
    assert_snapshot!(shown(&output_with_input(&["detokenize", "demo"], "1, 2, x")), @r"
    exit 2
    --- stdout
    --- stderr
    error: `x` on standard input: a token id is a whole number, 0 or greater
    hint: put white space or commas between ids
    ");
}

#[test]
fn input_that_is_no_text() {
    assert_snapshot!(shown(&output_with_input(&["tokenize", "demo"], b"abc\xff")), @r"
    exit 1
    --- stdout
    --- stderr
    error: standard input is not UTF-8 text at byte 3
    hint: convert it to UTF-8 first
    ");
}

#[test]
fn a_model_without_a_tokenizer() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", bytes(&small_model()));
    let code = output(&["tokenize", &path, "text"]).status.code();
    assert_eq!(code, Some(3));
    let text = folder.run(&["tokenize", &path, "text"]);
    let message = text.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(
        message
            .starts_with("error: [folder]/model.gguf: its tokenizer cannot be used: `tokenizer.ggml.model`")
    );
}
