//! A device that fails while a text is generated, and plugins that panic: the text goes on, and all of it is said.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies", target_os = "linux"))]

mod support;

use std::process::{Command, Output};

use insta::assert_snapshot;
use serde_json::Value;
use support::{Folder, faulty_plugin, shown, sim_plugin};

const PROMPT: &str = "fn main() {";

/// A user with settings and a folder of plugins of their own.
struct User(Folder);

impl User {
    fn new(settings: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.path().join("paceline")).unwrap();
        folder.write("paceline/registry.toml", format!("schema = 1\n{settings}"));
        Self(folder)
    }

    fn with_sim(settings: &str) -> Self {
        let user = Self::new(settings);
        user.0.write("sim.so", std::fs::read(sim_plugin()).unwrap());
        user
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = self.0.program(arguments);
        program.env("XDG_CONFIG_HOME", self.0.path()).env("XDG_DATA_HOME", self.0.file("data"));
        program
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.program(arguments).output().expect("the program starts")
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.cleaned(&shown(&self.output(arguments)))
    }

    /// The text without this folder's path and the time of a panic.
    fn cleaned(&self, text: &str) -> String {
        let text = text.replace(&self.0.path().display().to_string(), "[folder]");
        let mut parts = text.split("panicked at 2");
        let mut cleaned = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            cleaned.push_str(&format!(
                "panicked at [time]{}",
                part.split_once('Z').map_or("", |(_, rest)| rest)
            ));
        }
        cleaned
    }

    /// What came of a run as JSON, and what was logged.
    fn json(&self, arguments: &[&str]) -> (Value, String) {
        let output = self.output(arguments);
        assert!(output.status.success(), "{}", shown(&output));
        let logged = self.cleaned(&String::from_utf8_lossy(&output.stderr));
        (serde_json::from_slice(&output.stdout).expect("valid JSON"), logged)
    }
}

fn generate(more: &[&'static str]) -> Vec<&'static str> {
    let mut arguments = vec!["run", "demo", "-p", PROMPT, "-n", "20", "--ctx", "64", "--json", "--seed", "3"];
    arguments.extend(more);
    arguments
}

/// What a run on the processor gives.
fn expected() -> Value {
    support::json(&generate(&[]))["text"].clone()
}

/// The lines of warnings, without those of panics that the system writes.
fn warnings(logged: &str) -> String {
    let lines = logged.lines().filter(|line| line.contains("WARN") || line.starts_with("warning"));
    lines.map(|line| line.trim().to_owned() + "\n").collect()
}

#[test]
fn a_device_is_opened_again() {
    let user = User::with_sim("[select]\nbackend = [\"sim\"]\n[plugin.sim.settings]\nlose_after = 12\n");
    let (outcome, logged) = user.json(&generate(&["--strategy", "none"]));
    // Another backend rounds in another way.
    let undisturbed = User::with_sim("[select]\nbackend = [\"sim\"]\n");
    assert_eq!(outcome["text"], undisturbed.json(&generate(&[])).0["text"]);
    assert_eq!((&outcome["backend"]["id"], outcome["tokens"].as_array().unwrap().len()), (&"sim".into(), 20));
    assert_snapshot!(warnings(&logged), @"WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (15 tokens read again): backend `sim`: running a step: sim:0 (rocm gfx906) was lost after 12 launches; open it again, or use another device");
    let recoveries = outcome["recoveries"].as_array().unwrap();
    assert_eq!((&recoveries[0]["from"], &recoveries[0]["to"]), (&"sim:0".into(), &"sim:0".into()));
}

#[test]
fn another_backend_takes_its_place_where_a_file_allows_it() {
    let user = User::with_sim(
        "[select]\nbackend = [\"sim\"]\nfallback = [\"cpu\"]\n[plugin.sim.settings]\nlose_after = 1\n",
    );
    let (outcome, logged) = user.json(&generate(&[]));
    assert_eq!(outcome["text"], expected());
    assert_eq!(outcome["backend"]["id"], "cpu");
    assert_snapshot!(warnings(&logged), @r"
    WARN paceline_engine::speculation: strategy `mtp-chain` is not used any more: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (4 tokens read again): backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    WARN paceline::engine_setup::recovery: backend `cpu` (cpu:0) takes the place of `sim` (sim:0), which failed (4 tokens read again): backend `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    ");
    assert_snapshot!(serde_json::to_string_pretty(&outcome["recoveries"]).unwrap(), @r#"
    [
      {
        "from": "sim:0",
        "reason": "backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device",
        "to": "sim:0",
        "tokens_read_again": 4
      },
      {
        "from": "sim:0",
        "reason": "backend `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device",
        "to": "cpu:0",
        "tokens_read_again": 4
      }
    ]
    "#);
    let explained = user.run(&["explain", "demo"]);
    assert!(explained.contains("\nfallback    cpu\n"), "{explained}");
}

#[test]
fn nothing_takes_its_place_unless_a_file_says_so() {
    let user = User::with_sim("[select]\nbackend = [\"sim\"]\n[plugin.sim.settings]\nlose_after = 1\n");
    assert_snapshot!(user.run(&generate(&[])), @r#"
    exit 5
    --- stdout
    --- stderr
     WARN paceline_engine::speculation: strategy `mtp-chain` is not used any more: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
     WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (4 tokens read again): backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    error: plugin `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    plugin file: [folder]/sim.so
    hint: no other backend may take its place: `fallback = ["cpu"]` in the section `select` of registry.toml lets one
    "#);
    // What was asked for by name is not replaced.
    let user = User::with_sim("[select]\nfallback = [\"cpu\"]\n[plugin.sim.settings]\nlose_after = 1\n");
    assert_snapshot!(user.run(&generate(&["--backend", "sim"])), @r"
    exit 5
    --- stdout
    --- stderr
     WARN paceline_engine::speculation: strategy `mtp-chain` is not used any more: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
     WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (4 tokens read again): backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    error: plugin `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    plugin file: [folder]/sim.so
    hint: no other backend takes its place, as it was asked for with `--backend` or `--device`
    ");
    // Where the other one cannot be had either, both reasons are told.
    let user = User::with_sim(
        "[select]\nbackend = [\"sim\"]\nfallback = [\"rocm\"]\n[plugin.sim.settings]\nlose_after = 1\n",
    );
    assert_snapshot!(user.run(&generate(&[])), @r"
    exit 5
    --- stdout
    --- stderr
     WARN paceline_engine::speculation: strategy `mtp-chain` is not used any more: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
     WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (4 tokens read again): backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    error: plugin `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    plugin file: [folder]/sim.so
    fallback: `rocm`: backend `rocm` cannot be used: no plugin for AMD GPUs is installed: driver none of libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5 is here (the first cannot be loaded: libamdhip64.so.7: cannot open shared object file: No such file or directory)
    ");
}

/// What was set for the backend that failed means nothing to the next one, but for options that any backend takes.
#[test]
fn settings_are_handed_over() {
    let user = User::with_sim("[select]\nbackend = [\"sim\"]\nfallback = [\"cpu\"]\n");
    let (outcome, logged) = user.json(&generate(&["--set", "sim.lose_after=1"]));
    assert_eq!(outcome["text"], expected());
    assert_snapshot!(warnings(&logged), @r"
    WARN paceline_engine::speculation: strategy `mtp-chain` is not used any more: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    WARN paceline::engine_setup::recovery: device sim:0 failed and was opened again (4 tokens read again): backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    WARN paceline::engine_setup::recovery: `sim.lose_after` by --set has no effect on `cpu`
    WARN paceline::engine_setup::recovery: backend `cpu` (cpu:0) takes the place of `sim` (sim:0), which failed (4 tokens read again): backend `sim`: running a step: sim:0 (rocm gfx906) was lost after 1 launches; open it again, or use another device
    ");
}

/// A backend that panicked is not opened again, in this run or at the next start.
#[test]
fn a_backend_that_panics_is_not_trusted_any_more() {
    let settings = "[select]\nbackend = [\"sim\", \"cpu\"]\nfallback = [\"cpu\"]\n[plugin.sim.settings]\npanic_in = \"worker\"\n\
         panic_after = 2\n";
    let user = User::with_sim(settings);
    let (outcome, logged) = user.json(&generate(&[]));
    assert_eq!((&outcome["text"], &outcome["backend"]["id"]), (&expected(), &"cpu".into()));
    assert_snapshot!(warnings(&logged), @r"
    WARN paceline::engine_setup::recovery: plugin `sim` panicked and will not be used again (`paceline plugins enable sim` trusts it again): [folder]/sim.so
    WARN paceline::engine_setup::recovery: backend `cpu` (cpu:0) takes the place of `sim` (sim:0), which failed (4 tokens read again): backend `sim`: running a step: the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `worker`
    ");

    let (outcome, logged) = user.json(&generate(&[]));
    assert_eq!((&outcome["text"], &outcome["backend"]["id"]), (&expected(), &"cpu".into()));
    assert_snapshot!(warnings(&logged), @"WARN paceline::backends: backend `sim` is preferred, and passed over: plugin file [folder]/sim.so: is not trusted any more: version 0.1.0 panicked at [time] (sim:0 (rocm gfx906): the setting `panic_in` is `worker`)");
    let explained = user.run(&["explain", "demo"]);
    let not_used = explained.lines().filter(|line| line.starts_with("not used    sim"));
    assert_snapshot!(not_used.collect::<String>(), @"not used    sim: plugin file [folder]/sim.so: is not trusted any more: version 0.1.0 panicked at [time] (sim:0 (rocm gfx906): the setting `panic_in` is `worker`)");
    assert_snapshot!(user.run(&["devices", "--backend", "sim"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/sim.so: is not trusted any more: version 0.1.0 panicked at [time] (sim:0 (rocm gfx906): the setting `panic_in` is `worker`)
    hint: use another build of it, or trust this one again with `paceline plugins enable sim`
    ");
    assert_snapshot!(user.run(&["plugins", "enable", "sim"]), @r"
    exit 0
    --- stdout
    --- stderr
    `sim` 0.1.0 is trusted again: [folder]/sim.so
    ");
    assert!(user.run(&["devices", "--backend", "sim"]).contains("sim:0"));
}

#[test]
fn a_strategy_that_panics_is_not_trusted_any_more() {
    let user = User::new("[plugin.faulty.settings]\ndoes = \"panic\"\n");
    user.0.write("faulty.so", std::fs::read(faulty_plugin()).unwrap());
    let asked = generate(&["--strategy", "faulty"]);
    let (outcome, logged) = user.json(&asked);
    assert_eq!(outcome["text"], expected());
    assert_snapshot!(warnings(&logged), @r"
    WARN paceline_engine::speculation: strategy `faulty` is not used any more: the plugin panicked: it was told to panic
    WARN paceline::engine_setup::recovery: plugin `faulty` panicked and will not be used again (`paceline plugins enable faulty` trusts it again): [folder]/faulty.so
    ");

    assert_snapshot!(user.run(&asked), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/faulty.so: is not trusted any more: version 1.0.0 panicked at [time] (it was told to panic)
    hint: use another build of it, or trust this one again with `paceline plugins enable faulty`
    ");
    let listed = user.run(&["plugins", "list"]);
    let cells = listed.lines().find(|line| line.starts_with("faulty ")).unwrap().split_whitespace();
    assert_snapshot!(cells.collect::<Vec<_>>().join(" "), @"faulty strategy 1.0.0 1.0 [folder]/faulty.so refused: is not trusted any more: version 1.0.0 panicked at [time] (it was told to panic)");
    let explained = user.run(&["explain", "demo"]);
    let refused = explained.lines().find(|line| line.contains("faulty")).unwrap();
    assert_snapshot!(refused, @"refused     faulty: plugin file [folder]/faulty.so: is not trusted any more: version 1.0.0 panicked at [time] (it was told to panic)");
    let found = user.run(&["doctor"]);
    let (_, found) = found.split_once("problem: faulty").unwrap();
    assert_snapshot!(found.lines().take(2).collect::<Vec<_>>().join("\n"), @r"
    1.0.0: refused: is not trusted any more: version 1.0.0 panicked at [time] (it was told to panic)
       to do: use another build of it, or trust this one again with `paceline plugins enable faulty`
    ");

    assert_snapshot!(user.run(&["plugins", "enable", "faulty"]), @r"
    exit 0
    --- stdout
    --- stderr
    `faulty` 1.0.0 is trusted again: [folder]/faulty.so
    ");
    assert_snapshot!(user.run(&["plugins", "enable", "faulty"]), @r"
    exit 0
    --- stdout
    --- stderr
    `faulty` was not switched off
    ");
    assert_eq!(user.json(&asked).0["text"], expected());

    // Another build is another plugin, here one with some bytes more.
    assert!(user.run(&["plugins", "list"]).contains("is not trusted"));
    let build = [std::fs::read(faulty_plugin()).unwrap(), b"more".to_vec()].concat();
    user.0.write("faulty.so", build);
    assert!(!user.run(&["plugins", "list"]).contains("is not trusted"));
}

/// A conversation goes on, with all that was said.
#[test]
fn a_chat_goes_on() {
    let chat = |settings: &str| {
        let user = User::with_sim(settings);
        let template = user.0.write(
            "chat.jinja",
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
        );
        let input = user.0.write("input", "hello there\nfn main() {\n");
        let arguments = [
            "chat",
            "demo",
            "--template",
            &template,
            "--seed",
            "5",
            "-n",
            "8",
            "--json",
            "--strategy",
            "none",
        ];
        let mut program = user.program(&arguments);
        let output = program.stdin(std::fs::File::open(input).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
        let replies: Vec<Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("valid JSON"))
            .collect();
        let texts: Vec<_> = replies.iter().map(|reply| reply["text"].clone()).collect();
        let recovered: usize =
            replies.iter().map(|reply| reply["recoveries"].as_array().unwrap().len()).sum();
        (texts, recovered)
    };
    let (expected, recovered) = chat("[select]\nbackend = [\"sim\"]\n");
    assert_eq!((expected.len(), recovered), (2, 0));
    // In the first reply and in the second, of eight launches each.
    for lose_after in [6, 9, 14] {
        let sim =
            format!("[select]\nbackend = [\"sim\"]\n[plugin.sim.settings]\nlose_after = {lose_after}\n");
        let (texts, recovered) = chat(&sim);
        assert_eq!(texts, expected, "lost after {lose_after} launches");
        assert!(recovered > 0);
    }
}
