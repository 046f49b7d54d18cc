//! `devices`, and the options `--backend` and `--set`.

mod support;

use insta::assert_snapshot;
use support::{fixture_plugin, run};

fn run_with_fixture(arguments: &[&str]) -> String {
    run(&[arguments, &["--plugin", &fixture_plugin()]].concat())
}

/// The fixture has a device that cannot be opened.
#[test]
fn a_device_that_cannot_be_opened_is_listed() {
    assert_snapshot!(run_with_fixture(&["devices", "--backend", "fixture"]), @r"
    exit 5
    --- stdout
    device     kind      name            arch  units    memory     free
    fixture:0  software  Fixture device  none      3  64.0 MiB  unknown
    --- stderr
    error: plugin `fixture`: the plugin lacks the function `device_open`
    ");
}

#[test]
fn as_json() {
    let text = run_with_fixture(&["devices", "--backend", "fixture", "--json"]);
    assert_snapshot!(text, @r#"
    exit 5
    --- stdout
    {
      "devices": [
        {
          "arch": "none",
          "capabilities": "",
          "error": "plugin `fixture`: the plugin lacks the function `device_open`",
          "free_bytes": null,
          "id": "fixture:0",
          "kind": "software",
          "memory_bytes": 67108864,
          "name": "Fixture device",
          "peers": [],
          "physical_id": "fixture:0",
          "units": 3
        }
      ],
      "failures": []
    }
    --- stderr
    error: plugin `fixture`: the plugin lacks the function `device_open`
    "#);
}

#[test]
fn what_a_plugin_logs_comes_out() {
    let text = run_with_fixture(&["devices", "--backend", "fixture", "--log", "off,fixture::detail=debug"]);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("DEBUG")).collect();
    assert_snapshot!(lines.join("\n"), @"DEBUG paceline::plugin: a detail plugin_target=fixture::detail");
}

#[test]
fn an_unknown_backend() {
    let text = run_with_fixture(&["devices", "--backend", "fixtur"]);
    assert_snapshot!(text.replace("`cpu`, ", ""), @r"
    exit 2
    --- stdout
    --- stderr
    error: there is no plugin `fixtur`; there is `fixture`; searched [directories]
    hint: did you mean `fixture`?
    ");
}

#[cfg(feature = "backend-cpu")]
mod with_the_cpu {
    use super::*;
    use support::json;

    #[test]
    fn the_cpu_is_a_device() {
        let listed = json(&["devices", "--json", "--set", "cpu.threads=1"]);
        let device = &listed["devices"][0];
        assert_eq!((&device["id"], &device["kind"]), (&"cpu:0".into(), &"cpu".into()));
        assert!(device["free_bytes"].as_u64().unwrap() > 0);
    }

    #[test]
    fn one_failing_device_does_not_hide_the_others() {
        let listed = json(&["devices", "--json", "--plugin", &fixture_plugin()]);
        let errors: Vec<bool> =
            listed["devices"].as_array().unwrap().iter().map(|it| it["error"].is_null()).collect();
        assert_eq!(errors, [false, true]);
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let output = support::output(&["devices", "--set", "cpu.thread=1"]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_snapshot!(message.trim_end(), @"error: plugin `cpu`: setting `thread` is not known; did you mean `threads`?");
    }

    #[test]
    fn a_setting_without_effect_is_an_error() {
        let text = run_with_fixture(&["devices", "--backend", "fixture", "--set", "cpu.threads=1"]);
        assert_snapshot!(text, @r"
        exit 2
        --- stdout
        --- stderr
        error: setting `cpu.threads` has no effect: `cpu` is not used here
        ");
    }
}
