//! `explain`: what runs where, with which settings, and why; and that commands which run a model do the same.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies"))]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{Folder, run, shown, sim_plugin};

/// A file of settings of the user's, in a folder of its own.
struct Settings(Folder);

impl Settings {
    fn new(text: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.path().join("paceline")).unwrap();
        folder.write("paceline/registry.toml", format!("schema = 1\n{text}"));
        Self(folder)
    }

    /// What comes out with these arguments and variables.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let mut program = self.0.program(arguments);
        program.env("XDG_CONFIG_HOME", self.0.path()).envs(variables.iter().copied());
        let text = shown(&program.output().unwrap());
        text.replace(&self.0.path().display().to_string(), "[folder]").replace(&sim_plugin(), "[sim]")
    }

    fn json(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut program = self.0.program(arguments);
        program.env("XDG_CONFIG_HOME", self.0.path()).envs(variables.iter().copied());
        let output = program.output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The lines that begin with one of these words.
fn lines(text: &str, words: &[&str]) -> String {
    let wanted = text.lines().filter(|line| words.iter().any(|word| line.starts_with(word)));
    wanted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// With simulated devices, of which the first is used.
fn simulated(devices: &str, more: &[&str]) -> String {
    let sim = sim_plugin();
    let arguments = [&["explain", "demo", "--plugin", &sim][..], more].concat();
    Settings::new("").run(&arguments, &[("PACELINE_SIM_DEVICES", devices)])
}

#[test]
fn the_demo_on_the_processor() {
    let text = run(&["explain", "demo"]);
    // How much memory it takes depends on the processor.
    let (settings, memory) = text.split_once("\nmemory").unwrap();
    assert!(
        ["weights", "KV cache", "strategies' weights"].iter().all(|row| memory.contains(row)),
        "{memory}"
    );
    assert_snapshot!(settings, @r"
    exit 0
    --- stdout
    model       demo: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    not used    cuda: not installed
    not used    rocm: not installed
    not used    sycl: not installed
    strategies  ngram-adaptive, mtp-chain, gdn-replay
    refused     dflash: no drafter is given (--draft)

    setting                      value   from                                                     instead of
    context                      4096    what the model was trained for, at most 8192             -
    cpu.level                    auto    default of cpu                                           -
    cpu.threads                  0       default of cpu                                           -
    kv_types                     f16     built-in default                                         -
    launch_timeout               600     built-in default                                         -
    microbatch                   512     built-in default                                         -
    mtp-chain.depth              0       default of mtp-chain                                     -
    mtp-chain.form               chain   default of mtp-chain                                     -
    mtp-chain.head               auto    default of mtp-chain                                     trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on      rule registry.toml:35 (backend = cpu)                    -
    mtp-chain.least_probability  0       default of mtp-chain                                     -
    ngram-adaptive.floor         1       default of ngram-adaptive                                -
    ngram-adaptive.match         4       default of ngram-adaptive                                -
    ngram-adaptive.most          256     default of ngram-adaptive                                -
    ngram-adaptive.start         64      default of ngram-adaptive                                -
    sequences                    1       built-in default                                         -
    speculation.acceptance       agree   built-in default                                         -
    speculation.controller       on      built-in default                                         -
    speculation.most_verified    15      built-in default                                         -
    speculation.rollback         replay  rule registry.toml:20 (backend = cpu, arch = qwen35, …)  snapshots (built-in default)
    speculation.select           value   built-in default                                         -

    measured  mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested  mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    measured  speculation.rollback: the logits and texts of tests/e2e/rollback.rs and speculation.rs are the same, to the bit, as with snapshots
    untested  speculation.rollback: speed against snapshots; other backends, families and rollback strategies, where snapshots stay the default
    ");
}

#[test]
fn the_demo_on_simulated_devices() {
    let words =
        ["placement", "not used", "strategies  ", "refused", "mtp-chain.kv_only", "speculation.rollback"];
    let first = simulated("rocm:gfx906:32GiB", &[]);
    assert_snapshot!(lines(&first, &words), @r"
    placement layers 0-7 on sim:0 (sim 0.1.0)
    not used cuda: not installed
    not used rocm: not installed
    not used sycl: not installed
    not used cpu: `sim` is used
    strategies ngram-adaptive, mtp-chain
    refused dflash: no drafter is given (--draft)
    refused gdn-replay: `speculation.rollback` is snapshots
    mtp-chain.kv_only on default of mtp-chain -
    speculation.rollback snapshots built-in default replay (rule registry.toml:20 needs backend = cpu, here sim)
    ");
    // No rule knows what a device resembles: what is set follows from the backend that runs the layers.
    for devices in ["cuda:sm_90:80GiB", "sycl:xe-hpg:16GiB"] {
        assert_eq!(lines(&simulated(devices, &[]), &words), lines(&first, &words), "{devices}");
    }
    let second = simulated("rocm:gfx906:32GiB,cuda:sm_90:80GiB", &["--device", "1"]);
    assert_snapshot!(lines(&second, &["placement"]), @"placement layers 0-7 on sim:1 (sim 0.1.0)");
}

#[test]
fn what_cannot_run() {
    assert_snapshot!(simulated("rocm:gfx906:32GiB", &["--device", "1"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: backend `sim` has no device 1: they are numbered from 0 to 0
    hint: `paceline devices` lists what models can run on
    ");
    assert_snapshot!(simulated("", &["--backend", "sim"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: backend `sim` ([sim]) has no device
    hint: `paceline devices` lists what models can run on
    ");
    assert_snapshot!(lines(&simulated("", &[]), &["placement", "not used"]), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used sim: it has no device
    not used cuda: not installed
    not used rocm: not installed
    not used sycl: not installed
    ");
    assert_snapshot!(simulated("rocm:gfx906:32GiB:without=rope", &["--backend", "sim"]), @r"
    exit 3
    --- stdout
    --- stderr
    error: model in memory: backend `sim` cannot run it: rope: the simulated device has no `rope`
    plugin file: [sim]
    ");
    assert_snapshot!(run(&["explain", "demo", "--strategy", "dflash"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: strategy `dflash` cannot work here
    cause: it needs a drafter that was trained for the model: give the drafter's file with --draft
    hint: leave it out; `--strategy auto` takes those that work with the model
    ");
    assert_snapshot!(run(&["explain", "demo", "--backend", "acme"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `acme`; there is `cpu`; searched [directories]
    hint: a plugin in a shared library is loaded with `--plugin PATH`
    ");
}

/// What lies in a directory is used where a file or an option asks for it, and what is wrong with it is told.
#[test]
fn backends_in_directories() {
    let words = ["placement", "not used", "exit", "error", " WARN"];
    let explained = |text: &str, more: &[&str]| {
        let settings = Settings::new(text);
        std::fs::copy(sim_plugin(), settings.0.path().join("sim.so")).unwrap();
        settings.0.write("notes.so", "no plugin at all");
        lines(&settings.run(&[&["explain", "demo"], more].concat(), &[]), &words)
    };
    assert_snapshot!(explained("", &[]), @r#"
    exit 0
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used cuda: not installed
    not used rocm: not installed
    not used sycl: not installed
    not used sim: `cpu` is used
    not used [folder]/notes.so: refused: is not a shared library: it begins with "no p" in place of an ELF header
    "#);
    assert_snapshot!(explained("[select]\nbackend = [\"sim\", \"cpu\"]\n", &[]), @r#"
    exit 0
    placement layers 0-7 on sim:0 (sim 0.1.0)
    not used cpu: `sim` is used
    not used [folder]/notes.so: refused: is not a shared library: it begins with "no p" in place of an ELF header
    "#);
    let pinned = "[plugin.sim]\nversion = \">=9\"\n";
    assert_snapshot!(explained(&(pinned.to_owned() + "[select]\nbackend = [\"sim\", \"cpu\"]\n"), &[]), @r#"
    exit 0
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used sim: plugin `sim` is pinned to version >=9, and [folder]/sim.so has version 0.1.0
    not used [folder]/notes.so: refused: is not a shared library: it begins with "no p" in place of an ELF header
    WARN paceline::backends: backend `sim` is preferred, and passed over: plugin `sim` is pinned to version >=9, and [folder]/sim.so has version 0.1.0
    "#);
    assert_snapshot!(explained(pinned, &["--backend", "sim"]), @r"
    exit 5
    error: plugin `sim` is pinned to version >=9, and [folder]/sim.so has version 0.1.0
    ");
    assert_snapshot!(explained("[plugin.cpu]\nenabled = false\n", &[]), @r"
    exit 5
    error: no backend can be used: `cpu`: switched off; `sim`: not asked for, by `--backend` or by `backend` in a file of settings
    ");
}

#[test]
fn another_backend_only_where_a_file_allows_it() {
    let sim = sim_plugin();
    let devices = [("PACELINE_SIM_DEVICES", "rocm:gfx906:32GiB:without=rope")];
    let arguments = ["run", "demo", "-p", "x", "-n", "1", "--json", "--log", "off", "--plugin", &sim];
    let allowed = Settings::new("[select]\nfallback = [\"cpu\"]\n");
    assert_eq!(allowed.json(&arguments, &devices)["backend"]["id"], "cpu");
    let explained = allowed.run(&["explain", "demo", "--plugin", &sim], &devices);
    assert_snapshot!(lines(&explained, &["placement", "not used", "warning"]), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used cuda: not installed
    not used rocm: not installed
    not used sycl: not installed
    not used sim: model in memory: backend `sim` cannot run it: rope: the simulated device has no `rope`: [sim]
    warning: `cpu` takes the place of backend `sim`: model in memory: backend `sim` cannot run it: rope: the simulated device has no `rope`: [sim]
    ");
    let asked = [&arguments[..], &["--backend", "sim"]].concat();
    assert!(allowed.run(&asked, &devices).starts_with("exit 3"));
    assert!(Settings::new("").run(&arguments, &devices).starts_with("exit 3"));
}

/// An older backend does not know how to draw a guess: it takes the likeliest token, which is right less often, and the text stays.
#[test]
fn a_backend_that_cannot_draw() {
    let sim = sim_plugin();
    let settings = Settings::new("");
    let arguments =
        ["run", "demo", "-p", "fn main() {", "-n", "9", "--seed", "4", "--json", "--plugin", &sim];
    let strategy = ["--backend", "sim", "--strategy", "mtp-chain", "--set", "mtp-chain.depth=2"];
    let run = |devices: &str, more: &[&str]| {
        let ran =
            settings.json(&[&arguments[..], &strategy, more].concat(), &[("PACELINE_SIM_DEVICES", devices)]);
        let drafter = &ran["speculation"]["drafters"][0];
        (ran["text"].clone(), drafter["drafted"].clone(), drafter["accepted"].clone())
    };
    let (with, without) = ("cpu:x86_64:4GiB", "cpu:x86_64:4GiB:without=draw");
    let likeliest = run(with, &["--set", "mtp-chain.draw=false"]);
    assert_eq!(run(without, &[]), likeliest);
    assert_eq!(run(with, &[]).0, likeliest.0);
    let explained = |more: &[&str]| {
        let arguments = [&["explain", "demo", "--plugin", &sim], &strategy[..], more].concat();
        lines(&settings.run(&arguments, &[("PACELINE_SIM_DEVICES", without)]), &["WARN"])
    };
    assert_snapshot!(explained(&[]), @"");
    assert_snapshot!(explained(&["--set", "mtp-chain.draw=false"]), @"");
}

#[test]
fn a_file_is_weaker_than_the_environment_and_that_than_the_command_line() {
    let settings = Settings::new("[plugin.mtp-chain.settings]\ndepth = 4\n");
    let depth = |more: &[&str], variables: &[(&str, &str)]| {
        let text = settings.run(&[&["explain", "demo"], more].concat(), variables);
        lines(&text, &["mtp-chain.depth", "overridden"])
    };
    let variable = [("PACELINE_MTP_CHAIN__DEPTH", "3")];
    assert_snapshot!(depth(&[], &[]), @"mtp-chain.depth 4 [folder]/paceline/registry.toml:3 0 (default of mtp-chain)");
    assert_snapshot!(depth(&[], &variable), @r"
    mtp-chain.depth 3 PACELINE_MTP_CHAIN__DEPTH 4 ([folder]/paceline/registry.toml:3) and 1 more
    overridden `mtp-chain.depth` is 3 by PACELINE_MTP_CHAIN__DEPTH; 4 by [folder]/paceline/registry.toml:3 is overridden
    ");
    assert_snapshot!(depth(&["--set", "mtp-chain.depth=2"], &variable), @r"
    mtp-chain.depth 2 --set 3 (PACELINE_MTP_CHAIN__DEPTH) and 2 more
    overridden `mtp-chain.depth` is 2 by --set; 3 by PACELINE_MTP_CHAIN__DEPTH is overridden
    overridden `mtp-chain.depth` is 2 by --set; 4 by [folder]/paceline/registry.toml:3 is overridden
    ");
    assert_snapshot!(settings.run(&["explain", "demo", "--why", "mtp-chain.depth"], &variable), @r"
    exit 0
    --- stdout
    mtp-chain.depth = 3 tokens
    Length of drafts; 0 lets the host adapt it, up to 8. It takes a whole number from 0 to 15.

    from        PACELINE_MTP_CHAIN__DEPTH
    instead of  4 by [folder]/paceline/registry.toml:3: PACELINE_MTP_CHAIN__DEPTH is stronger
    instead of  0 by default of mtp-chain: PACELINE_MTP_CHAIN__DEPTH is stronger
    decided     when the context is made, by what runs its layers
    set it      --set mtp-chain.depth=VALUE, PACELINE_MTP_CHAIN__DEPTH=VALUE
    --- stderr
    ");
}

/// What is explained is what happens: the positions of drafts are those of the depth.
#[test]
fn a_run_obeys_the_file() {
    let settings = Settings::new(
        "[settings]\ncontext = 1024\nkv_types = \"q8_0\"\n[plugin.mtp-chain.settings]\ndepth = 3\n\
         [settings.speculation]\ncontroller = false\n[select]\nstrategy = [\"mtp-chain\"]\n",
    );
    let outcome =
        settings.json(&["run", "demo", "-p", "fn main() {", "-n", "24", "--temp", "0", "--json"], &[]);
    assert_eq!(outcome["strategies"]["drafters"], serde_json::json!(["mtp-chain"]));
    assert_eq!(outcome["strategies"]["rollback"], "gdn-replay");
    assert_eq!(outcome["speculation"]["drafters"][0]["positions"].as_array().unwrap().len(), 3);
    assert_eq!((&outcome["context"], &outcome["kv_types"][0]), (&1024.into(), &"q8_0".into()));
}

#[test]
fn options_stand_for_settings() {
    let explained = run(&["explain", "demo", "--ctx", "512", "--kv-type", "q8_0/f16", "--threads", "1"]);
    assert_snapshot!(lines(&explained, &["context", "kv_types", "cpu.threads"]), @r"
    context 512 --ctx auto (built-in default)
    cpu.threads 1 --threads 0 (default of cpu)
    kv_types q8_0/f16 --kv-type f16 (built-in default)
    ");
    assert_snapshot!(run(&["explain", "demo", "--ctx", "512", "--set", "context=256"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: --ctx 512: `context` is given twice, by --set too
    ");
    assert_snapshot!(run(&["explain", "demo", "--why", "mtp-chain.depht"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the setting `mtp-chain.depht` is not known; did you mean `mtp-chain.depth`?
    ");
}

#[test]
fn for_programs() {
    let json = support::json(&["explain", "demo", "--json", "--set", "mtp-chain.depth=2"]);
    let depth = json["settings"].as_array().unwrap().iter().find(|it| it["key"] == "mtp-chain.depth");
    assert_eq!(depth.unwrap()["from"]["source"]["option"], "--set");
    assert_eq!(json["placement"][0]["devices"][0]["device"], "cpu:0");
    let memory = json["memory"].as_array().unwrap();
    let bytes: u64 = memory.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(json["memory_bytes"], bytes);
}

#[test]
fn variables_that_are_wrong() {
    let settings = Settings::new("");
    let arguments = ["run", "demo", "-p", "x", "-n", "1"];
    assert_snapshot!(settings.run(&arguments, &[("PACELINE_MTP_CHAIN__DEPHT", "3")]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the variable PACELINE_MTP_CHAIN__DEPHT is no setting; did you mean `PACELINE_MTP_CHAIN__DEPTH`?
    ");
    assert_snapshot!(settings.run(&arguments, &[("PACELINE_MTP_CHAIN__DEPTH", "deep")]), @r"
    exit 2
    --- stdout
    --- stderr
    error: PACELINE_MTP_CHAIN__DEPTH=deep: `mtp-chain.depth` cannot be `deep`: it takes a whole number from 0 to 15
    ");
    let absent = settings.run(&arguments, &[("PACELINE_CUDA__STREAMS", "3")]);
    assert_snapshot!(lines(&absent, &["exit", " WARN"]), @r"
    exit 0
    WARN paceline::engine_setup: the variable PACELINE_CUDA__STREAMS: the plugin `cuda` for NVIDIA GPUs is not installed, so `cuda.streams` has no effect
    ");
}
