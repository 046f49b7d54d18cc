//! Models on the SYCL backend. On a stand-in for Level Zero's loader, whose kernels run on the processor in fibres, small ones; on Intel's
//! OpenCL runtime for processors, where `PACELINE_INTEL_OPENCL` says where it is, the demo: with sub-groups of 8, 16 and 32 lanes.

use paceline_engine::{Engine, EngineOptions};
use paceline_gguf::Gguf;
use paceline_gpu::GpuBackend;
use paceline_plugin_api::abi::{self, HostTable};
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::{PluginInfo, backend_plugin};
use paceline_tests::engines::{bits, builtin_cpu, logits, plugin_library};
use paceline_tests::prompts::prompts;
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{Drafters, engine, open, strategies, wants_long_tests};
use paceline_tests::test_models::{demo_drafter_q8_path, demo_q8_path};
use paceline_tests::texts::{Wish, assert_same, generate_alone};
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use {
    paceline_strategy_dflash as _, paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// Where the processor and a GPU may choose different tokens: the more likely one has a logit that is less than this above
/// the other's.
const EPSILON: f32 = 0.05;

static HOST: HostTable = HostTable::empty();

/// Plugins on the stand-in, whose sub-groups have one width. Their ids are not that of the backend itself, which is linked in as
/// well.
macro_rules! plugins {
    ($($module:ident $id:literal $width:literal),*) => {$(
        mod $module {
            use super::*;
            const INFO: PluginInfo = PluginInfo {
                id: $id,
                version: "0.1.0",
                kind: abi::kind::BACKEND,
                descriptor: concat!(
                    "id = \"", $id, "\"\nkind = \"backend\"\nversion = \"0.1.0\"\n",
                    "abi = { oldest = \"1.0\", built = \"1.0\" }\nlicense = \"MIT OR Apache-2.0\"\n",
                    "summary = \"The SYCL backend on a stand-in for Level Zero.\"\n"
                ),
            };
            backend_plugin!(INFO, GpuBackend, {
                let path = double().to_str().expect("a path that is text");
                paceline_backend_sycl::backend_on(path, Some($width)).expect("the stand-in works")
            });
        }
    )*};
}
plugins!(at_8 "sycl-double-8" 8, at_16 "sycl-double-16" 16, at_32 "sycl-double-32" 32);

fn double() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    // Cargo names one of the package's libraries; the shared one is beside it.
    let name = format!("{DLL_PREFIX}paceline_level_zero_double{DLL_SUFFIX}");
    PATH.get_or_init(|| plugin_library("paceline-level-zero-double").with_file_name(name))
}

/// The plugin on the stand-in.
fn on_double(width: u32) -> BackendClient {
    let entry = match width {
        8 => at_8::plugin_entry,
        16 => at_16::plugin_entry,
        _ => at_32::plugin_entry,
    };
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(entry, &HOST) }.expect("it enters").backend().expect("it works")
}

fn options() -> EngineOptions {
    EngineOptions { context: Some(512), ..EngineOptions::default() }
}

/// An engine without strategies.
fn plain(gguf: &Arc<Gguf>, backend: &BackendClient) -> Engine {
    engine(Arc::clone(gguf), backend, options(), &strategies(&[], false))
}

/// The bits of the logits of each token, which have to be the same for runs of any number of rows.
fn bits_of_rows(
    gguf: &Arc<Gguf>,
    backend: &BackendClient,
    tokens: &[u32],
    widths: &[usize],
) -> Vec<Vec<u32>> {
    let mut engine = plain(gguf, backend);
    let sequence = engine.new_sequence().expect("a free sequence");
    let mut first: Option<Vec<Vec<u32>>> = None;
    for &width in widths {
        engine.clear_sequence(sequence);
        let found: Vec<_> =
            logits(&mut engine, sequence, tokens, width).iter().map(|row| bits(row)).collect();
        let expected = first.get_or_insert_with(|| found.clone());
        let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(differs, None, "runs of {width} rows differ from runs of {} at this row", widths[0]);
    }
    first.unwrap_or_default()
}

/// Texts with strategies have the tokens, and the bits of logits, of texts without; also where state is rolled back by replay.
fn assert_texts_alike(
    gguf: &Arc<Gguf>,
    backend: &BackendClient,
    ways: &[(&str, Drafters<'_>, bool)],
    wish: &Wish<'_>,
) {
    let expected = generate_alone(&mut plain(gguf, backend), wish);
    for (name, drafters, replay) in ways {
        let mut strategies = strategies(drafters, *replay);
        strategies.draft =
            drafters.iter().any(|(id, _)| *id == "dflash").then(|| open(&demo_drafter_q8_path()));
        let mut engine = engine(Arc::clone(gguf), backend, options(), &strategies);
        let found = generate_alone(&mut engine, wish);
        assert_same(&format!("{name}, replay {replay}"), &found, &expected);
        println!("{name}, replay {replay}: {} texts alike", found.len());
    }
}

/// The same token is the most likely one as on the processor, but where two are almost equally likely.
fn assert_near_the_processor(gguf: &Arc<Gguf>, backend: &BackendClient, tokens: &[u32]) {
    let of = |backend: &BackendClient| {
        let mut engine = plain(gguf, backend);
        let sequence = engine.new_sequence().expect("a free sequence");
        logits(&mut engine, sequence, tokens, 16)
    };
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    let (expected, found) = (of(&builtin_cpu()), of(backend));
    let mut largest = 0.0f32;
    for (row, (processor, gpu)) in expected.iter().zip(&found).enumerate() {
        let distance = processor.iter().zip(gpu).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        largest = largest.max(distance);
        let (Some(a), Some(b)) = (best(processor), best(gpu)) else { panic!("a row without logits") };
        if a != b {
            let margin = processor[a] - processor[b];
            println!("row {row}: token {a} on the processor, {b} here, margin {margin}");
            assert!(margin < EPSILON, "row {row}: {a} or {b}, margin {margin}");
        }
    }
    println!("logits of {} rows are within {largest} of the processor's", found.len());
}

/// A small hybrid model with a prediction block.
fn small() -> Arc<Gguf> {
    let model = RandomModel { weights: DType::Q8_0.into(), ..RandomModel::default() };
    Arc::new(Gguf::from_bytes(model.to_bytes()).expect("a valid file"))
}

#[test]
fn rows_of_a_small_model_depend_on_neither_their_number_nor_the_width() {
    let (gguf, tokens) = (small(), RandomModel::default().tokens(17, 3));
    let expected = bits_of_rows(&gguf, &on_double(32), &tokens, &[1, 4, 17]);
    for width in [8, 16] {
        assert!(bits_of_rows(&gguf, &on_double(width), &tokens, &[17]) == expected, "sub-groups of {width}");
    }
}

#[test]
fn strategies_leave_texts_of_a_small_model_as_they_are() {
    let ways: &[(&str, Drafters<'_>, bool)] = &[
        ("ngram", &[("ngram-adaptive", &[("match", "1")])], false),
        ("chain", &[("mtp-chain", &[("depth", "3")])], true),
    ];
    let prompts = [RandomModel::default().tokens(9, 5)];
    assert_texts_alike(&small(), &on_double(16), ways, &Wish::greedy(&prompts, 12));
}

#[test]
fn a_small_model_is_near_the_processor() {
    assert_near_the_processor(&small(), &on_double(8), &RandomModel::default().tokens(24, 7));
}

#[test]
fn a_mixture_of_experts_is_near_the_processor() {
    let model = RandomModel::variant("experts-q8-0").expect("there is such a variant");
    let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).expect("a valid file"));
    assert_near_the_processor(&gguf, &on_double(16), &model.tokens(20, 7));
}

/// Set in the process that a test starts.
const INNER: &str = "PACELINE_INTEL_OPENCL_INNER";

/// Runs `inner` on Intel's runtime, in a process that begins with the variables that make it be found: the test `name`, begun again.
fn on_intels_runtime(name: &str, width: u32, inner: impl FnOnce(&BackendClient)) {
    if std::env::var_os(INNER).is_some() {
        // SAFETY: the entry of a plugin that is linked in.
        let plugin = unsafe { PluginClient::enter(paceline_backend_sycl::plugin_entry, &HOST) };
        return inner(&plugin.expect("it enters").backend().expect("it works"));
    }
    let Some(folder) = std::env::var_os("PACELINE_INTEL_OPENCL").filter(|folder| !folder.is_empty()) else {
        return println!("skipped: PACELINE_INTEL_OPENCL is not set");
    };
    let library = PathBuf::from(folder).join("libintelocl.so");
    let mut command = Command::new(std::env::current_exe().expect("a path of this test"));
    command
        .args([name, "--exact", "--nocapture"])
        .env(INNER, "1")
        .env("ONEAPI_DEVICE_SELECTOR", "opencl:cpu");
    command.env("OCL_ICD_FILENAMES", &library).env("OCL_ICD_VENDORS", &library);
    command.env("SYCL_SUBGROUP_WIDTH", width.to_string());
    assert!(command.status().expect("the test starts again").success(), "with sub-groups of {width}");
}

/// Rows, strategies and the distance from the processor, on the demo.
fn demo(backend: &BackendClient) {
    let gguf = open(&demo_q8_path());
    let tokens = prompts("code", &gguf).expect("prompts").swap_remove(0).ids;
    let (rows, length) = if wants_long_tests() { (34, 64) } else { (17, 12) };
    let row_counts: &[usize] =
        if wants_long_tests() { &[1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 34] } else { &[1, 4, 17] };
    bits_of_rows(&gguf, backend, &tokens[..tokens.len().min(rows)], row_counts);
    assert_near_the_processor(&gguf, backend, &tokens[..tokens.len().min(96)]);
    let ways: &[(&str, Drafters<'_>, bool)] = &[
        ("ngram", &[("ngram-adaptive", &[])], false),
        ("ngram", &[("ngram-adaptive", &[])], true),
        ("chain", &[("mtp-chain", &[("depth", "4")])], false),
        ("chain", &[("mtp-chain", &[("depth", "4")])], true),
        ("dflash", &[("dflash", &[])], true),
        ("ngram and chain", &[("ngram-adaptive", &[]), ("mtp-chain", &[])], true),
    ];
    let prompts = [tokens[..tokens.len().min(32)].to_vec()];
    assert_texts_alike(&gguf, backend, ways, &Wish::greedy(&prompts, length));
}

#[test]
fn the_demo_on_intels_runtime_at_8() {
    on_intels_runtime("the_demo_on_intels_runtime_at_8", 8, demo);
}

#[test]
fn the_demo_on_intels_runtime_at_16() {
    on_intels_runtime("the_demo_on_intels_runtime_at_16", 16, demo);
}

#[test]
fn the_demo_on_intels_runtime_at_32() {
    on_intels_runtime("the_demo_on_intels_runtime_at_32", 32, demo);
}
