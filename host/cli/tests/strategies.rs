//! Strategies: which are used, what they change, and what is said about them.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{DRAFT, Folder, PROMPT, json, output, run, shown, strategy_plugin, without_numbers};

const ONE_TOKEN: [&str; 6] = ["run", "demo", "-p", "x", "-n", "1"];

/// What `run --json` says about a continuation that can be told again.
fn continued(more: &[&str]) -> Value {
    let options = ["run", "demo", "-p", PROMPT, "-n", "48", "--seed", "3", "--ignore-eos", "--json"];
    json(&[&options, more].concat())
}

fn drafters(outcome: &Value) -> Vec<&str> {
    let drafters = outcome["strategies"]["drafters"].as_array().unwrap();
    drafters.iter().map(|id| id.as_str().unwrap()).collect()
}

#[test]
fn strategies_do_not_change_the_text() {
    let none = continued(&["--strategy", "none"]);
    assert_eq!(none["speculation"], Value::Null);
    assert!(drafters(&none).is_empty());
    for options in [
        &["--strategy", "mtp-chain"][..],
        &["--strategy", "ngram-adaptive+mtp-chain", "--temp", "0.7"],
        &["--strategy", "dflash", "--draft", DRAFT],
        &["--strategy", "mtp-chain", "--set", "speculation.rollback=snapshots"],
        &["--strategy", "mtp-chain", "--set", "mtp-chain.depth=4", "--set", "speculation.controller=off"],
        &["--set", "speculation.select=order", "--set", "speculation.most_verified=3"],
    ] {
        assert_eq!(continued(options)["tokens"], none["tokens"], "{options:?}");
    }
}

#[test]
fn auto_takes_what_suits_the_model() {
    let outcome = continued(&[]);
    assert_eq!(drafters(&outcome), ["ngram-adaptive", "mtp-chain"]);
    assert_eq!(outcome["strategies"]["rollback"], "gdn-replay");
    let outcome = continued(&["--draft", DRAFT]);
    assert_eq!(drafters(&outcome), ["ngram-adaptive", "dflash"]);
    assert_eq!(outcome["strategies"]["left_out"], serde_json::json!([]));
    let outcome = continued(&["--set", "speculation.rollback=snapshots"]);
    assert_eq!(outcome["strategies"]["rollback"], Value::Null);
}

#[test]
fn what_auto_leaves_out_is_told_to_those_who_ask() {
    let outcome = output(&["run", "demo", "-p", "x", "-n", "1", "--temp", "0", "-v", "--ctx", "64"]);
    let text = String::from_utf8(outcome.stderr).unwrap();
    assert!(!text.contains("left out"), "{text}");
}

#[test]
fn json_has_the_counts_of_strategies() {
    let outcome = continued(&[
        "--strategy",
        "mtp-chain",
        "--set",
        "mtp-chain.depth=3",
        "--set",
        "speculation.controller=off",
    ]);
    let speculation = &outcome["speculation"];
    let number = |key: &str| speculation[key].as_u64().unwrap();
    assert_eq!(number("emitted"), 47);
    assert!(number("accepted") <= number("verified") && number("verified") <= number("drafted"));
    assert_eq!(number("emitted"), number("rounds") + number("accepted"));
    let runs = &speculation["runs"];
    for (kind, counts) in [("verify", number("rounds")), ("draft", number("rounds_with_draft"))] {
        assert_eq!(runs[kind]["launches"].as_u64().unwrap(), counts, "{runs}");
        assert_eq!(runs[kind]["uploads"], runs[kind]["waits"]);
    }
    let launches = ["verify", "draft", "prompt_and_commit"].map(|kind| runs[kind]["launches"].as_u64().unwrap());
    assert_eq!(outcome["counters"]["launches"], launches.iter().sum::<u64>());
    let drafter = &speculation["drafters"][0];
    assert_eq!((&drafter["id"], &drafter["disabled"]), (&"mtp-chain".into(), &Value::Null));
    assert_eq!(drafter["positions"].as_array().unwrap().len(), 3);
    assert!(number("memory_bytes") > 0);
    for part in ["draft", "verify", "commit", "host"] {
        assert!(speculation["time_ms"][part].as_f64().unwrap() >= 0.0);
    }
}

#[test]
fn statistics_are_two_lines_and_more_for_verbose() {
    let options = ["run", "demo", "-p", PROMPT, "--temp", "0", "-n", "24", "--strategy", "mtp-chain"];
    let fixed = ["--set", "mtp-chain.depth=3", "--set", "speculation.controller=off"];
    let statistics = |more: &[&str]| {
        let output = output(&[&options[..], &fixed, more].concat());
        assert!(output.status.success(), "{}", shown(&output));
        without_numbers(&String::from_utf8(output.stderr).unwrap())
    };
    assert_snapshot!(statistics(&[]), @"");
    assert_snapshot!(statistics(&["-v"]), @"");
}

#[test]
fn a_strategy_from_a_file() {
    let file = strategy_plugin();
    let with_file = |more: &[&str]| continued(&[&["--plugin", &file, "--strategy", "echo"], more].concat());
    let outcome = with_file(&[]);
    assert_eq!(drafters(&outcome), ["echo"]);
    assert_eq!(outcome["tokens"], continued(&["--strategy", "none"])["tokens"]);
    assert!(outcome["speculation"]["drafted"].as_u64().unwrap() > 0, "{outcome}");
    let failing = with_file(&["--set", "echo.fails=on", "--log", "off"]);
    assert_eq!(failing["tokens"], outcome["tokens"]);
    assert_eq!(failing["speculation"]["drafters"][0]["disabled"], "it was told to fail");
}

#[test]
fn a_strategy_from_a_directory() {
    let folder = Folder::new();
    std::fs::copy(strategy_plugin(), folder.path().join("echo.so")).unwrap();
    let outcome = folder.program(&[&ONE_TOKEN[..], &["--strategy", "echo", "--json"]].concat()).output().unwrap();
    assert!(outcome.status.success(), "{}", shown(&outcome));
    let unknown = folder.run_searching(&[&ONE_TOKEN[..], &["--strategy", "ehco"]].concat());
    assert_snapshot!(unknown, @"");
}

#[test]
fn names_that_are_no_strategies() {
    let with = |strategy: &str| run(&[&ONE_TOKEN[..], &["--strategy", strategy]].concat());
    assert_snapshot!(with("mtp-chian"), @"");
    assert_snapshot!(with("banana"), @"");
    assert_snapshot!(with("cpu"), @"");
    assert_snapshot!(with("gdn-replay"), @"");
    assert_snapshot!(with("mtp-chain+"), @"");
}

#[test]
fn a_strategy_that_refuses() {
    assert_snapshot!(run(&[&ONE_TOKEN[..], &["--strategy", "dflash"]].concat()), @"");
    assert_snapshot!(run(&[&ONE_TOKEN[..], &["--draft", "demo"]].concat()), @"");
}

#[test]
fn settings_that_make_no_sense() {
    let with = |options: &[&str]| run(&[&ONE_TOKEN[..], options].concat());
    assert_snapshot!(with(&["--set", "speculation.selct=order"]), @"");
    assert_snapshot!(with(&["--set", "speculation.most_verified=16"]), @"");
    assert_snapshot!(with(&["--set", "speculatoin.select=order"]), @"");
    assert_snapshot!(with(&["--set", "mtp-chain.depth=99"]), @"");
    assert_snapshot!(with(&["--set", "mtp-chain.depht=2"]), @"");
    assert_snapshot!(with(&["--set", "dflash.depth=2"]), @"");
    assert_snapshot!(with(&["--strategy", "none", "--set", "speculation.select=order"]), @"");
    assert_snapshot!(with(&["--strategy", "none", "--draft", DRAFT]), @"");
    assert_snapshot!(run(&["eval", "top", "demo", "-p", "x", "--set", "speculation.select=order"]), @"");
    assert_snapshot!(with(&["--draft", "nowhere.gguf"]), @"");
}
