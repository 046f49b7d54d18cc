//! Which strategies a context gets, and how their settings are found: rollback strategies by what they are, a drafter with a
//! model of its own by what is true of that, and rules that a plugin cannot follow.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies", target_os = "linux"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{DRAFT, Folder, lossy_plugin, shown};

/// A user with settings and a folder of plugins of their own.
struct User(Folder);

impl User {
    fn new(settings: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.path().join("paceline")).unwrap();
        folder.write("paceline/registry.toml", format!("schema = 1\n{settings}"));
        folder.write("lossy.so", std::fs::read(lossy_plugin()).unwrap());
        folder.write("demo-dflash.gguf", std::fs::read(DRAFT).unwrap());
        Self(folder)
    }

    fn output(&self, arguments: &[&str]) -> std::process::Output {
        let mut program = self.0.program(arguments);
        program.env("XDG_CONFIG_HOME", self.0.path()).output().expect("the program starts")
    }

    fn run(&self, arguments: &[&str]) -> String {
        shown(&self.output(arguments)).replace(&self.0.path().display().to_string(), "[folder]")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.output(arguments);
        assert!(output.status.success(), "{}", shown(&output));
        serde_json::from_slice(&output.stdout).expect("valid JSON")
    }
}

/// The lines that begin with one of these words.
fn lines(text: &str, words: &[&str]) -> String {
    let wanted = text.lines().filter(|line| words.iter().any(|word| line.trim_start().starts_with(word)));
    wanted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

const WORDS: [&str; 6] = ["strategies ", "refused", "speculation.rollback", "error", "hint", "WARN"];

/// What takes state back is found by what it does, and rules hold for what they were measured with.
#[test]
fn a_rollback_strategy_is_found_by_its_kind() {
    let user = User::new("");
    let explained = |more: &[&str]| lines(&user.run(&[&["explain", "demo"], more].concat()), &WORDS);
    assert_snapshot!(explained(&[]), @r"
    strategies ngram-adaptive, mtp-chain, gdn-replay
    refused dflash: no drafter is given (--draft)
    refused lossy: not asked for (--strategy)
    speculation.rollback replay rule registry.toml:20 (backend = cpu, arch = qwen35, …) snapshots (built-in default)
    ");
    assert_snapshot!(explained(&["--strategy", "ngram-adaptive+lossy"]), @r"
    strategies ngram-adaptive, lossy
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: not asked for (--strategy)
    refused mtp-chain: not asked for (--strategy)
    speculation.rollback replay --strategy snapshots (built-in default) and 1 more
    ");
    assert_snapshot!(explained(&["--strategy", "lossy"]), @r"
    error: `lossy` cannot be given as a strategy: it rolls state back, and guesses nothing
    hint: name one that guesses too, as in `--strategy ngram-adaptive+lossy`
    ");
    assert_snapshot!(explained(&["--strategy", "ngram-adaptive+lossy+gdn-replay"]), @"error: `lossy` and `gdn-replay` both roll state back: only one of them can");
    assert_snapshot!(explained(&["--strategy", "ngram-adaptive+lossy", "--set", "speculation.rollback=snapshots"]), @"error: --strategy replay: `speculation.rollback` is given twice, by --set too");
    assert_snapshot!(explained(&["--strategy", "none"]), @r"
    strategies none
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: no strategy guesses
    refused lossy: not asked for (--strategy)
    refused mtp-chain: not asked for (--strategy)
    refused ngram-adaptive: not asked for (--strategy)
    ");
    let run = ["run", "demo", "-p", "fn main() {", "-n", "4", "--json", "--strategy", "ngram-adaptive+lossy"];
    assert_eq!(user.json(&run)["strategies"]["rollback"], "lossy");
}

#[test]
fn files_prefer_a_rollback_strategy() {
    let explained = |settings: &str, more: &[&str]| {
        lines(&User::new(settings).run(&[&["explain", "demo"], more].concat()), &WORDS)
    };
    let preferred = "[select]\nrollback = [\"lossy\", \"gdn-replay\"]\n";
    assert_snapshot!(explained(preferred, &[]), @r"
    strategies ngram-adaptive, mtp-chain
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: not asked for (--strategy)
    refused lossy: `speculation.rollback` is snapshots
    speculation.rollback snapshots built-in default replay (rule registry.toml:20 needs rollback.kind = gdn-replay, here lossy)
    ");
    assert_snapshot!(explained(preferred, &["--set", "speculation.rollback=replay"]), @r"
    strategies ngram-adaptive, mtp-chain, lossy
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: not asked for (--strategy)
    speculation.rollback replay --set snapshots (built-in default) and 1 more
    ");
    // Without any, a rule has to give way and a setting is an error.
    let none = "[plugin.gdn-replay]\nenabled = false\n";
    assert_snapshot!(explained(none, &[]), @r"
    strategies ngram-adaptive, mtp-chain
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: switched off
    refused lossy: not asked for (--strategy)
    speculation.rollback snapshots built-in default replay (rule registry.toml:20 needs rollback.kind = gdn-replay, here none)
    ");
    assert_snapshot!(explained(none, &["--set", "speculation.rollback=replay"]), @"error: `speculation.rollback` is replay by --set, which cannot be had here: `gdn-replay`: this program was built without it, or it is switched off");
}

/// A drafter's model is placed where the target's is, and rules see what is true of it.
#[test]
fn a_drafter_has_settings_by_facts_of_its_own() {
    let user = User::new(
        "[[rule]]\nset = \"dflash.depth\"\nvalue = 4\nwhen = { role = \"drafter\", arch = \"dflash\" }\n\
         [[rule]]\nset = \"ngram-adaptive.match\"\nvalue = 5\nwhen = { role = \"drafter\" }\n",
    );
    let draft = user.0.file("demo-dflash.gguf");
    let text = user.run(&["explain", "demo", "--draft", &draft]);
    let (target, drafter) = text.split_once("\ndrafter ").expect("it is told of");
    assert!(!target.contains("dflash."), "{target}");
    assert_snapshot!(lines(target, &["placement", "strategies ", "ngram-adaptive.match"]), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    strategies ngram-adaptive, dflash, mtp-chain, gdn-replay
    ngram-adaptive.match 4 default of ngram-adaptive 5 (rule [folder]/paceline/registry.toml:6 needs role = drafter, here target)
    ");
    assert_snapshot!(drafter.split("\n\nmemory").next().unwrap(), @r"
       [folder]/demo-dflash.gguf: dflash, 3 layers
    placement  layers 0-2 on cpu:0 (cpu 0.1.0), where the model is

    setting         value  from                                                                           instead of
    dflash.context  0      default of dflash                                                              -
    dflash.depth    4      rule [folder]/paceline/registry.toml:2 (role = drafter, arch = dflash)  0 (default of dflash)
    dflash.draw     on     default of dflash                                                              -
    ");
    let explained = user.json(&["explain", "demo", "--draft", &draft, "--json"]);
    assert_eq!(explained["drafter"]["model"]["arch"], "dflash");
    assert_eq!(user.json(&["explain", "demo", "--json"])["drafter"], Value::Null);
}

/// What nobody asked for in particular gives way, what somebody asked for is an error.
#[test]
fn a_rule_that_a_plugin_cannot_follow() {
    let rule = "[[rule]]\nset = \"mtp-chain.head\"\nvalue = \"trimmed\"\nwhen = { arch = \"qwen35\" }\n";
    let words = ["strategies ", "refused", "mtp-chain.head", "WARN", "error", "cause", "hint"];
    assert_snapshot!(lines(&User::new(rule).run(&["explain", "demo"]), &words), @r"
    strategies ngram-adaptive, mtp-chain, gdn-replay
    refused dflash: no drafter is given (--draft)
    refused lossy: not asked for (--strategy)
    mtp-chain.head auto default of mtp-chain trimmed (rule [folder]/paceline/registry.toml:2, refused: setting `head` is trimmed, but the model file has no trimmed head: make one with `paceline tools trim-head`) and 1 more
    WARN paceline::strategies: `mtp-chain.head` is trimmed by rule [folder]/paceline/registry.toml:2, which cannot be had here: setting `head` is trimmed, but the model file has no trimmed head: make one with `paceline tools trim-head`
    ");
    let setting = "[plugin.mtp-chain.settings]\nhead = \"trimmed\"\n";
    assert_snapshot!(lines(&User::new(setting).run(&["explain", "demo", "--strategy", "mtp-chain"]), &words), @r"
    error: strategy `mtp-chain` cannot work here
    cause: setting `head` is trimmed, but the model file has no trimmed head: make one with `paceline tools trim-head`
    hint: leave it out; `--strategy auto` takes those that work with the model
    ");
}
