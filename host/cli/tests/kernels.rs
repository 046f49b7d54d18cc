//! `eval kernels` and `bench --machine`; and that threads which share the attention of one row change nothing.

#![cfg(all(feature = "demo-model", feature = "backend-cpu"))]

mod support;

use insta::assert_snapshot;
use support::{PROMPT, json, run};

#[test]
fn kernels_of_a_run_with_bytes_and_times() {
    let all = json(&["eval", "kernels", "demo", "--runs", "3", "--set", "cpu.threads=1", "--all", "--json"]);
    assert_eq!((&all["threads"], &all["rows"], &all["runs"]), (&1.into(), &1.into(), &3.into()));
    let kernels = all["kernels"].as_array().unwrap();
    let heads = kernels.iter().filter(|it| it["of"] == "token_embd.weight" && it["kernel"] == "linear");
    let heads: Vec<_> = heads.collect();
    assert_eq!(heads.len(), 1, "{kernels:?}");
    assert_eq!(heads[0]["layout"], "Q8_0 in panels, 8192 x 512");
    assert_eq!(heads[0]["bytes"], 8192 * 512 / 32 * 34);
    for kernel in kernels {
        assert!(kernel["seconds"].as_f64().unwrap() > 0.0, "{kernel}");
        assert_eq!(kernel["bytes"] == 0, kernel["share_of_limit"].is_null(), "{kernel}");
    }
    let bytes = |kernels: &[serde_json::Value]| -> u64 {
        kernels.iter().map(|it| it["bytes"].as_u64().unwrap()).sum()
    };
    // Together they are fewer and have the same bytes, for runs of several rows too.
    let together =
        json(&["eval", "kernels", "demo", "--runs", "2", "--rows", "4", "--set", "cpu.threads=1", "--json"]);
    let together = together["kernels"].as_array().unwrap();
    assert!(together.len() < kernels.len());
    assert_eq!(bytes(together), bytes(kernels));
}

#[test]
fn kernels_as_a_table() {
    let table = run(&["eval", "kernels", "demo", "--runs", "2", "--set", "cpu.threads=1"]);
    let header: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(header.join(" "), "kernel of layout bytes us a run share GB/s of limit", "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("gated_delta_net") && line.contains("6 of them")),
        "{table}"
    );
}

#[test]
fn limits_of_the_machine_need_no_model() {
    let limits = json(&["bench", "--machine", "--json"]);
    let limits = limits["limits"].as_array().unwrap();
    assert_eq!(limits[0]["threads"], 1);
    for limit in limits {
        for key in ["read_bytes_per_second", "int8_products_per_second"] {
            assert!(limit[key].as_f64().unwrap() > 1e6, "{limit}");
        }
    }
    let table = run(&["bench", "--machine"]);
    assert!(table.starts_with("exit 0\n--- stdout\nthreads"), "{table}");
    assert_snapshot!(run(&["bench"]), @r"
    exit 2
    --- stdout
    --- stderr
    error: the following required arguments were not provided:
      <MODEL>

    Usage: paceline bench <MODEL>

    For more information, try '--help'.
    ");
}

#[test]
fn a_long_context_gives_the_same_logits_with_any_number_of_threads() {
    // Long enough for threads to share the positions that a row sees, in blocks that are combined two by two.
    let prompt = PROMPT.repeat(70);
    let text = |threads: &str| {
        let args =
            ["run", "demo", "-p", &prompt, "-n", "24", "--temp", "0.8", "--seed", "3", "--strategy", "none"];
        json(&[&args[..], &["--threads", threads, "--json"]].concat())
    };
    let one = text("1");
    assert!(one["prompt_tokens"].as_u64().is_some_and(|tokens| tokens > 2100), "{one}");
    for threads in ["2", "5"] {
        assert_eq!(text(threads)["text"], one["text"], "{threads} threads");
    }
}
