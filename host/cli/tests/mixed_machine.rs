//! A machine with cards of three vendors: a context gets the settings of the backend that runs it, whatever else there is.
//!
//! The cards are stand-ins: one of NVIDIA's and two of AMD's drivers, and one of Level Zero's loader, which the plugins open
//! like the real ones. With `PACELINE_INTEL_OPENCL`, the folder of Intel's OpenCL runtime for processors, that is the fourth.

mod support;

use paceline_tests::engines::plugin_library;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const BACKENDS: [&str; 4] = ["cuda", "rocm", "sycl", "cpu"];
const DEVICES: [&str; 5] = ["cuda:0", "rocm:0", "rocm:1", "sycl:0", "cpu:0"];

struct Machine {
    plugins: Vec<String>,
    /// Where the loader finds the stand-ins under the names of the libraries that they stand for.
    libraries: TempDir,
    /// The folder of Intel's OpenCL runtime, if there is one.
    opencl: Option<PathBuf>,
}

impl Machine {
    fn new() -> Self {
        let libraries = TempDir::new().unwrap();
        let opencl = std::env::var_os("PACELINE_INTEL_OPENCL").filter(|folder| !folder.is_empty());
        let mut doubles = vec![("paceline-hip-double", "libamdhip64.so.6")];
        if opencl.is_none() {
            doubles.push(("paceline-level-zero-double", "libze_loader.so.1"));
        }
        for (package, name) in doubles {
            symlink(plugin_library(package), libraries.path().join(name)).unwrap();
        }
        let plugins =
            ["paceline-test-cuda-double", "paceline-backend-rocm-plugin", "paceline-backend-sycl-plugin"];
        let plugins = plugins.map(|package| plugin_library(package).display().to_string()).into();
        Self { plugins, libraries, opencl: opencl.map(PathBuf::from) }
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = support::program();
        let mut folders = vec![self.libraries.path().to_owned()];
        if let Some(runtime) = &self.opencl {
            // One loader of OpenCL looks at the first, another at the second.
            for variable in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"] {
                program.env(variable, runtime.join("libintelocl.so"));
            }
            program.env("ONEAPI_DEVICE_SELECTOR", "opencl:cpu");
            folders.push(runtime.clone());
        }
        program.args(arguments).env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        program.env("HIP_DOUBLE_DEVICES", "gfx1101,gfx906");
        for plugin in &self.plugins {
            program.args(["--plugin", plugin]);
        }
        program
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.program(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", support::shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }
}

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap()).collect()
}

#[test]
fn every_context_follows_the_backend_that_runs_it() {
    let machine = Machine::new();
    let devices = machine.json(&["devices"]);
    assert_eq!(texts(&devices["devices"], "id"), DEVICES);
    let archs = texts(&devices["devices"], "arch");
    assert_eq!(archs[..4], ["sm_90", "gfx1101", "gfx906", "spirv"]);

    let text_on = |device| {
        machine.run(&["run", "demo", "--device", device, "-p", "def add(a", "-n", "3", "--temp", "0"])
    };
    let expected = text_on("cpu:0");
    for device in DEVICES {
        let own = device.split_once(':').unwrap().0;
        let explained = machine.json(&["explain", "demo", "--device", device]);
        assert_eq!(explained["placement"][0]["devices"][0]["device"], device);
        let not_used: Vec<&str> = BACKENDS.into_iter().filter(|id| *id != own).collect();
        assert_eq!(texts(&explained["not_used"], "id"), not_used, "{device}");

        let settings = explained["settings"].as_array().unwrap();
        let of = |id: &str| settings.iter().filter(|it| it["plugin"] == id).count();
        assert!(of(own) > 0, "{device}: it has no settings of its own");
        assert!(not_used.iter().all(|id| of(id) == 0), "{device}: settings of others");
        // Replay was measured on the processor alone.
        let rollback = settings.iter().find(|it| it["key"] == "speculation.rollback").unwrap();
        assert_eq!(rollback["value"], if own == "cpu" { "replay" } else { "snapshots" }, "{device}");

        assert_eq!(text_on(device), expected, "{device}");
    }
}

#[test]
fn a_card_that_is_of_no_use_leaves_the_others_alone() {
    let machine = Machine::new();
    let run = |device: &str| {
        let mut program = machine.program(&["run", "demo", "--device", device, "-p", "def add(a", "-n", "2"]);
        program.env("HIP_DOUBLE_DEVICES", "gfx1101,gfx803").output().unwrap()
    };
    let failed = run("rocm:1");
    let said = support::shown(&failed);
    assert!(!failed.status.success() && said.contains("gfx803"), "{said}");
    for device in ["rocm:0", "cuda:0"] {
        let output = run(device);
        assert!(output.status.success(), "{device}: {}", support::shown(&output));
    }
}
