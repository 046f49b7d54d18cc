//! `bench` and `models pair`: measuring strategies, and looking at a drafter before.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use support::{DRAFT, Folder, json, output, run, shown, without_numbers};

const SHORT: [&str; 8] = ["bench", "demo", "--limit", "1", "-n", "12", "--repetitions", "2"];

fn short(more: &[&str]) -> Vec<String> {
    SHORT.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
}

fn run_short(more: &[&str]) -> String {
    let arguments = short(more);
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn an_overview_says_what_is_gained() {
    // So that there are guesses, however slow the machine is.
    let fixed = ["--set", "mtp-chain.depth=2", "--set", "speculation.controller=off"];
    let text = run_short(&[&["--strategy", "none,mtp-chain"][..], &fixed].concat());
    let spaces = without_numbers(&text).split(' ').filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    assert_snapshot!(spaces, @r"
    exit 0
    --- stdout
    kind arm tokens/s speed-up [n] % accepted tokens/round prompt tokens/s
    code none [n] - - - [n] [n]
    code mtp-chain [n] [n] - [n] % [n] [n]
    mtp-chain is [n] times as fast as none, with the same text in all [n] runs
    --- stderr
    ");
}

#[test]
fn json_has_all_runs_and_texts_are_the_same() {
    let arguments = short(&[
        "--strategy",
        "none,auto,dflash,ngram-adaptive+mtp-chain",
        "--draft",
        DRAFT,
        "--temperature",
        "0.7",
        "--json",
        "-q",
    ]);
    let report = json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let arms = ["none", "auto", "dflash", "ngram-adaptive+mtp-chain"];
    assert_eq!(report["arms"], serde_json::json!(arms));
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8);
    for run in runs {
        let expected = if run["arm"] == "none" { serde_json::Value::Null } else { true.into() };
        assert_eq!(run["identical"], expected, "{run}");
        assert_eq!(run["generated_tokens"], 12);
        assert!(run["launches"].as_u64() >= run["rounds"].as_u64());
    }
    // The order rotates.
    assert_ne!(runs[0]["arm"], runs[4]["arm"]);
    assert!(
        runs.iter().find(|run| run["arm"] == "dflash").unwrap()["strategy_bytes"].as_u64() > Some(1 << 20)
    );
    let costs = report["verify_cost"].as_array().unwrap();
    assert_eq!(costs.len(), 16);
    assert_eq!(costs[0]["ratio"], 1.0);
}

#[test]
fn files_and_markdown() {
    let folder = Folder::new();
    let prompts = folder.write("p.jsonl", "{\"kind\":\"code\",\"name\":\"a\",\"text\":\"fn main() {\"}\n");
    let (csv, html) = (folder.file("runs.csv"), folder.file("report.html"));
    let text = run_short(&[
        "--strategy",
        "none,mtp-chain",
        "--sweep",
        "mtp-chain.depth=1,2,3",
        "--prompts",
        &prompts,
        "--md",
        "--csv",
        &csv,
        "--html",
        &html,
    ]);
    assert!(text.starts_with("exit 0\n"), "{text}");
    for part in
        ["## Speed", "## Cost of verifying", "| mtp-chain mtp-chain.depth=3 |", "- command: paceline bench"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 1 + 4 * 2);
    assert!(std::fs::read_to_string(html).unwrap().ends_with("</html>\n"));
}

#[test]
fn a_setting_of_how_strategies_are_used() {
    let arguments =
        short(&["--strategy", "none,mtp-chain", "--ab", "speculation.controller=on,off", "--json"]);
    let report = json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        report["arms"],
        serde_json::json!([
            "none",
            "mtp-chain speculation.controller=on",
            "mtp-chain speculation.controller=off"
        ])
    );
}

#[test]
fn what_makes_no_sense() {
    let folder = Folder::new();
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chian"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no strategy `mtp-chian`; there is `dflash`, `mtp-chain`, `ngram-adaptive`
    hint: did you mean `mtp-chain`?
    ");
    assert_snapshot!(run_short(&["--strategy", "none,none"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'none,none' for '--strategy <LIST>': `none` comes twice

    For more information, try '--help'.
    ");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--ab", "mtp-chain.depth=1"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value 'mtp-chain.depth=1' for '--ab <KEY=V1,V2>': `mtp-chain.depth` has one value only; use `--set` for that

    For more information, try '--help'.
    ");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--ab", "dflash.depth=1,2"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `dflash.depth` is 1 by --set, which has no effect: `dflash` is not used here
    ");
    assert_snapshot!(run_short(&["--strategy", "none", "--sweep", "speculation.select=value,order"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `speculation.select` varies nothing: no strategy is used
    ");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--set", "mtp-chain.depth=99"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --set mtp-chain.depth=99: `mtp-chain.depth` cannot be `99`: it takes a whole number from 0 to 15
    ");
    assert_snapshot!(run_short(&["--strategy", "none,dflash"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: strategy `dflash` cannot work here
    cause: it needs a drafter that was trained for the model: give the drafter's file with --draft
    hint: leave it out; `--strategy auto` takes those that work with the model
    ");
    assert_snapshot!(run_short(&["--strategy", "none", "--draft", DRAFT]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `--draft` has no effect: no strategy is used
    hint: leave it out, or give `--strategy dflash`
    ");
    assert_snapshot!(run_short(&["--temperature", "-1"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value '-1' for '--temperature <F>': it must be 0 or more, such as 0.8

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["bench", "demo", "-n", "5000"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: prompt `doubly_linked_list` and 5000 more tokens are 5236, the model was trained for 4096
    hint: give shorter prompts, or fewer tokens with `--tokens`
    ");
    assert_snapshot!(run(&["bench", "demo", "--md", "--json"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the argument '--md' cannot be used with '--json'

    Usage: paceline bench --md <MODEL>

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["bench", "demo", "--limit", "0"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: invalid value '0' for '--limit <N>': it must be 1 or more

    For more information, try '--help'.
    ");
    let prompts = folder.write("p.jsonl", "{\"kind\":\"code\"}\n");
    assert_snapshot!(folder.run(&["bench", "demo", "--prompts", &prompts]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: [folder]/p.jsonl: line 1: the key `name` is missing
    hint: each line is an object such as {"kind": "code", "name": "stack", "text": "fn pop"}
    "#);
    let nowhere = folder.file("no/where.csv");
    assert_snapshot!(folder.run(&["bench", "demo", "--csv", &nowhere]), @r"
    exit 1
    --- stdout
    --- stderr
    auto is ngram-adaptive+mtp-chain here
    error: cannot write [folder]/no/where.csv
    cause: No such file or directory (os error 2)
    ");
}

#[cfg(unix)]
#[test]
fn ctrl_c_shows_what_was_measured() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    let mut child = support::program()
        .args(["bench", "demo", "--limit", "1", "-n", "8", "--repetitions", "1000000", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What `auto` is comes before the measurement.
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("auto is "), "{line}");
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", shown(&output));
}

#[test]
fn a_drafter_that_belongs_to_the_model() {
    let text = run(&["models", "pair", "demo", DRAFT]).replace(DRAFT, "[draft]");
    assert_snapshot!(text, @r"
    exit 0
    --- stdout
    yes: [draft] drafts for demo
    block          8 tokens, the last of the text included
    layers         3
    target layers  2, 5, 7
    hidden size    512
    vocabulary     8,192 tokens
    memory         16.7 MiB (hidden states for strategies 3.4 MiB, strategies' weights 8.8 MiB, strategies' caches 3.8 MiB)
    --- stderr
    ");
    let facts = json(&["models", "pair", "demo", DRAFT, "--json"]);
    assert_eq!((&facts["ok"], &facts["block"], &facts["reason"]), (&true.into(), &8.into(), &().into()));
    assert_eq!(facts["target_layers"], serde_json::json!([2, 5, 7]));
    assert!(facts["memory_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn files_that_are_no_drafters_of_the_model() {
    assert_snapshot!(run(&["models", "pair", "demo", "demo"]), @r"
    exit 3
    --- stdout
    no: demo cannot draft for demo: the drafter's file has `general.architecture` `qwen35`: give one of architecture `dflash` with --draft
    --- stderr
    ");
    let facts = output(&["models", "pair", "demo", "demo", "--json"]);
    assert_eq!(facts.status.code(), Some(3));
    let facts: serde_json::Value = serde_json::from_slice(&facts.stdout).unwrap();
    assert_eq!(facts["ok"], false);
    assert_snapshot!(run(&["models", "pair", "demo", "nowhere.gguf"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: there is no file nowhere.gguf
    hint: give the path of a .gguf file, or `demo`
    ");
    assert_snapshot!(run(&["models", "pair", DRAFT, DRAFT]).replace(DRAFT, "[draft]"), @r"
    exit 3
    --- stdout
    --- stderr
    error: [draft]: architecture `dflash` is not supported; this version runs llama, qwen3, qwen3moe, qwen35, qwen35moe
    ");
}
