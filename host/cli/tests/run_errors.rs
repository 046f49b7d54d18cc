//! `run`: what can be wrong with a request.

#![cfg(all(feature = "demo-model", feature = "backend-cpu"))]

mod support;

use insta::assert_snapshot;
use support::{Folder, PROMPT, fixture_plugin, run, without_numbers};

/// Runs the demo model with a prompt and these options.
fn request(options: &[&str]) -> String {
    run(&[&["run", "demo", "-p", PROMPT], options].concat())
}

#[test]
fn no_prompt() {
    assert_snapshot!(run(&["run", "demo"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the prompt is empty
    hint: give some text with `--prompt TEXT` or `--file FILE`, or on standard input
    ");
    assert_snapshot!(run(&["run", "demo", "-p", ""]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the prompt is empty
    hint: give some text with `--prompt TEXT` or `--file FILE`, or on standard input
    ");
}

#[test]
fn two_prompts() {
    assert_snapshot!(run(&["run", "demo", "-p", "text", "-f", "file"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the argument '--prompt <TEXT>' cannot be used with '--file <FILE>'

    Usage: paceline run --prompt <TEXT> <MODEL>

    For more information, try '--help'.
    ");
}

#[test]
fn a_prompt_that_cannot_be_read() {
    let folder = Folder::new();
    assert_snapshot!(folder.run(&["run", "demo", "-f", &folder.file("prompt.txt")]), @r"
    exit 1
    --- stdout
    --- stderr
    error: cannot read [folder]/prompt.txt
    cause: No such file or directory (os error 2)
    ");
    let file = folder.write("latin-1.txt", b"caf\xe9");
    assert_snapshot!(folder.run(&["run", "demo", "-f", &file]), @r"
    exit 1
    --- stdout
    --- stderr
    error: [folder]/latin-1.txt is not UTF-8 text at byte 3
    hint: convert it to UTF-8 first
    ");
}

#[test]
fn a_prompt_that_does_not_fit() {
    assert_snapshot!(request(&["--ctx", "10"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the prompt has 36 tokens, the context holds 10
    hint: give `--ctx N` with more than 36; the model was trained for up to 4096
    ");
    let long = "word ".repeat(3000);
    assert_snapshot!(run(&["run", "demo", "-p", &long, "--ctx", "1000"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the prompt has 3001 tokens, the context holds 1000
    hint: give `--ctx N` with more than 3001; the model was trained for up to 4096
    ");
}

#[test]
fn a_context_that_does_not_fit() {
    assert_snapshot!(without_numbers(&request(&["--ctx", "1000000000", "--log", "error"])), @r"
    exit 4
    --- stdout
    --- stderr
    error: cpu:[n] has [n] GiB free, a context of [n] needs [n] GiB: [n] GiB short (weights [n] MiB, KV cache [n] GiB, recurrent state [n] KiB, workspace [n] MiB, parameters [n] KiB, results [n] KiB); a context of [n] would fit
    hint: give `--ctx [n]` or less
    ");
    assert_snapshot!(request(&["--ctx", "4000000000"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --ctx 4000000000: `context` cannot be `4000000000`: it takes a whole number from 1 to 2147483647
    ");
    assert_snapshot!(request(&["--ctx", "0"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --ctx 0: `context` cannot be `0`: it takes a whole number from 1 to 2147483647
    ");
}

#[test]
fn settings() {
    assert_snapshot!(request(&["--set", "cpu.thread=2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set cpu.thread=2: the setting `cpu.thread` is not known; did you mean `cpu.threads`?
    ");
    assert_snapshot!(request(&["--threads", "1000"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --threads 1000: `cpu.threads` cannot be `1000`: it takes a whole number from 0 to 512
    ");
    assert_snapshot!(request(&["--threads", "1", "--set", "cpu.threads=2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --threads 1: `cpu.threads` is given twice, by --set too
    ");
    let unknown = request(&["--set", "cpus.threads=2"]);
    let strategies = ", `dflash`, `gdn-replay`, `mtp-chain`, `ngram-adaptive`";
    assert_snapshot!(unknown.replace(strategies, ""), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set cpus.threads=2: there is no plugin `cpus`, so `cpus.threads` has no effect; did you mean `cpu.threads`?
    ");
}

#[test]
fn a_setting_of_a_backend_that_is_not_used() {
    let options = ["--plugin", &fixture_plugin(), "--backend", "cpu", "--set", "fixture.threads=2"];
    assert_snapshot!(request(&options), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set fixture.threads=2: the setting `fixture.threads` is not known
    ");
}

#[test]
fn an_unknown_backend() {
    assert_snapshot!(request(&["--backend", "gpu"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `gpu`; there is `cpu`; searched [directories]
    hint: did you mean `cpu`?
    ");
}

#[test]
fn sampling() {
    assert_snapshot!(request(&["--temp", "hot"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'hot' for '--temp <F>': it must be a number, such as 0.8

    For more information, try '--help'.
    ");
    assert_snapshot!(request(&["--temp", "-1"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: temperature cannot be -1; it takes from 0 to 100
    ");
    assert_snapshot!(request(&["--top-p", "NaN"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: top-p cannot be NaN; it takes more than 0 to 1
    ");
    assert_snapshot!(request(&["--repeat-penalty", "0"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: repeat penalty cannot be 0; it takes from 0.01 to 100
    ");
}

#[test]
fn a_type_that_keys_and_values_cannot_have() {
    assert_snapshot!(request(&["--kv-type", "banana"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'banana' for '--kv-type <TYPE>': it must be one of f16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, or two of them with `/` between, as in `q8_0/f16`

    For more information, try '--help'.
    ");
}

#[test]
fn an_empty_stop_text() {
    assert_snapshot!(request(&["--stop", ""]), @r"
    exit 2
    --- stdout
    --- stderr
    error: a value is required for '--stop <TEXT>' but none was supplied

    For more information, try '--help'.
    ");
}

#[test]
fn files_that_are_no_models() {
    let folder = Folder::new();
    let page = folder.write("page.gguf", "<!DOCTYPE html><html><body>Log in</body></html>");
    assert_snapshot!(folder.run(&["run", &page, "-p", "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/page.gguf: not a GGUF file: byte 0 starts a web page; download the file itself, not the page about it (a login may be needed)
    ");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/demo-qwen35-Q8_0.gguf");
    let bytes = std::fs::read(demo).unwrap();
    let part = folder.write("part.gguf", &bytes[..bytes.len() / 3]);
    assert_snapshot!(folder.run(&["run", &part, "-p", "text"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: [folder]/part.gguf: file seems cut short: tensor 'blk.2.attn_gate.weight' ends at byte 11467840, all tensors need 33888064 bytes and the file has 11296021; download the file again
    ");
}
