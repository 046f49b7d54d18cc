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
    assert_eq!(drafters(&outcome), ["ngram-adaptive", "dflash", "mtp-chain"]);
    assert_eq!(outcome["strategies"]["left_out"], serde_json::json!([]));
    let outcome = continued(&["--set", "speculation.rollback=snapshots"]);
    assert_eq!(outcome["strategies"]["rollback"], Value::Null);
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
    let launches =
        ["verify", "draft", "prompt_and_commit"].map(|kind| runs[kind]["launches"].as_u64().unwrap());
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
    assert_snapshot!(statistics(&[]), @r"
    prompt [n] tokens in [n] ms, [n] tokens/s; generated [n] tokens in [n] ms, [n] tokens/s; stopped at the length
    mtp-chain: [n] tokens a round; [n] of [n] guesses accepted, [n] %; guesses in [n] of [n] rounds
    ");
    assert_snapshot!(statistics(&["-v"]), @r"
    prompt [n] tokens in [n] ms, [n] tokens/s; generated [n] tokens in [n] ms, [n] tokens/s; stopped at the length
    mtp-chain: [n] tokens a round; [n] of [n] guesses accepted, [n] %; guesses in [n] of [n] rounds
    `mtp-chain`: [n] drafts with [n] tokens guessed, [n] verified, [n] accepted; by position [n] %, [n] %, [n] %; one launch, full head, drafts of up to [n]; [n] rows of keys and values filled in [n] launches
    rounds [n]: [n] with a guess, [n] in which the controller did not ask
    time of rounds: guessing [n] ms, verifying [n] ms, keeping [n] ms, host [n] ms
    verifying: [n] launches, [n] uploads, [n] waits; [n] KiB to the device, [n] B from it
    guessing: [n] launches, [n] uploads, [n] waits; [n] KiB to the device, [n] B from it
    prompt and keeping: [n] launches, [n] uploads, [n] waits; [n] KiB to the device, [n] B from it
    memory: hidden states for strategies [n] MiB, strategies' weights [n] MiB, strategies' caches [n] MiB, strategies' state [n] B
    ");
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
    let outcome =
        folder.program(&[&ONE_TOKEN[..], &["--strategy", "echo", "--json"]].concat()).output().unwrap();
    assert!(outcome.status.success(), "{}", shown(&outcome));
    let unknown = folder.run_searching(&[&ONE_TOKEN[..], &["--strategy", "ehco"]].concat());
    assert_snapshot!(unknown, @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no strategy `ehco`; there is `dflash`, `echo`, `mtp-chain`, `ngram-adaptive`
    hint: a strategy in a shared library is loaded with `--plugin PATH`
    ");
}

#[test]
fn names_that_are_no_strategies() {
    let with = |strategy: &str| run(&[&ONE_TOKEN[..], &["--strategy", strategy]].concat());
    assert_snapshot!(with("mtp-chian"), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no strategy `mtp-chian`; there is `dflash`, `mtp-chain`, `ngram-adaptive`
    hint: did you mean `mtp-chain`?
    ");
    assert_snapshot!(with("banana"), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no strategy `banana`; there is `dflash`, `mtp-chain`, `ngram-adaptive`
    hint: a strategy in a shared library is loaded with `--plugin PATH`
    ");
    assert_snapshot!(with("cpu"), @r"
    exit 2
    --- stdout
    --- stderr
    error: `cpu` cannot be given as a strategy: it is a backend
    hint: give it with `--backend cpu`
    ");
    assert_snapshot!(with("gdn-replay"), @r"
    exit 2
    --- stdout
    --- stderr
    error: `gdn-replay` cannot be given as a strategy: it rolls state back, and guesses nothing
    hint: name one that guesses too, as in `--strategy ngram-adaptive+gdn-replay`
    ");
    assert_snapshot!(with("mtp-chain+"), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'mtp-chain+' for '--strategy <LIST>': a strategy is missing in `mtp-chain+`: names stand between `+`, as in `ngram-adaptive+mtp-chain`

    For more information, try '--help'.
    ");
}

#[test]
fn a_strategy_that_refuses() {
    assert_snapshot!(run(&[&ONE_TOKEN[..], &["--strategy", "dflash"]].concat()), @r"
    exit 5
    --- stdout
    --- stderr
    error: strategy `dflash` cannot work here
    cause: it needs a drafter that was trained for the model: give the drafter's file with --draft
    hint: leave it out; `--strategy auto` takes those that work with the model
    ");
    assert_snapshot!(run(&[&ONE_TOKEN[..], &["--draft", "demo"]].concat()), @r"
    exit 5
    --- stdout
    --- stderr
    error: strategy `dflash` cannot work here
    cause: the drafter's file has `general.architecture` `qwen35`: give one of architecture `dflash` with --draft
    hint: leave it out, or give another drafter; `paceline models pair` looks at a model and a drafter
    ");
}

#[test]
fn settings_that_make_no_sense() {
    let with = |options: &[&str]| run(&[&ONE_TOKEN[..], options].concat());
    assert_snapshot!(with(&["--set", "speculation.selct=order"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set speculation.selct=order: the setting `speculation.selct` is not known; did you mean `speculation.select`?
    ");
    assert_snapshot!(with(&["--set", "speculation.most_verified=16"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set speculation.most_verified=16: `speculation.most_verified` cannot be `16`: it takes a whole number from 1 to 15
    ");
    assert_snapshot!(with(&["--set", "speculatoin.select=order"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set speculatoin.select=order: there is no plugin `speculatoin`, so `speculatoin.select` has no effect; did you mean `speculation.select`?
    ");
    assert_snapshot!(with(&["--set", "mtp-chain.depth=99"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set mtp-chain.depth=99: `mtp-chain.depth` cannot be `99`: it takes a whole number from 0 to 15
    ");
    assert_snapshot!(with(&["--set", "mtp-chain.depht=2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set mtp-chain.depht=2: the setting `mtp-chain.depht` is not known; did you mean `mtp-chain.depth`?
    ");
    assert_snapshot!(with(&["--set", "dflash.depth=2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `dflash.depth` is 2 by --set, which has no effect: `dflash` is not used here
    ");
    assert_snapshot!(with(&["--strategy", "none", "--set", "speculation.select=order"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `speculation.select` is order by --set, which has no effect: no strategy is used here
    ");
    assert_snapshot!(with(&["--strategy", "none", "--draft", DRAFT]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `--draft` has no effect: no strategy is used
    hint: leave it out, or give `--strategy dflash`
    ");
    assert_snapshot!(run(&["eval", "top", "demo", "-p", "x", "--set", "speculation.select=order"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `speculation.select` is order by --set, which has no effect: no strategy is used here
    ");
    assert_snapshot!(with(&["--draft", "nowhere.gguf"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file nowhere.gguf
    hint: give the path of a .gguf file, or `demo`
    ");
}
