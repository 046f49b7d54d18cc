//! Models on the ROCm backend, which opens a stand-in for the HIP library: virtual devices with waves of 32 and of 64 lanes,
//! whose kernels run on the processor. That is slow, so small models run here; with `PACELINE_LONG_TESTS` the demo does.

use libloading::os::unix::Library;
use paceline_engine::{Engine, EngineOptions};
use paceline_gguf::Gguf;
use paceline_gpu::GpuBackend;
use paceline_plugin_api::abi::{self, HostTable};
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::{PluginInfo, backend_plugin};
use paceline_tests::engines::{bits, builtin_cpu, logits, plugin_library};
use paceline_tests::prompts::prompts;
use paceline_tests::random_model::{RandomDense, RandomModel};
use paceline_tests::strategies::{Drafters, engine, open, strategies, wants_long_tests};
use paceline_tests::test_models::{demo_drafter_q8_path, demo_q8_path};
use paceline_tests::texts::{Wish, assert_same, generate_alone};
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use {
    paceline_strategy_dflash as _, paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// Devices of the stand-in, by their numbers: waves of 32 lanes, of 64.
const DEVICES: [(u32, &str); 2] = [(0, "gfx1101"), (1, "gfx906")];
const DEVICES_TEXT: &CStr = c"gfx1101:8GiB,gfx906:8GiB";

/// Where the processor and a GPU may choose different tokens: the more likely one has a logit that is less than this above
/// the other's.
const EPSILON: f32 = 0.05;

/// Another id than that of the backend itself, which is linked in as well.
const INFO: PluginInfo = PluginInfo {
    id: "rocm-double",
    version: "0.1.0",
    kind: abi::kind::BACKEND,
    descriptor: "id = \"rocm-double\"\nkind = \"backend\"\nversion = \"0.1.0\"\n\
                 abi = { oldest = \"1.0\", built = \"1.0\" }\nlicense = \"MIT OR Apache-2.0\"\n\
                 summary = \"The ROCm backend on a stand-in for the HIP library.\"\n",
};

backend_plugin!(INFO, GpuBackend, paceline_backend_rocm::backend_on(double()));

static HOST: HostTable = HostTable::empty();

/// The stand-in, with its devices set.
fn double() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = plugin_library("paceline-hip-double");
        type Set = unsafe extern "C" fn(*const c_char, *const c_char);
        // SAFETY: the stand-in does nothing when it is loaded, the type is the function's, and it stays open.
        unsafe {
            let library = Box::leak(Box::new(Library::new(&path).expect("the stand-in loads")));
            let set = library.get::<Set>(b"hip_double_set\0").expect("the stand-in has it");
            set(c"HIP_DOUBLE_DEVICES".as_ptr(), DEVICES_TEXT.as_ptr());
            set(c"HIP_VISIBLE_DEVICES".as_ptr(), c"0,1".as_ptr());
        }
        path
    })
}

fn rocm() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.expect("it enters").backend().expect("it works")
}

/// Rows that the largest step is planned for where runs are compared: groups without work take time on the processor, too.
const MICROBATCH: u32 = 64;

fn on(device: u32) -> EngineOptions {
    EngineOptions { device, context: Some(512), ..EngineOptions::default() }
}

/// An engine without strategies.
fn plain(gguf: &Arc<Gguf>, backend: &BackendClient, options: EngineOptions) -> Engine {
    engine(Arc::clone(gguf), backend, options, &strategies(&[], false))
}

/// A small hybrid model with a prediction block, whose heads have a width that other GPUs have matrix units for.
fn small() -> Arc<Gguf> {
    let model = RandomModel {
        weights: DType::Q8_0.into(),
        head_dim: 64,
        rotary: 16,
        sections: [3, 3, 2, 0],
        ..RandomModel::default()
    };
    Arc::new(Gguf::from_bytes(model.to_bytes()).expect("a valid file"))
}

/// The bits of every row are the same for a run of one row and for runs of more, on each device and on both.
fn assert_rows_alike(gguf: &Arc<Gguf>, tokens: &[u32], widths: &[usize]) {
    let mut first: Option<Vec<Vec<u32>>> = None;
    for (device, chip) in DEVICES {
        let mut engine = plain(gguf, &rocm(), EngineOptions { microbatch: MICROBATCH, ..on(device) });
        let sequence = engine.new_sequence().expect("a free sequence");
        for &width in widths {
            engine.clear_sequence(sequence);
            let found: Vec<_> =
                logits(&mut engine, sequence, tokens, width).iter().map(|row| bits(row)).collect();
            let expected = first.get_or_insert_with(|| found.clone());
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            assert_eq!(
                differs, None,
                "{chip}: runs of {width} rows differ from {} at this row",
                DEVICES[0].1
            );
        }
    }
}

/// Texts with strategies have the tokens, and the bits of logits, of texts without.
fn assert_texts_alike(gguf: &Arc<Gguf>, ways: &[(&str, Drafters<'_>, bool)], wish: &Wish<'_>) {
    for (device, chip) in DEVICES {
        let expected = generate_alone(&mut plain(gguf, &rocm(), on(device)), wish);
        for (name, drafters, replay) in ways {
            let mut strategies = strategies(drafters, *replay);
            strategies.draft =
                drafters.iter().any(|(id, _)| *id == "dflash").then(|| open(&demo_drafter_q8_path()));
            let mut engine = engine(Arc::clone(gguf), &rocm(), on(device), &strategies);
            let found = generate_alone(&mut engine, wish);
            assert_same(&format!("{chip}: {name}, replay {replay}"), &found, &expected);
            println!("{chip}: {name}, replay {replay}: {} texts alike", found.len());
        }
    }
}

/// The same token is the most likely one as on the processor, but where two are almost equally likely.
fn assert_near_the_processor(gguf: &Arc<Gguf>, tokens: &[u32]) {
    let of = |backend: &BackendClient, options: EngineOptions| {
        let mut engine = plain(gguf, backend, options);
        let sequence = engine.new_sequence().expect("a free sequence");
        logits(&mut engine, sequence, tokens, 16)
    };
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    let expected = of(&builtin_cpu(), EngineOptions { context: Some(512), ..EngineOptions::default() });
    for (device, chip) in DEVICES {
        let found = of(&rocm(), EngineOptions { microbatch: MICROBATCH, ..on(device) });
        let mut largest = 0.0f32;
        for (row, (processor, gpu)) in expected.iter().zip(&found).enumerate() {
            let distance = processor.iter().zip(gpu).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            largest = largest.max(distance);
            let (Some(a), Some(b)) = (best(processor), best(gpu)) else { panic!("a row without logits") };
            if a != b {
                let margin = processor[a] - processor[b];
                println!("{chip}: row {row}: token {a} on the processor, {b} here, margin {margin}");
                assert!(margin < EPSILON, "{chip}: row {row}: {a} or {b}, margin {margin}");
            }
        }
        println!("{chip}: logits of {} rows are within {largest} of the processor's", found.len());
    }
}

#[test]
fn rows_of_a_small_model_do_not_depend_on_their_number() {
    let gguf = small();
    assert_rows_alike(&gguf, &RandomModel::default().tokens(17, 3), &[1, 4, 17]);
}

/// Copies with snapshots, and the model's own block with records.
const FEW_WAYS: &[(&str, Drafters<'static>, bool)] = &[
    ("ngram", &[("ngram-adaptive", &[("match", "1")])], false),
    ("chain", &[("mtp-chain", &[("depth", "3")])], true),
];

#[test]
fn strategies_leave_texts_of_a_small_model_as_they_are() {
    assert_texts_alike(&small(), FEW_WAYS, &Wish::greedy(&[RandomModel::default().tokens(9, 5)], 12));
}

#[test]
fn a_small_model_is_near_the_processor() {
    assert_near_the_processor(&small(), &RandomModel::default().tokens(24, 7));
}

/// Mixtures of experts, with a shared one, chosen on the device: of quantised matrices.
fn experts() -> Arc<Gguf> {
    let model = RandomModel::variant("experts-q8-0").expect("there is such a variant");
    Arc::new(Gguf::from_bytes(model.to_bytes()).expect("a valid file"))
}

#[test]
fn rows_of_a_mixture_of_experts_do_not_depend_on_their_number() {
    assert_rows_alike(&experts(), &RandomModel::default().tokens(18, 3), &[1, 4, 18]);
}

#[test]
fn strategies_leave_texts_of_a_mixture_of_experts_as_they_are() {
    assert_texts_alike(&experts(), FEW_WAYS, &Wish::greedy(&[RandomModel::default().tokens(9, 5)], 12));
}

#[test]
fn mixtures_of_experts_are_near_the_processor() {
    assert_near_the_processor(&experts(), &RandomModel::default().tokens(10, 7));
    // Widths that end within a panel.
    let dense = RandomDense::variant("qwen3-experts-odd-merged").expect("there is such a variant");
    let gguf = Arc::new(Gguf::from_bytes(dense.to_bytes()).expect("a valid file"));
    assert_near_the_processor(&gguf, &RandomModel::default().tokens(10, 7));
}

/// Some tokens of source code.
fn code(gguf: &Gguf) -> Vec<u32> {
    prompts("code", gguf).expect("prompts").swap_remove(0).ids
}

#[test]
fn rows_of_the_demo_do_not_depend_on_their_number() {
    if !wants_long_tests() {
        return println!("skipped: it runs with PACELINE_LONG_TESTS");
    }
    let gguf = open(&demo_q8_path());
    let tokens = code(&gguf);
    assert_rows_alike(&gguf, &tokens[..tokens.len().min(34)], &[1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 34]);
}

#[test]
fn strategies_leave_texts_of_the_demo_as_they_are() {
    if !wants_long_tests() {
        return println!("skipped: it runs with PACELINE_LONG_TESTS");
    }
    let gguf = open(&demo_q8_path());
    let ways: &[(&str, Drafters<'_>, bool)] = &[
        ("ngram", &[("ngram-adaptive", &[])], false),
        ("ngram", &[("ngram-adaptive", &[])], true),
        ("chain", &[("mtp-chain", &[("depth", "4")])], false),
        ("chain", &[("mtp-chain", &[("depth", "4")])], true),
        ("dflash", &[("dflash", &[])], true),
        ("ngram and chain", &[("ngram-adaptive", &[]), ("mtp-chain", &[])], true),
    ];
    let tokens = code(&gguf);
    let prompts = [tokens[..tokens.len().min(32)].to_vec()];
    assert_texts_alike(&gguf, ways, &Wish::greedy(&prompts, 64));
}

#[test]
fn the_demo_is_near_the_processor() {
    if !wants_long_tests() {
        return println!("skipped: it runs with PACELINE_LONG_TESTS");
    }
    let gguf = open(&demo_q8_path());
    let tokens = code(&gguf);
    assert_near_the_processor(&gguf, &tokens[..tokens.len().min(96)]);
}
