//! `plugins verify` on strategies: whether they leave texts as they are, and what is said about those that do not.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies", target_os = "linux"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{DRAFT, Folder, faulty_plugin, lossy_plugin, output, shown, strategy_plugin, without_numbers};

/// What `verify` says about a copy of a plugin, without its hashes.
fn verified(file: &str, more: &[&str]) -> String {
    let folder = Folder::new();
    let copy = folder.write("plugin.so", std::fs::read(file).unwrap());
    without_hashes(&folder.run(&[&["plugins", "verify", &copy], more].concat()))
}

/// Another kernel may give other logits, and so other texts.
fn without_hashes(text: &str) -> String {
    let is_hash = |word: &&str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hashes: Vec<&str> = text.split_whitespace().filter(is_hash).collect();
    hashes.into_iter().fold(text.to_owned(), |text, hash| text.replace(hash, "[16 digits here]"))
}

fn report(file: &str, more: &[&str]) -> (Value, Option<i32>) {
    let output = output(&[&["plugins", "verify", file, "--json"], more].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)));
    (report, output.status.code())
}

#[test]
fn a_drafter_that_leaves_texts_as_they_are() {
    assert_snapshot!(verified(&strategy_plugin(), &[]), @r"
    exit 0
    --- stdout
    text   temperature  guesses  accepted  tokens            logits            without it
    code             0       62         0  [16 digits here]  [16 digits here]  the same
    code           0.7       62         0  [16 digits here]  [16 digits here]  the same
    prose            0       62         0  [16 digits here]  [16 digits here]  the same
    prose          0.7       62         0  [16 digits here]  [16 digits here]  the same
    --- stderr
    [folder]/plugin.so: strategy `echo` 1.0.0, ABI 1.0: no faults; layouts were not compared: this program was built without the feature `layouts`
    4 texts of 64 tokens from demo on `cpu` are the same with and without it, and so are their logits, to the bit
    ");
    let (report, code) = report(&strategy_plugin(), &[]);
    assert_eq!((&report["ok"], code), (&Value::Bool(true), Some(0)));
    let texts = report["lossless"]["texts"].as_array().unwrap();
    for text in texts {
        assert_eq!(text["tokens_hash"], text["expected_tokens_hash"]);
        assert_eq!(text["logits_hash"], text["expected_logits_hash"]);
    }
    // Four different texts, which guesses were made for.
    let hashes: std::collections::BTreeSet<_> =
        texts.iter().map(|text| text["tokens_hash"].as_str()).collect();
    assert_eq!(hashes.len(), 4);
    assert!(texts.iter().all(|text| text["guessed"].as_u64() > Some(0)), "{texts:?}");
}

/// It says of every text from where on it is another one.
#[test]
fn a_rollback_strategy_that_changes_the_text() {
    assert_snapshot!(without_numbers(&verified(&lossy_plugin(), &[])), @r"
    exit 5
    --- stdout
    text   temperature  guesses  accepted  tokens            logits            without it
    code             [n]      [n]        [n]  [[n] digits here]  [[n] digits here]  differs from token [n] on
    code           [n]      [n]        [n]  [[n] digits here]  [[n] digits here]  differs from token [n] on
    prose            [n]      [n]        [n]  [[n] digits here]  [[n] digits here]  differs from token [n] on
    prose          [n]      [n]        [n]  [[n] digits here]  [[n] digits here]  differs from token [n] on
    --- stderr
    error: plugin file [folder]/plugin.so: code at temperature [n] is another text from token [n] on
    error: code at temperature [n] is another text from token [n] on
    error: prose at temperature [n] is another text from token [n] on
    error: prose at temperature [n] is another text from token [n] on
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    let (report, code) = report(&lossy_plugin(), &[]);
    assert_eq!((&report["ok"], code), (&Value::Bool(false), Some(5)));
    assert!(report["lossless"]["texts"].as_array().unwrap().iter().any(|text| text["differs_from"].is_u64()));
}

#[test]
fn drafters_that_behave_badly() {
    let verified = |does: &str, more: &[&str]| {
        let set = format!("faulty.does={does}");
        let text = verified(&faulty_plugin(), &[&["--set", &set], more].concat());
        // Tables are as above.
        text[text.find("--- stderr").unwrap()..].to_owned()
    };
    assert!(verified("guess", &[]).contains("are the same with and without it"));
    assert_snapshot!(verified("fail", &[]), @r"
    --- stderr
    error: plugin file [folder]/plugin.so: `faulty` had to be switched off: it was told to fail
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    assert_snapshot!(verified("panic", &[]), @r"
    --- stderr
    error: plugin file [folder]/plugin.so: `faulty` panics: it was told to panic
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    assert_snapshot!(verified("babble", &[]), @r"
    --- stderr
    error: plugin file [folder]/plugin.so: `faulty` had to be switched off: 32 of its drafts held no tokens of the vocabulary
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    assert_snapshot!(verified("crash", &[]), @r"
    --- stderr
    error: plugin file [folder]/plugin.so: it ends its process (signal: 6 (SIGABRT))
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    assert_snapshot!(verified("hang", &["--time-limit", "5"]), @r"
    --- stderr
    error: plugin file [folder]/plugin.so: it was not done after 5 s
    hint: a strategy may change how long a text takes, and nothing else; this one must be corrected
    ");
    assert_snapshot!(verified("nothing", &[]), @r"
    --- stderr
    error: strategy `faulty` cannot work here
    cause: setting `does` cannot be `nothing`; it takes one of guess, fail, panic, crash, hang, babble
    ");
}

#[test]
fn what_cannot_be_tried() {
    assert_snapshot!(verified(&strategy_plugin(), &["--model", "no.gguf"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file no.gguf
    hint: give the path of a .gguf file, or `demo`
    ");
    // A drafter with a model of its own, without one and with it.
    let file = dflash_plugin();
    assert_snapshot!(verified(&file, &[]), @r"
    exit 0
    --- stdout
    --- stderr
    [folder]/plugin.so: strategy `dflash` 0.1.0, ABI 1.0: no faults; layouts were not compared: this program was built without the feature `layouts`
    what it does to a text was not tried: it cannot work here: it needs a drafter that was trained for the model: give the drafter's file with --draft
    ");
    assert!(verified(&file, &["--draft", DRAFT]).contains("are the same with and without it"));
}

fn dflash_plugin() -> String {
    support::example("dflash_plugin")
}
