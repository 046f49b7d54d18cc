//! `run`: what it writes.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{
    Folder, GREEDY, PROMPT, json, output, output_with_input, reference, run, shown, without_numbers,
};

const GREEDY_OPTIONS: [&str; 7] = ["run", "demo", "-p", PROMPT, "--temp", "0", "-q"];

fn greedy(more: &[&str]) -> String {
    let output = output(&[&GREEDY_OPTIONS, more].concat());
    assert!(output.status.success(), "{}", shown(&output));
    assert!(output.stderr.is_empty(), "{}", shown(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_temperature_the_text_is_that_of_the_reference() {
    let text = greedy(&["-n", "64"]);
    assert!(text.starts_with(GREEDY), "{text}");
    assert_eq!(text, reference("rust")["greedy_text"].as_str().unwrap());
}

/// `bench` has the long name, `run` the short one: both take both.
#[test]
fn the_temperature_has_two_names() {
    let text = run(&["run", "demo", "-p", PROMPT, "--temperature", "0", "-q", "-n", "8"]);
    assert_eq!(text, run(&["run", "demo", "-p", PROMPT, "--temp", "0", "-q", "-n", "8"]));
    let bench = [
        "bench",
        "demo",
        "--strategy",
        "none",
        "--limit",
        "1",
        "--repetitions",
        "1",
        "--tokens",
        "2",
        "--md",
    ];
    let command = run(&[&bench[..], &["--temp", "0.5"]].concat());
    assert!(command.starts_with("exit 0") && command.contains("--temp 0.5"), "{command}");
}

/// Standard output has the continuation alone, so that it can be piped.
#[test]
fn statistics_go_to_standard_error() {
    let text = run(&["run", "demo", "-p", PROMPT, "--temp", "0", "-n", "29", "--strategy", "none"]);
    let (text, statistics) = text.split_once("--- stderr\n").unwrap();
    assert_eq!(text, format!("exit 0\n--- stdout\n{GREEDY}\n\n"));
    assert_snapshot!(
        without_numbers(statistics),
        @"prompt [n] tokens in [n] ms, [n] tokens/s; generated [n] tokens in [n] ms, [n] tokens/s; stopped at the length"
    );
    assert!(statistics.starts_with("prompt 36 tokens in"), "{statistics}");
    assert!(statistics.contains("; generated 29 tokens in"), "{statistics}");
}

#[test]
fn a_seed_is_chosen_and_shown() {
    let run = |more: &[&str]| {
        let output = output(&[&["run", "demo", "-p", PROMPT, "-n", "12"], more].concat());
        assert!(output.status.success(), "{}", shown(&output));
        let statistics = String::from_utf8(output.stderr).unwrap();
        let (_, seed) = statistics.lines().next().unwrap().rsplit_once("; seed ").expect("a seed");
        (String::from_utf8(output.stdout).unwrap(), seed.to_owned())
    };
    let (text, seed) = run(&[]);
    assert_eq!(run(&["--seed", &seed]), (text, seed.clone()));
    assert_ne!(run(&[]).1, seed);
}

#[test]
fn the_number_of_threads_does_not_change_the_text() {
    let text = |threads: &str| greedy(&["-n", "24", "--threads", threads]);
    let one = text("1");
    assert_eq!((text("2"), text("3")), (one.clone(), one.clone()));
    assert_eq!(greedy(&["-n", "24", "--set", "cpu.threads=2"]), one);
}

#[test]
fn the_prompt_comes_from_a_file_or_standard_input() {
    let folder = Folder::new();
    let file = folder.write("prompt.txt", PROMPT);
    let expected = greedy(&["-n", "8"]);
    let from_file = output(&["run", "demo", "-f", &file, "--temp", "0", "-n", "8"]);
    assert_eq!(String::from_utf8_lossy(&from_file.stdout), expected);
    let from_stdin = output_with_input(&["run", "demo", "--temp", "0", "-n", "8"], PROMPT);
    assert_eq!(String::from_utf8_lossy(&from_stdin.stdout), expected);
}

#[test]
fn a_stop_text_ends_the_text_before_it() {
    let (before, _) = GREEDY.split_once("+= 1;\n    }").unwrap();
    assert_eq!(greedy(&["--stop", "never said", "--stop", "+= 1;\n    }"]), before);
    let outcome = json(&[&GREEDY_OPTIONS[..], &["--stop", "+= 1", "--json"]].concat());
    assert_eq!((&outcome["stop"], &outcome["stop_text"]), (&"stop_text".into(), &"+= 1".into()));
    assert_eq!(outcome["text"], before);
}

/// Text is held back as long as it may become a stop text, and comes out at the end if it did not.
#[test]
fn the_beginning_of_a_stop_text_is_no_stop_text() {
    let text = greedy(&["-n", "8"]);
    assert_eq!(greedy(&["-n", "8", "--stop", &format!("{}!", text.trim())]), text);
}

#[test]
fn json_says_everything() {
    let outcome = json(
        &[&GREEDY_OPTIONS[..], &["-n", "8", "--seed", "7", "--json", "--threads", "1", "--strategy", "none"]]
            .concat(),
    );
    let numbers = |value: &Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let reference = reference("rust");
    assert_eq!(numbers(&outcome["prompt_ids"]), numbers(&reference["ids"]));
    let tokens = numbers(&outcome["tokens"]);
    assert_eq!(tokens, numbers(&reference["greedy_64"])[..8]);

    let mut arguments = vec!["detokenize".to_owned(), "demo".to_owned(), "--json".to_owned()];
    arguments.extend(tokens.iter().map(u64::to_string));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(outcome["text"], json(&arguments)["text"]);

    let timings = &outcome["timings"];
    for key in ["load_ms", "prompt_ms", "prompt_per_second", "generation_ms", "generation_per_second"] {
        assert!(timings[key].as_f64().unwrap() > 0.0, "{key} {timings}");
    }
    // One launch for the prompt, and one for each token but the last; the first comes with the prompt.
    assert_eq!(outcome["counters"]["launches"], 8);
    let memory = outcome["memory"].as_array().unwrap();
    let bytes: u64 = memory.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(bytes > 30_000_000, "{memory:?}");

    let mut rest = outcome.clone();
    let object = rest.as_object_mut().unwrap();
    for key in ["prompt_ids", "tokens", "timings", "counters", "memory"] {
        object.remove(key);
    }
    rest["device"]["name"] = "[name]".into();
    rest["backend"]["version"] = "[version]".into();
    rest.sort_all_objects();
    assert_snapshot!(format!("{rest:#}"), @r#"
    {
      "backend": {
        "file": null,
        "id": "cpu",
        "version": "[version]"
      },
      "captures": {
        "captured": false,
        "captures": 0,
        "reason": "this backend does not capture steps",
        "rebuilds": 0,
        "replays": 0
      },
      "context": 4096,
      "device": {
        "id": "cpu:0",
        "name": "[name]"
      },
      "kv_types": [
        "f16",
        "f16"
      ],
      "model": "demo",
      "prompt_tokens": 36,
      "recoveries": [],
      "sampler": {
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "repeat_window": 64,
        "temperature": 0.0,
        "top_k": 40,
        "top_p": 0.9
      },
      "seed": 7,
      "settings": {
        "threads": "1"
      },
      "speculation": null,
      "stop": "length",
      "stop_text": null,
      "strategies": {
        "drafters": [],
        "left_out": [],
        "rollback": null
      },
      "text": "    let mut count = 0;\n"
    }
    "#);
}

#[test]
fn a_full_context_ends_the_text() {
    let text = run(&["run", "demo", "-p", PROMPT, "--temp", "0", "--ctx", "40"]);
    let text = without_numbers(&text);
    assert!(text.contains("; stopped as the context is full (see `--ctx`)\n"), "{text}");
    let outcome = json(&[&GREEDY_OPTIONS[..], &["--ctx", "40", "--json"]].concat());
    // The last token needs no position, as nothing follows it.
    assert_eq!((&outcome["stop"], &outcome["timings"]["generated"]), (&"context_full".into(), &5.into()));
}

#[test]
fn control_tokens_of_the_prompt_only_when_asked() {
    let prompt_ids = |more: &[&str]| {
        let arguments = ["run", "demo", "-p", "<|im_end|>", "-n", "1", "--json"];
        json(&[&arguments, more].concat())["prompt_ids"].clone()
    };
    assert_eq!(prompt_ids(&[]), serde_json::json!([35, 99, 468, 2649, 99, 37]));
    assert_eq!(prompt_ids(&["--special"]), serde_json::json!([2]));
}

#[test]
fn types_of_cached_keys_and_values() {
    let types = |kv_type: &str| {
        let outcome = json(&[&GREEDY_OPTIONS[..], &["-n", "5", "--kv-type", kv_type, "--json"]].concat());
        assert_eq!(outcome["text"], "    let mut count =");
        let cache = outcome["memory"].as_array().unwrap().iter().find(|row| row["class"] == "kv").unwrap();
        (outcome["kv_types"].clone(), cache["bytes"].as_u64().unwrap())
    };
    let (names, small) = types("q8_0/f16");
    assert_eq!(names, serde_json::json!(["q8_0", "f16"]));
    assert!(small < types("f32").1);
}

/// As in `paceline run demo -p text | head -c 1`.
#[test]
fn a_reader_that_goes_away_ends_it() {
    let mut child = support::program()
        .args(["run", "demo", "-p", PROMPT, "-n", "4000", "--ignore-eos"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_text_and_shows_statistics() {
    use std::io::Read;

    let mut child = support::program()
        .args(["run", "demo", "-p", PROMPT, "-n", "4000", "--ignore-eos", "--temp", "0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let statistics = String::from_utf8(output.stderr).unwrap();
    assert!(statistics.contains("; interrupted\n"), "{statistics}");
}
