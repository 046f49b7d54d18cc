//! Backends that are known by name: what is said while their plugins or drivers are missing, and how rules for them resolve
//! once both are there. Their plugins here have simulated devices of those kinds; their drivers are empty libraries.

#![cfg(all(feature = "demo-model", feature = "backend-cpu", feature = "strategies", target_os = "linux"))]

mod support;

use std::process::Command;

use insta::assert_snapshot;
use paceline_registry::{Descriptor, KnownBackend};
use support::{Folder, example, shown};

const DEVICES: &str = "rocm:gfx906:32GiB,sycl:xe-hpg:16GiB,rocm:gfx1100:24GiB";

/// A user with plugins, drivers and settings of their own.
struct User(Folder);

impl User {
    fn new(plugins: &[&str], settings: &str) -> Self {
        let folder = Folder::new();
        for name in ["paceline", "drivers", "plugins"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        folder.write("paceline/registry.toml", format!("schema = 1\n{settings}"));
        for name in plugins {
            let plugin = std::fs::read(example(&format!("{name}_plugin"))).unwrap();
            folder.write(&format!("plugins/lib{name}.so"), plugin);
        }
        Self(folder)
    }

    /// A driver's library that can be loaded.
    fn with_driver(self, library: &str) -> Self {
        let source = self.0.write("driver.c", "int version(void) { return 1; }");
        let file = self.0.file(&format!("drivers/{library}"));
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o", &file, &source]).status();
        assert!(compiled.expect("there is a C compiler").success());
        self
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.run_with(arguments, DEVICES)
    }

    fn run_with(&self, arguments: &[&str], devices: &str) -> String {
        let mut program = self.0.program(arguments);
        program.env("XDG_CONFIG_HOME", self.0.path()).env("PACELINE_PLUGIN_DIRS", self.0.file("plugins"));
        program.env("LD_LIBRARY_PATH", self.0.file("drivers")).env("PACELINE_SIM_DEVICES", devices);
        let text = shown(&program.output().expect("the program starts"));
        text.replace(&self.0.path().display().to_string(), "[folder]")
    }
}

/// The lines that begin with one of these words, without the width of tables.
fn lines(text: &str, words: &[&str]) -> String {
    let wanted = text.lines().filter(|line| words.iter().any(|word| line.trim_start().starts_with(word)));
    wanted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// True on a machine that has a driver of this backend, where it cannot be shown what is said without.
fn has_driver(id: &str) -> bool {
    let known = KnownBackend::find(id).unwrap();
    let listed = Command::new("ldconfig").arg("-p").output().map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let found = known.libraries.iter().any(|library| listed.contains(library.as_str()));
    if found {
        eprintln!("skipped for `{id}`: this machine has its driver");
    }
    found
}

/// The plugins of these tests need the drivers that are known.
#[test]
fn what_is_known_is_what_plugins_need() {
    for (id, descriptor) in
        [("rocm", include_str!("fixtures/rocm.toml")), ("sycl", include_str!("fixtures/sycl.toml"))]
    {
        let descriptor = Descriptor::parse(descriptor).unwrap();
        assert_eq!(descriptor.needs[0].libraries, KnownBackend::find(id).unwrap().libraries);
    }
}

#[test]
fn a_backend_without_its_plugin() {
    let user = User::new(&[], "");
    if !has_driver("rocm") {
        assert_snapshot!(user.run(&["run", "demo", "-p", "x", "--device", "rocm0"]), @r"
        exit 5
        --- stdout
        --- stderr
        error: backend `rocm` cannot be used: no plugin for AMD GPUs is installed
        searched: [directories]
        driver: none of libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5 is here (the first cannot be loaded: libamdhip64.so.7: cannot open shared object file: No such file or directory)
        hint: install the HIP runtime of ROCm 5 to 7 first, then the plugin with `paceline plugins install FILE`; `paceline doctor` shows both
        ");
        assert_eq!(
            user.run(&["explain", "demo", "--backend", "rocm"]),
            user.run(&["explain", "demo", "--device", "rocm:0"])
        );
    }
    if !has_driver("sycl") {
        assert_snapshot!(user.run(&["explain", "demo", "--device", "sycl:1"]), @r"
        exit 5
        --- stdout
        --- stderr
        error: backend `sycl` cannot be used: no plugin for Intel GPUs is installed
        searched: [directories]
        driver: none of libze_loader.so.1, libOpenCL.so.1 is here (the first cannot be loaded: libze_loader.so.1: cannot open shared object file: No such file or directory)
        hint: install the loader of Level Zero or of OpenCL with a driver for the device first, then the plugin with `paceline plugins install FILE`; `paceline doctor` shows both
        ");
    }
    // With the driver there, only the plugin is missing.
    let user = User::new(&[], "").with_driver("libamdhip64.so.6");
    if !has_driver("rocm") {
        assert_snapshot!(user.run(&["explain", "demo", "--device", "rocm:0"]), @r"
        exit 5
        --- stdout
        --- stderr
        error: backend `rocm` cannot be used: no plugin for AMD GPUs is installed
        searched: [directories]
        driver: libamdhip64.so.6 is here ([folder]/drivers/libamdhip64.so.6)
        hint: install the plugin with `paceline plugins install FILE`
        ");
    }
    assert_snapshot!(user.run(&["explain", "demo", "--device", "cpu:0", "--backend", "sycl"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: `--backend sycl` and `--device cpu:…` ask for two backends
    hint: leave one of them out
    ");
}

#[test]
fn files_of_settings_that_name_them() {
    if has_driver("rocm") || has_driver("sycl") {
        return;
    }
    let user = User::new(
        &[],
        "[select]\nbackend = [\"rocm\", \"sycl\", \"cpu\"]\n[plugin.rocm.settings]\nmemory = 1\n",
    );
    assert_snapshot!(lines(&user.run(&["explain", "demo"]), &["WARN", "placement", "not used", "warning"]), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used rocm: not installed
    not used sycl: not installed
    WARN paceline::backends: backend `rocm` is preferred by [folder]/paceline/registry.toml:3, and passed over: no plugin for AMD GPUs is installed; driver: none of libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5 is here (the first cannot be loaded: libamdhip64.so.7: cannot open shared object file: No such file or directory)
    WARN paceline::backends: backend `sycl` is preferred by [folder]/paceline/registry.toml:3, and passed over: no plugin for Intel GPUs is installed; driver: none of libze_loader.so.1, libOpenCL.so.1 is here (the first cannot be loaded: libze_loader.so.1: cannot open shared object file: No such file or directory)
    warning: [folder]/paceline/registry.toml:5: the plugin `rocm` for AMD GPUs is not installed, so `rocm.memory` has no effect
    ");
    assert_snapshot!(user.run(&["config", "check"]), @r"
    exit 0
    --- stdout
    --- stderr
    warning: [folder]/paceline/registry.toml:5: the plugin `rocm` for AMD GPUs is not installed, so `rocm.memory` has no effect
    no faults
    ");
}

#[test]
fn a_plugin_without_its_driver() {
    if has_driver("rocm") || has_driver("sycl") {
        return;
    }
    let user = User::new(&["rocm", "sycl"], "");
    assert_snapshot!(user.run(&["explain", "demo", "--device", "rocm0"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: plugin file [folder]/plugins/librocm.so: needs one of the driver libraries `libamdhip64.so.7`, `libamdhip64.so.6`, `libamdhip64.so.5`, none of which is here; the first cannot be loaded: libamdhip64.so.7: cannot open shared object file: No such file or directory
    hint: install the HIP runtime of ROCm 5 to 7, in a version that will do
    ");
    assert_snapshot!(lines(&user.run(&["explain", "demo"]), &["placement", "not used"]), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    not used cuda: not installed
    not used rocm: plugin file [folder]/plugins/librocm.so: needs one of the driver libraries `libamdhip64.so.7`, `libamdhip64.so.6`, `libamdhip64.so.5`, none of which is here; the first cannot be loaded: libamdhip64.so.7: cannot open shared object file: No such file or directory
    not used sycl: plugin file [folder]/plugins/libsycl.so: needs one of the driver libraries `libze_loader.so.1`, `libOpenCL.so.1`, none of which is here; the first cannot be loaded: libze_loader.so.1: cannot open shared object file: No such file or directory
    ");
    // One driver of several will do.
    let user = User::new(&["rocm", "sycl"], "").with_driver("libamdhip64.so.5").with_driver("libOpenCL.so.1");
    let found = user.run(&["doctor"]);
    assert_snapshot!(lines(&found, &["libamdhip64", "libOpenCL", "libze_loader", "rocm", "sycl"]), @r"
    libamdhip64.so.5 [folder]/drivers/libamdhip64.so.5
    libOpenCL.so.1 [folder]/drivers/libOpenCL.so.1
    rocm 0.1.0 usable; [folder]/plugins/librocm.so
    sycl 0.1.0 usable; [folder]/plugins/libsycl.so
    ");
    let devices = user.run(&["devices", "--backend", "rocm"]);
    assert!(
        devices.contains("rocm:0") && devices.contains("rocm:1") && !devices.contains("rocm:2"),
        "{devices}"
    );
}

const RULES: &str = "
[[rule]]
set = \"speculation.rollback\"
value = \"replay\"
when = { backend = \"sycl\", arch = [\"qwen35\"], sequences = 1, recurrent_layers = \"all-on-one\" }
concerns = \"recurrent\"

[[rule]]
set = \"microbatch\"
value = 64
when = { arch = \"qwen35\" }

[[rule]]
set = \"launch_timeout\"
value = 60
when = { backend = [\"rocm\", \"sycl\"], device.arch = [\"gfx906\", \"xe-hpg\"] }
";

fn with_all(settings: &str) -> User {
    User::new(&["rocm", "sycl"], &format!("{settings}{RULES}"))
        .with_driver("libamdhip64.so.7")
        .with_driver("libze_loader.so.1")
}

/// What is set depends on the backend that runs the layers, and on no other one.
#[test]
fn rules_hold_for_the_backend_that_runs_the_layers() {
    let user = with_all("");
    let words = ["placement", "launch_timeout", "microbatch", "rocm.", "sycl.", "speculation.rollback"];
    let explained = |device: &str| user.run(&["explain", "demo", "--device", device]);
    assert_snapshot!(lines(&explained("rocm:0"), &words), @r"
    placement layers 0-7 on rocm:0 (rocm 0.1.0)
    launch_timeout 60 rule [folder]/paceline/registry.toml:14 (backend = rocm or sycl, device.arch = gfx906 or xe-hpg) 600 (built-in default)
    microbatch 64 rule [folder]/paceline/registry.toml:9 (arch = qwen35) 512 (built-in default)
    rocm.memory 2147483648 rule in plugin rocm, line 26 (device.arch = gfx906) 0 (default of rocm)
    rocm.slow_launch_ms 0 default of rocm -
    speculation.rollback snapshots built-in default replay (rule [folder]/paceline/registry.toml:3 needs backend = sycl, here rocm) and 1 more
    ");
    assert_snapshot!(lines(&explained("rocm:1"), &words), @r"
    placement layers 0-7 on rocm:1 (rocm 0.1.0)
    launch_timeout 600 built-in default 60 (rule [folder]/paceline/registry.toml:14 needs device.arch = gfx906 or xe-hpg, here gfx1100)
    microbatch 64 rule [folder]/paceline/registry.toml:9 (arch = qwen35) 512 (built-in default)
    rocm.memory 0 default of rocm 2147483648 (rule in plugin rocm, line 26 needs device.arch = gfx906, here gfx1100)
    rocm.slow_launch_ms 0 default of rocm -
    speculation.rollback snapshots built-in default replay (rule [folder]/paceline/registry.toml:3 needs backend = sycl, here rocm) and 1 more
    ");
    assert_snapshot!(lines(&explained("sycl:0"), &words), @r"
    placement layers 0-7 on sycl:0 (sycl 0.1.0)
    launch_timeout 60 rule [folder]/paceline/registry.toml:14 (backend = rocm or sycl, device.arch = gfx906 or xe-hpg) 600 (built-in default)
    microbatch 64 rule [folder]/paceline/registry.toml:9 (arch = qwen35) 512 (built-in default)
    speculation.rollback replay rule [folder]/paceline/registry.toml:3 (backend = sycl, arch = qwen35, …) snapshots (built-in default) and 1 more
    sycl.memory 2147483648 rule in plugin sycl, line 26 (device.arch = xe-hpg) 0 (default of sycl)
    sycl.slow_launch_ms 0 default of sycl -
    ");
    assert_snapshot!(lines(&explained("cpu:0"), &words), @r"
    placement layers 0-7 on cpu:0 (cpu 0.1.0)
    launch_timeout 600 built-in default 60 (rule [folder]/paceline/registry.toml:14 needs backend = rocm or sycl, here cpu)
    microbatch 64 rule [folder]/paceline/registry.toml:9 (arch = qwen35) 512 (built-in default)
    speculation.rollback replay rule registry.toml:20 (backend = cpu, arch = qwen35, …) snapshots (built-in default) and 1 more
    ");
}

/// More devices and plugins, and another order, change nothing for a context that they do not run.
#[test]
fn what_else_a_machine_has_changes_nothing() {
    // The table of settings, without the lines of the file that rules are on.
    let settings = |text: &str| {
        let (_, settings) = text.split_once("\n\n").unwrap();
        let cells = settings.split("\n\n").next().unwrap().split_whitespace();
        let without_line =
            |word: &str| word.split_once("registry.toml:").map_or(word.to_owned(), |it| it.0.to_owned());
        cells.map(without_line).collect::<Vec<_>>().join(" ")
    };
    let all = with_all("");
    let alone = User::new(&["rocm"], RULES).with_driver("libamdhip64.so.7");
    let explain = ["explain", "demo", "--device", "rocm:0"];
    let expected = settings(&all.run(&explain));
    assert!(expected.contains("rocm.memory"), "{expected}");
    assert_eq!(settings(&alone.run_with(&explain, "rocm:gfx906:32GiB")), expected);
    let mixed = "sycl:xe-hpg:16GiB,rocm:gfx906:32GiB,cuda:sm_90:80GiB,rocm:gfx1100:24GiB";
    assert_eq!(settings(&all.run_with(&explain, mixed)), expected);
    let preferred = with_all("[select]\nbackend = [\"rocm\", \"sycl\"]\n");
    assert_eq!(settings(&preferred.run(&["explain", "demo"])), expected);
}

/// A model really runs there.
#[test]
fn a_model_runs_on_a_device_of_such_a_kind() {
    let user = with_all("");
    let text =
        user.run(&["run", "demo", "-p", "fn main() {", "-n", "2", "--device", "sycl0", "--json", "-q"]);
    assert!(text.starts_with("exit 0\n") && text.contains("\"id\": \"sycl:0\""), "{text}");
}
