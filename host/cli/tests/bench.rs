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
    let text = run_short(&["--strategy", "none,mtp-chain"]);
    let spaces = without_numbers(&text).split(' ').filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    assert_snapshot!(spaces, @"");
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
    assert!(runs.iter().find(|run| run["arm"] == "dflash").unwrap()["strategy_bytes"].as_u64() > Some(1 << 20));
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
        "--strategy", "none,mtp-chain", "--sweep", "mtp-chain.depth=1,2,3", "--prompts", &prompts, "--md", "--csv",
        &csv, "--html", &html,
    ]);
    assert!(text.starts_with("exit 0\n"), "{text}");
    for part in ["## Speed", "## Cost of verifying", "| mtp-chain mtp-chain.depth=3 |", "- command: paceline bench"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 1 + 4 * 2);
    assert!(std::fs::read_to_string(html).unwrap().ends_with("</html>\n"));
}

#[test]
fn a_setting_of_how_strategies_are_used() {
    let arguments = short(&["--strategy", "none,mtp-chain", "--ab", "speculation.controller=on,off", "--json"]);
    let report = json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        report["arms"],
        serde_json::json!(["none", "mtp-chain speculation.controller=on", "mtp-chain speculation.controller=off"])
    );
}

#[test]
fn what_makes_no_sense() {
    let folder = Folder::new();
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chian"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none,none"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--ab", "mtp-chain.depth=1"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--ab", "dflash.depth=1,2"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none", "--sweep", "speculation.select=value,order"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none,mtp-chain", "--set", "mtp-chain.depth=99"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none,dflash"]), @"");
    assert_snapshot!(run_short(&["--strategy", "none", "--draft", DRAFT]), @"");
    assert_snapshot!(run_short(&["--temperature", "-1"]), @"");
    assert_snapshot!(run(&["bench", "demo", "-n", "5000"]), @"");
    assert_snapshot!(run(&["bench", "demo", "--md", "--json"]), @"");
    assert_snapshot!(run(&["bench", "demo", "--limit", "0"]), @"");
    let prompts = folder.write("p.jsonl", "{\"kind\":\"code\"}\n");
    assert_snapshot!(folder.run(&["bench", "demo", "--prompts", &prompts]), @"");
    let nowhere = folder.file("no/where.csv");
    assert_snapshot!(folder.run(&["bench", "demo", "--csv", &nowhere]), @"");
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
    assert_snapshot!(text, @"");
    let facts = json(&["models", "pair", "demo", DRAFT, "--json"]);
    assert_eq!((&facts["ok"], &facts["block"], &facts["reason"]), (&true.into(), &8.into(), &().into()));
    assert_eq!(facts["target_layers"], serde_json::json!([2, 5, 7]));
    assert!(facts["memory_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn files_that_are_no_drafters_of_the_model() {
    assert_snapshot!(run(&["models", "pair", "demo", "demo"]), @"");
    let facts = output(&["models", "pair", "demo", "demo", "--json"]);
    assert_eq!(facts.status.code(), Some(3));
    let facts: serde_json::Value = serde_json::from_slice(&facts.stdout).unwrap();
    assert_eq!(facts["ok"], false);
    assert_snapshot!(run(&["models", "pair", "demo", "nowhere.gguf"]), @"");
    assert_snapshot!(run(&["models", "pair", DRAFT, DRAFT]).replace(DRAFT, "[draft]"), @"");
}
