//! Faults at run time, on simulated devices: every request that meets one ends with an error that says what failed
//! and where; nothing is leaked; what can go on goes on.

use paceline_backend_sim::inventory;
use paceline_backend_sim::live::{self, LiveObjects};
use paceline_engine::{
    Engine, EngineError, EngineOptions, GenerationOptions, Model, Rows, Sampler, SamplerOptions, Want,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::graph::DType;
use paceline_registry::Registry;
use paceline_tests::engines::{bits, builtin_cpu, options};
use paceline_tests::random_model::RandomModel;
use paceline_tests::reference::Reference;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PROMPT: [u32; 11] = [5, 60, 7, 300, 9, 110, 11, 12, 253, 14, 15];
const TOKENS: usize = 8;
/// Launches of a request: the prompt in two, then one for every token but the first.
const LAUNCHES: usize = 9;

/// Live objects are counted in the whole process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sim() -> BackendClient {
    let registry = Registry::new().expect("built-in plugins enter");
    registry.backend(Some("sim")).expect("the simulated devices are linked in")
}

/// An engine of the tiny model on a device.
fn try_engine(
    backend: &BackendClient,
    device: u32,
    settings: &[(&str, &str)],
) -> Result<Engine, EngineError> {
    let model = Model::new(Arc::new(Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap()))?;
    let options = EngineOptions {
        device,
        context: Some(256),
        sequences: 2,
        microbatch: 8,
        outputs: 1,
        kv_types: [DType::F32; 2],
        ..options(settings)
    };
    Engine::new(model, backend, options, &mut |_, _| {})
}

fn engine(settings: &[(&str, &str)]) -> Engine {
    try_engine(&sim(), 0, settings).expect("the engine starts")
}

/// An error with all its causes.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// One request on a sequence of its own: the tokens, or the error.
fn request_with(engine: &mut Engine, sampling: SamplerOptions) -> Result<Vec<u32>, EngineError> {
    let mut sampler = Sampler::new(sampling, engine.model().shape().vocabulary as usize).unwrap();
    let sequence = engine.new_sequence().expect("earlier requests gave theirs back");
    let mut tokens = Vec::new();
    let mut on_token = |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    };
    let options = GenerationOptions { tokens: TOKENS, end_tokens: &[] };
    let ended = engine.generate(sequence, &PROMPT, &mut sampler, options, &mut |_| {}, &mut on_token);
    engine.end_sequence(sequence);
    ended.map(|_| tokens)
}

fn request(engine: &mut Engine) -> Result<Vec<u32>, EngineError> {
    request_with(engine, SamplerOptions::default())
}

/// The error of a request that fails.
fn failure(engine: &mut Engine) -> String {
    text(&request(engine).expect_err("the request meets the fault"))
}

/// What a request gives where nothing fails.
fn undisturbed() -> Vec<u32> {
    request(&mut engine(&[])).expect("nothing fails")
}

/// Nothing of the plugin is held any more, and the device has all its memory, as another client of it sees.
fn assert_all_is_freed() {
    assert_eq!(live::objects(), LiveObjects::default());
    let device = sim().open(0, &[]).unwrap();
    let memory = device.memory().unwrap();
    assert_eq!(memory.free, memory.total);
}

#[test]
fn greedy_text_is_that_of_float64_and_of_the_cpu_backend() {
    let _alone = alone();
    let reference = Reference::load(&Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap()).unwrap();
    let engines = [
        try_engine(&sim(), 0, &[]).unwrap(),
        try_engine(&sim(), 1, &[]).unwrap(),
        try_engine(&builtin_cpu(), 0, &[]).unwrap(),
    ];
    for mut engine in engines {
        let found = request(&mut engine).unwrap();
        assert_eq!(found.len(), TOKENS);
        // Each token is, up to near ties, the one that float64 has after the same text.
        let all = reference.trunk(&[&PROMPT[..], &found].concat()).logits;
        for (row, &token) in all[PROMPT.len() - 1..].iter().zip(&found) {
            let best = row.iter().copied().fold(f64::MIN, f64::max);
            assert!(
                best - row[token as usize] < 1e-3,
                "{token} is {} below the best",
                best - row[token as usize]
            );
        }
    }
    assert_all_is_freed();
}

#[test]
fn an_engine_holds_what_it_planned_and_frees_it() {
    let _alone = alone();
    let mut engine = engine(&[]);
    request(&mut engine).unwrap();
    let held = live::objects();
    assert_eq!(held.arena_bytes, engine.memory().total());
    assert_eq!(engine.counters().unwrap().arena_bytes, held.arena_bytes);
    assert!(held.executables > 0 && held.plans > 0 && held.semaphores > 0 && held.devices == 1, "{held:?}");
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn every_allocation_may_fail() {
    let _alone = alone();
    let arenas = {
        let _engine = engine(&[]);
        live::objects().arenas
    };
    assert_eq!(arenas, 5, "one per class");
    let mut errors = Vec::new();
    for number in 1..=arenas {
        let number = number.to_string();
        let error = try_engine(&sim(), 0, &[("fail_allocation", &number)]).err().expect("it fails");
        assert!(error.is_out_of_memory());
        errors.push(text(&error));
        assert_all_is_freed();
    }
    insta::assert_snapshot!(errors.join("\n"), @r"
    backend `sim`: allocating memory: sim:0 (rocm gfx906): allocation 1 (Weights, 2848256 bytes) failed, as `fail_allocation` asks
    backend `sim`: allocating memory: sim:0 (rocm gfx906): allocation 2 (Kv, 262208 bytes) failed, as `fail_allocation` asks
    backend `sim`: allocating memory: sim:0 (rocm gfx906): allocation 3 (State, 116736 bytes) failed, as `fail_allocation` asks
    backend `sim`: allocating memory: sim:0 (rocm gfx906): allocation 4 (Workspace, 64 bytes) failed, as `fail_allocation` asks
    backend `sim`: allocating memory: sim:0 (rocm gfx906): allocation 5 (Io, 2048 bytes) failed, as `fail_allocation` asks
    ");
    let beyond = (arenas + 1).to_string();
    assert_eq!(request(&mut engine(&[("fail_allocation", &beyond)])).unwrap(), undisturbed());
    assert_all_is_freed();
}

#[test]
fn memory_that_is_short_is_said_before_anything_is_allocated() {
    let _alone = alone();
    let needed = engine(&[]).memory().total();
    let enough = needed.to_string();
    assert_eq!(request(&mut engine(&[("memory", &enough)])).unwrap(), undisturbed());
    let error = try_engine(&sim(), 0, &[("memory", "1000000")]).err().expect("it is short");
    assert!(error.is_out_of_memory());
    insta::assert_snapshot!(text(&error), @"sim:0 has 976.6 KiB free, a context of 256 needs 3.1 MiB: 2.1 MiB short (weights 2.7 MiB, KV cache 256.1 KiB, recurrent state 114.0 KiB, workspace 64 B, parameters 256 B, results 1.8 KiB); the model does not fit at any context");
    assert_all_is_freed();
}

#[test]
fn a_lost_device_fails_every_request_and_others_go_on() {
    let _alone = alone();
    let expected = undisturbed();
    let after = (LAUNCHES + 3).to_string();
    let mut engine = engine(&[("lose_after", &after)]);
    assert_eq!(request(&mut engine).unwrap(), expected);
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: running a step: sim:0 (rocm gfx906) was lost after 12 launches; open it again, or use another device");
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: loading a step: sim:0 (rocm gfx906) was lost after 12 launches; open it again, or use another device");
    let again = request(&mut engine).unwrap_err();
    assert!(matches!(&again, EngineError::Backend { source, .. } if source.kind == ErrorKind::DeviceLost));

    // The other device, the same one opened anew, and another backend work beside it and after it.
    assert_eq!(request(&mut try_engine(&sim(), 1, &[]).unwrap()).unwrap(), expected);
    drop(engine);
    assert_all_is_freed();
    assert_eq!(undisturbed(), expected);
    assert_eq!(request(&mut try_engine(&builtin_cpu(), 0, &[]).unwrap()).unwrap(), expected);
    assert_all_is_freed();
}

#[test]
fn a_device_that_is_lost_in_a_request_fails_it() {
    let _alone = alone();
    for launches in 1..LAUNCHES {
        let launches = launches.to_string();
        let mut engine = engine(&[("lose_after", &launches)]);
        let error = failure(&mut engine);
        assert!(error.starts_with("backend `sim`: running a step: sim:0 (rocm gfx906) was lost"), "{error}");
        drop(engine);
        assert_all_is_freed();
    }
}

#[test]
fn values_that_are_no_numbers_end_the_request_and_not_the_engine() {
    let _alone = alone();
    let expected = undisturbed();
    // The fourth launch is that of the second generated token.
    let mut engine = engine(&[("nan_after", "4"), ("nan_launches", "1")]);
    insta::assert_snapshot!(failure(&mut engine), @"the model gave values that are not numbers at position 12; the file may be damaged");
    assert_eq!(request(&mut engine).unwrap(), expected);
    drop(engine);

    let sampling = || SamplerOptions { temperature: 0.7, ..SamplerOptions::default() };
    let mut engine = self::engine(&[("nan_after", "4"), ("nan_launches", "1")]);
    let error = request_with(&mut engine, sampling()).unwrap_err();
    insta::assert_snapshot!(text(&error), @"the model gave values that are not numbers at position 12; the file may be damaged");
    request_with(&mut engine, sampling()).unwrap();
    drop(engine);

    // The second launch holds the rest of the prompt; its last row is meant.
    let mut engine = self::engine(&[("nan_after", "2"), ("nan_launches", "1")]);
    insta::assert_snapshot!(failure(&mut engine), @"the model gave values that are not numbers at position 10; the file may be damaged");
    drop(engine);

    // A device that goes on giving them fails every request.
    let mut engine = self::engine(&[("nan_after", "1")]);
    for _ in 0..3 {
        assert!(matches!(request(&mut engine), Err(EngineError::NotFinite { .. })));
    }
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn a_panic_of_a_launch_ends_the_request_and_not_the_engine() {
    let _alone = alone();
    let expected = undisturbed();
    let mut engine = engine(&[("panic_in", "launch")]);
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: running a step: the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `launch`");
    assert_eq!(request(&mut engine).unwrap(), expected);
    assert_eq!(request(&mut engine).unwrap(), expected);
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn a_panic_of_a_worker_ends_the_request_and_not_the_engine() {
    let _alone = alone();
    let expected = undisturbed();
    let mut engine = engine(&[("panic_in", "worker")]);
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: running a step: the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `worker`");
    assert_eq!(request(&mut engine).unwrap(), expected);
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn a_panic_at_any_launch_of_a_request_leaves_the_next_one_right() {
    let _alone = alone();
    let expected = undisturbed();
    for place in ["launch", "worker"] {
        for passes in 0..LAUNCHES {
            let mut engine = engine(&[("panic_in", place), ("panic_after", &passes.to_string())]);
            let error = failure(&mut engine);
            assert!(error.starts_with("backend `sim`: running a step: the plugin panicked"), "{error}");
            assert_eq!(request(&mut engine).unwrap(), expected, "{place}, after {passes} launches");
            drop(engine);
            assert_all_is_freed();
        }
    }
}

#[test]
fn a_failed_request_leaves_other_sequences_alone() {
    let _alone = alone();
    let logits = |engine: &mut Engine, sequence, tokens: &[u32]| {
        let rows = [Rows { sequence, tokens, outputs: 1 }];
        engine.run(&rows, Want::Logits).map(|outputs| bits(outputs.logits(0).unwrap()))
    };
    let (before, after) = PROMPT[..10].split_at(5);
    let mut engine = engine(&[]);
    let sequence = engine.new_sequence().unwrap();
    logits(&mut engine, sequence, before).unwrap();
    let expected = logits(&mut engine, sequence, after).unwrap();

    // The second launch of the device is the first of the request in between, which enters a block of its own.
    for fault in [["panic_in", "launch"], ["panic_in", "worker"]] {
        let mut engine = self::engine(&[(fault[0], fault[1]), ("panic_after", "1")]);
        let sequence = engine.new_sequence().unwrap();
        logits(&mut engine, sequence, before).unwrap();
        request(&mut engine).unwrap_err();
        assert_eq!(logits(&mut engine, sequence, after).unwrap(), expected, "{fault:?}");
        assert_eq!(request(&mut engine).unwrap(), undisturbed());
    }
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn a_failed_run_may_be_followed_by_the_end_of_its_sequence_or_by_another_try() {
    let _alone = alone();
    let mut engine = engine(&[("panic_in", "launch")]);
    let sequence = engine.new_sequence().unwrap();
    let run = |engine: &mut Engine| {
        let rows = [Rows { sequence, tokens: &PROMPT[..8], outputs: 1 }];
        engine.run(&rows, Want::Logits).map(|outputs| bits(outputs.logits(0).unwrap()))
    };
    run(&mut engine).unwrap_err();
    assert_eq!(engine.sequence_length(sequence), 0, "a run that failed adds nothing");
    let again = run(&mut engine).unwrap();
    engine.clear_sequence(sequence);
    assert_eq!(run(&mut engine).unwrap(), again);
    drop(engine);
    assert_all_is_freed();
}

#[test]
fn a_panic_of_the_device_itself_leaves_clean_errors() {
    let _alone = alone();
    let mut engine = engine(&[("panic_in", "load")]);
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: loading a step: the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `load`");
    insta::assert_snapshot!(failure(&mut engine), @"backend `sim`: loading a step: an earlier panic made this handle unusable");
    drop(engine);
    assert_all_is_freed();

    let error = try_engine(&sim(), 0, &[("panic_in", "import")]).err().expect("it fails");
    insta::assert_snapshot!(text(&error), @"backend `sim`: importing weights: the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `import`");
    assert_all_is_freed();
    undisturbed();
}

#[test]
fn slow_launches_are_waited_for() {
    let _alone = alone();
    assert_eq!(request(&mut engine(&[("slow_launch_ms", "5")])).unwrap(), undisturbed());
    assert_all_is_freed();
}

/// What an engine says in a process with another inventory.
fn with_inventory(text: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env(inventory::VARIABLE, text)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = output.lines().find_map(|line| line.split_once("said: "));
    said.map_or_else(|| panic!("{output}"), |(_, text)| text.to_owned())
}

#[test]
#[ignore = "a part of the test below, which starts it with an inventory"]
fn in_a_process_of_its_own() {
    match try_engine(&sim(), 0, &[]).map(|mut engine| request(&mut engine)) {
        Ok(tokens) => println!("said: {} tokens", tokens.unwrap().len()),
        Err(error) => println!("said: {}", text(&error)),
    }
    assert_eq!(live::objects(), LiveObjects::default());
}

#[test]
fn inventories_decide_what_devices_there_are_and_lack() {
    insta::assert_snapshot!(with_inventory("sycl:xe-hpg:1GiB"), @"8 tokens");
    insta::assert_snapshot!(with_inventory("sycl:xe-hpg:1GiB:without=gated_delta_net"), @"model in memory: backend `sim` cannot run it: gated_delta_net: the simulated device has no `gated_delta_net`");
    insta::assert_snapshot!(with_inventory("sycl:xe-hpg:64KiB"), @"sim:0 has 64.0 KiB free, a context of 256 needs 3.1 MiB: 3.0 MiB short (weights 2.7 MiB, KV cache 256.1 KiB, recurrent state 114.0 KiB, workspace 64 B, parameters 256 B, results 1.8 KiB); the model does not fit at any context");
    insta::assert_snapshot!(with_inventory("sycl:xe-hpg"), @"backend `sim`: listing its devices: PACELINE_SIM_DEVICES: entry `sycl:xe-hpg` is malformed: it has 2 parts; write kind:arch:memory[:without=OPERATION], such as rocm:gfx906:32GiB,cuda:sm_90:80GiB");
    insta::assert_snapshot!(with_inventory(""), @"backend `sim` has no device 0");
}
