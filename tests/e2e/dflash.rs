//! The strategy dflash: its drafts are those of the float64 reference, and texts are what they are without it.

use paceline_engine::{
    Acceptance, DrafterOptions, Engine, EngineError, EngineOptions, GenerationOptions, Model, Sampler, SamplerOptions,
    SequenceId, StrategyOptions, Task,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::strategy::{Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session};
use paceline_plugin_api::{PluginInfo, Result, abi, drafter_plugin};
use paceline_strategy_dflash::Dflash;
use paceline_strategy_gdn_replay as _;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::reference::argmax;
use paceline_tests::strategies::{drafter, engine, open, rollback};
use paceline_tests::test_models::TopLogits;
use paceline_tests::{
    DrafterReference, RandomDrafter, RandomModel, Reference, demo_drafter_q8_path, demo_q8_path, reference_logits,
    test_models_or_skip,
};
use paceline_text::{Tokenizer, TokenizerSource};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

// A drafter that writes down what dflash proposes.

const RECORDER: PluginInfo = PluginInfo {
    id: "dflash-recorded",
    version: "0.1.0",
    kind: abi::kind::STRATEGY,
    descriptor: "id = \"dflash-recorded\"\nkind = \"strategy\"\nversion = \"0.1.0\"\nabi = { oldest = \"1.0\", built = \
                 \"1.0\" }\nlicense = \"MIT OR Apache-2.0\"\nsummary = \"For tests.\"\nneeds = []\n",
};

/// A proposal.
#[derive(Clone, Debug)]
struct Proposal {
    /// Which engine it was made on.
    log: String,
    frontier: usize,
    anchor: u32,
    tokens: Vec<u32>,
}

static PROPOSALS: Mutex<Vec<Proposal>> = Mutex::new(Vec::new());

/// The plugin: dflash with two more settings, `log`, which marks its proposals, and `anchor`, which it takes instead of
/// any other.
struct Recorder;

struct Recording {
    inner: <Dflash as DrafterPlugin>::Drafter,
    log: String,
    anchor: Option<u32>,
}

impl DrafterPlugin for Recorder {
    type Drafter = Recording;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Recording> {
        let (own, rest): (Vec<_>, Vec<_>) =
            settings.iter().cloned().partition(|(key, _)| key == "log" || key == "anchor");
        let own = |wanted: &str| own.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone());
        Ok(Recording {
            inner: Dflash.create(facts, &rest, session)?,
            log: own("log").unwrap_or_default(),
            anchor: own("anchor").map(|anchor| anchor.parse().unwrap()),
        })
    }
}

impl Drafter for Recording {
    fn info(&self) -> DrafterInfo {
        self.inner.info()
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.inner.begin(sequence)
    }

    fn observe(&mut self, session: &mut dyn Session, sequence: u32, position: u32, tokens: &[u32]) -> Result<()> {
        self.inner.observe(session, sequence, position, tokens)
    }

    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let request = Request { anchor: self.anchor.unwrap_or(request.anchor), ..request };
        let (mut tokens, mut confidence) = (vec![0; draft.most()], vec![0.0; draft.most()]);
        let mut own = Draft::new(&mut tokens, &mut confidence, None);
        self.inner.propose(session, request, &mut own)?;
        let count = own.len();
        tokens.truncate(count);
        tokens.iter().for_each(|&token| draft.push(token, f32::NAN));
        PROPOSALS.lock().unwrap().push(Proposal {
            log: self.log.clone(),
            frontier: request.frontier as usize,
            anchor: request.anchor,
            tokens,
        });
        Ok(())
    }

    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        self.inner.resolve(outcome)
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.inner.truncate(sequence, length)
    }
}

drafter_plugin!(RECORDER, Recorder, Recorder);

/// The proposals of an engine whose `log` is this one.
fn proposals(log: &str) -> Vec<Proposal> {
    PROPOSALS.lock().unwrap().iter().filter(|proposal| proposal.log == log).cloned().collect()
}

// Allocations of the thread that runs the engine.

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

// Engines and texts.

/// Drafts are made whether they pay or not.
fn with_drafters(drafters: Vec<DrafterOptions>, draft: Option<Arc<Gguf>>) -> StrategyOptions {
    StrategyOptions {
        drafters,
        draft,
        rollback: Some(rollback("gdn-replay")),
        controller: false,
        ..StrategyOptions::default()
    }
}

fn dflash_engine(files: &[Arc<Gguf>; 2], options: EngineOptions, plugin: &str, settings: &[(&str, &str)]) -> Engine {
    let [target, draft] = files.clone();
    engine(target, &builtin_cpu(), options, &with_drafters(vec![drafter(plugin, settings)], Some(draft)))
}

fn plain_engine(target: &Arc<Gguf>, options: EngineOptions) -> Engine {
    engine(target.clone(), &builtin_cpu(), options, &StrategyOptions::default())
}

fn demo() -> [Arc<Gguf>; 2] {
    [open(&demo_q8_path()), open(&demo_drafter_q8_path())]
}

fn random(target: &RandomModel, draft: &RandomDrafter) -> [Arc<Gguf>; 2] {
    [target.to_bytes(), draft.to_bytes()].map(|bytes| Arc::new(Gguf::from_bytes(bytes).unwrap()))
}

/// Caches in f32, so that nothing but sums differs from the reference.
fn exact() -> EngineOptions {
    EngineOptions { kv_types: [DType::F32; 2], ..EngineOptions::default() }
}

fn greedy() -> SamplerOptions {
    SamplerOptions::default()
}

fn warm() -> SamplerOptions {
    SamplerOptions { temperature: 0.7, top_p: 0.9, seed: 11, ..SamplerOptions::default() }
}

/// Continues a sequence by `tokens` tokens.
fn continue_text(
    engine: &mut Engine,
    sequence: SequenceId,
    prompt: &[u32],
    sampling: SamplerOptions,
    tokens: usize,
) -> Vec<u32> {
    let vocabulary = engine.model().shape().vocabulary as usize;
    let mut sampler = Sampler::new(sampling, vocabulary).unwrap();
    let mut text = Vec::new();
    let options = GenerationOptions { tokens, end_tokens: &[] };
    engine
        .generate(sequence, prompt, &mut sampler, options, &mut |_| {}, &mut |token| {
            text.push(token);
            ControlFlow::Continue(())
        })
        .unwrap();
    for drafter in engine.speculation_report().drafters {
        assert_eq!(drafter.disabled, None, "{}", drafter.plugin);
    }
    text
}

/// A text of its own.
fn text(engine: &mut Engine, prompt: &[u32], sampling: SamplerOptions, tokens: usize) -> Vec<u32> {
    let sequence = engine.new_sequence().unwrap();
    let text = continue_text(engine, sequence, prompt, sampling, tokens);
    engine.end_sequence(sequence);
    text
}

/// Compares the proposals of a log whose numbers are `every`-th with the reference on the text that the target saw;
/// tokens count where the reference's two best logits are further apart than `margin`. Gives how many were compared.
fn compare(
    log: &str,
    references: &(Reference, DrafterReference),
    tokens: &[u32],
    margin: f64,
    every: usize,
) -> usize {
    let (target, drafter) = references;
    let features = drafter.features(&target.trunk(tokens));
    let mut compared = 0;
    for proposal in proposals(log).iter().step_by(every) {
        let Proposal { frontier, anchor, tokens: drafted, .. } = proposal;
        assert!(!drafted.is_empty(), "no draft at {frontier}");
        let block = drafter.block_tokens(*anchor, drafted.len());
        let logits = drafter.block(target, &features[..*frontier], &block);
        for (row, (token, logits)) in drafted.iter().zip(&logits[1..]).enumerate() {
            let best = argmax(logits);
            let mut others = logits.clone();
            others[best as usize] = f64::NEG_INFINITY;
            let distance = logits[best as usize] - others[argmax(&others) as usize];
            if distance > margin {
                assert_eq!(*token, best, "{log}: row {row} of the draft at {frontier}, {distance}");
                compared += 1;
            }
        }
    }
    compared
}

fn references([target, draft]: &[Arc<Gguf>; 2]) -> (Reference, DrafterReference) {
    (Reference::load(target).unwrap(), DrafterReference::load(draft).unwrap())
}

/// The recorded blocks of a pair of files: tokens whose logits are further apart than `margin` must be the same. Gives
/// how many were compared.
fn assert_recorded_blocks(name: &str, files: &[Arc<Gguf>; 2], margin: f64) -> usize {
    let mut compared = 0;
    for prompt in reference_logits().unwrap().prompts {
        let (last, before) = prompt.ids.split_last().unwrap();
        let start = &prompt.from_last_prompt_token;
        let blocks: [(&[u32], u32, &[u32], &[TopLogits]); 2] = [
            (&prompt.ids, prompt.dflash.id_last, &prompt.dflash.drafts, &prompt.dflash.top20_rows_1_to_7),
            (before, *last, &start.dflash_drafts, &start.dflash_top20),
        ];
        for (tokens, anchor, drafts, top) in blocks {
            let log = format!("{name} {} {}", prompt.name, tokens.len());
            let settings = [("depth", "7"), ("log", &log), ("anchor", &anchor.to_string())];
            let mut engine = dflash_engine(files, exact(), "dflash-recorded", &settings);
            // One more than the block after the token that the prompt gives.
            text(&mut engine, tokens, greedy(), 9);
            let first = &proposals(&log)[0];
            assert_eq!((first.frontier, first.anchor, first.tokens.len()), (tokens.len(), anchor, 7));
            for (row, (token, expected)) in first.tokens.iter().zip(drafts).enumerate() {
                let distance = top[row].logits[0] - top[row].logits[1];
                if distance > margin {
                    assert_eq!(token, expected, "{log}: row {row}, {distance}");
                    compared += 1;
                }
            }
        }
    }
    compared
}

#[test]
fn blocks_of_the_demo_are_the_recorded_ones() {
    let compared = assert_recorded_blocks("q8", &demo(), 0.15);
    assert!(compared >= 20, "{compared}");
}

#[test]
fn blocks_of_the_f16_files_are_the_recorded_ones() {
    let directory = test_models_or_skip!();
    let files = ["demo-qwen35-F16.gguf", "demo-dflash-F16.gguf"].map(|name| open(&directory.join(name)));
    assert_eq!(assert_recorded_blocks("f16", &files, 0.0), 3 * 2 * 7);
}

#[test]
fn drafts_of_the_demo_follow_the_reference_through_a_text() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0];
    let settings = [("depth", "7"), ("log", "demo text")];
    let mut engine = dflash_engine(&files, EngineOptions::default(), "dflash-recorded", &settings);
    let generated = text(&mut engine, &prompt.ids, greedy(), 64);
    let accepted = engine.speculation_report().accepted();
    assert!(accepted > 20, "{accepted} accepted");
    let tokens = [prompt.ids.as_slice(), &generated].concat();
    let compared = compare("demo text", &references(&files), &tokens, 0.15, 1);
    assert!(compared > 20, "{compared}");
}

/// Random drafters that differ in one thing each.
fn drafters(target: &RandomModel) -> Vec<(&'static str, RandomDrafter)> {
    let plain = || RandomDrafter::for_target(target);
    vec![
        ("plain", plain()),
        ("own-vocabulary", RandomDrafter { own_vocabulary: true, ..plain() }),
        ("causal", RandomDrafter { causal: true, ..plain() }),
        ("sliding", RandomDrafter { sliding: Some((24, vec![true, false])), ..plain() }),
        ("all-slide", RandomDrafter { sliding: Some((9, vec![true, true])), ..plain() }),
        ("last-input", RandomDrafter { target_layers: vec![target.layers, 0, 2], ..plain() }),
        ("one-feature", RandomDrafter { target_layers: vec![3], ..plain() }),
    ]
}

#[test]
fn drafts_of_random_drafters_are_those_of_the_reference() {
    let target = RandomModel::default();
    for (name, draft) in drafters(&target) {
        let files = random(&target, &draft);
        for depth in ["1", "5", "15"] {
            let log = format!("random {name} {depth}");
            let settings = [("depth", depth), ("log", &log)];
            let mut engine = dflash_engine(&files, exact(), "dflash-recorded", &settings);
            let prompt = target.tokens(40, 5);
            let sequence = engine.new_sequence().unwrap();
            let first = continue_text(&mut engine, sequence, &prompt, warm(), 30);
            // A last token is not processed; what is behind 65 positions is taken back.
            engine.roll_back(sequence, engine.sequence_length(sequence) - 68).unwrap();
            let mut tokens = [prompt.as_slice(), &first].concat();
            tokens.truncate(68);
            let before = proposals(&log).len();
            let more = target.tokens(3, 8);
            let second = continue_text(&mut engine, sequence, &more, warm(), 20);
            tokens.extend(more.iter().chain(&second));
            // What was proposed before the text was taken back, on the same text as far as it goes.
            assert!(proposals(&log).len() > before + 1);
            let compared = compare(&log, &references(&files), &tokens, 1e-3, 1);
            assert!(compared > 30, "{log}: {compared}");
        }
    }
}

#[test]
fn a_ring_forgets_what_is_further_back_and_nothing_else() {
    let target = RandomModel::default();
    let draft = RandomDrafter { layers: 3, ..RandomDrafter::for_target(&target) };
    let files = random(&target, &draft);
    // The ring has 3 blocks; prompts are longer than that, in microbatches shorter and longer than the ring.
    for (microbatch, length) in [(64, 900), (1024, 1100)] {
        let log = format!("ring {microbatch}");
        let options = EngineOptions { microbatch, context: Some(2048), ..exact() };
        let settings = [("depth", "5"), ("context", "50"), ("log", &log)];
        let mut engine = dflash_engine(&files, options, "dflash-recorded", &settings);
        let prompt = target.tokens(length, 5);
        let generated = text(&mut engine, &prompt, warm(), 700);
        assert!(engine.speculation_report().drafters[0].drafts > 300);
        let tokens = [prompt.as_slice(), &generated].concat();
        let (reference, drafter) = references(&files);
        let compared = compare(&log, &(reference, drafter.looking_back(50)), &tokens, 1e-3, 40);
        assert!(compared > 40, "{compared}");
    }
}

#[test]
fn texts_of_the_demo_are_those_without_a_strategy() {
    let files = demo();
    let mut plain = plain_engine(&files[0], EngineOptions::default());
    let prompts = reference_logits().unwrap().prompts;
    for settings in [&[("depth", "7")][..], &[], &[("depth", "3"), ("context", "20")]] {
        let mut drafting = dflash_engine(&files, EngineOptions::default(), "dflash", settings);
        for prompt in &prompts {
            for sampling in [greedy(), warm()] {
                let expected = text(&mut plain, &prompt.ids, sampling.clone(), 120);
                assert_eq!(
                    text(&mut drafting, &prompt.ids, sampling.clone(), 120),
                    expected,
                    "{} {settings:?} at {}",
                    prompt.name,
                    sampling.temperature
                );
            }
        }
        let report = drafting.speculation_report();
        assert!(report.accepted() > 50, "{settings:?}: {}", report.accepted());
    }
}

#[test]
fn a_long_text_over_a_small_ring_is_that_without_a_strategy() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0].ids;
    let options = EngineOptions { context: Some(2048), ..EngineOptions::default() };
    let expected = text(&mut plain_engine(&files[0], options.clone()), prompt, warm(), 1700);
    let mut drafting = dflash_engine(&files, options, "dflash", &[("depth", "7"), ("context", "60")]);
    assert_eq!(text(&mut drafting, prompt, warm(), 1700), expected);
    let report = drafting.speculation_report();
    let [first, last] = [report.drafters[0].positions[0], report.drafters[0].positions[6]];
    println!("accepted of the first {first:?}, of the last {last:?}");
    assert!(first[1] * 2 > first[0], "{first:?}");
}

#[test]
fn sequences_do_not_see_each_other() {
    let files = demo();
    let prompts: Vec<Vec<u32>> = reference_logits().unwrap().prompts.into_iter().map(|p| p.ids).collect();
    let options = || EngineOptions { sequences: 2, ..EngineOptions::default() };
    for sampling in [greedy(), warm()] {
        let mut plain = plain_engine(&files[0], options());
        let expected: Vec<Vec<u32>> =
            prompts[..2].iter().map(|prompt| text(&mut plain, prompt, sampling.clone(), 90)).collect();
        for context in ["0", "40"] {
            let settings = [("depth", "6"), ("context", context)];
            let mut drafting = dflash_engine(&files, options(), "dflash", &settings);
            let mut samplers = [(); 2].map(|()| Sampler::new(sampling.clone(), 8192).unwrap());
            let sequences = [(); 2].map(|()| drafting.new_sequence().unwrap());
            let mut tasks: Vec<Task<'_>> = samplers
                .iter_mut()
                .zip(&prompts)
                .zip(sequences)
                .map(|((sampler, prompt), sequence)| Task {
                    sequence,
                    prompt,
                    sampler,
                    options: GenerationOptions { tokens: 90, end_tokens: &[] },
                })
                .collect();
            let mut texts = vec![Vec::new(); 2];
            drafting
                .generate_all(&mut tasks, &mut |index, token| {
                    texts[index].push(token);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(texts, expected);
            assert!(drafting.speculation_report().accepted() > 20);
        }
    }
}

#[test]
fn a_round_is_one_launch_of_the_drafter_and_allocates_nothing() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0].ids;
    let mut engine = dflash_engine(&files, EngineOptions::default(), "dflash", &[("depth", "7")]);
    // Executables are bound when they are first used.
    text(&mut engine, prompt, greedy(), 300);
    engine.clear_speculation_report();
    let sequence = engine.new_sequence().unwrap();
    let mut sampler = Sampler::new(greedy(), 8192).unwrap();
    let options = GenerationOptions { tokens: 300, end_tokens: &[] };
    let (mut count, mut begin, mut end) = (0, 0, 0);
    engine
        .generate(sequence, prompt, &mut sampler, options, &mut |_| {}, &mut |_| {
            count += 1;
            match count {
                20 => begin = ALLOCATIONS.get(),
                280 => end = ALLOCATIONS.get(),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(end - begin, 0);
    let report = engine.speculation_report();
    assert_eq!(report.strategy_runs.launches, report.drafters[0].drafts);
    assert_eq!(report.strategy_runs.uploads, report.strategy_runs.launches);
}

/// What is said where the strategy cannot work.
fn refusal(target: Arc<Gguf>, draft: Option<Arc<Gguf>>) -> String {
    let strategies = with_drafters(vec![drafter("dflash", &[])], draft);
    let model = Model::new(target).unwrap();
    match Engine::with_strategies(model, &builtin_cpu(), EngineOptions::default(), &strategies, &mut |_, _| {}) {
        Err(EngineError::StrategyRefused { source, .. }) => source.message,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it works"),
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let [target, draft] = demo();
    assert!(refusal(target.clone(), None).contains("give the drafter's file with --draft"));
    assert!(refusal(target.clone(), Some(target.clone())).contains("`qwen35`"));
    let small = RandomModel::default();
    let others = random(&small, &RandomDrafter::for_target(&small));
    let message = refusal(target, Some(others[1].clone()));
    assert!(message.contains("`dflash.embedding_length` is 128") && message.contains("512"), "{message}");
    assert!(refusal(others[0].clone(), Some(draft)).contains("`dflash.embedding_length` is 512"));
}

fn tokenizer(file: &Gguf) -> Tokenizer {
    let text = |key: &str| Some(file.require_str(&format!("tokenizer.ggml.{key}")).unwrap().to_owned());
    let list = |key: &str| {
        file.require_array_str(&format!("tokenizer.ggml.{key}")).unwrap().map(str::to_owned).collect()
    };
    Tokenizer::new(&TokenizerSource {
        model: text("model"),
        pre: text("pre"),
        tokens: list("tokens"),
        token_types: file.require_array_i32("tokenizer.ggml.token_type").unwrap().collect(),
        merges: list("merges"),
        ..TokenizerSource::default()
    })
    .unwrap()
}

#[test]
#[ignore = "a measurement"]
fn acceptance_on_code() {
    let files = demo();
    let tokenizer = tokenizer(&files[0]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/prompts/code.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let prompts: Vec<Vec<u32>> = lines
        .lines()
        .map(|line| {
            let prompt: serde_json::Value = serde_json::from_str(line).unwrap();
            tokenizer.encode(prompt["text"].as_str().unwrap(), Default::default()).unwrap()
        })
        .collect();
    assert_eq!(StrategyOptions::default().acceptance, Acceptance::Agree);
    for sampling in [greedy(), warm()] {
        let mut plain = plain_engine(&files[0], EngineOptions::default());
        let mut drafting = dflash_engine(&files, EngineOptions::default(), "dflash", &[("depth", "7")]);
        for prompt in &prompts {
            let expected = text(&mut plain, prompt, sampling.clone(), 160);
            assert_eq!(text(&mut drafting, prompt, sampling.clone(), 160), expected);
        }
        let report = drafting.speculation_report();
        println!(
            "temperature {}: {:.2} tokens a round, {:.3} of 7 accepted, {} of {} rounds off, {:?} {}",
            sampling.temperature,
            report.mean_length(),
            report.acceptance().unwrap(),
            report.rounds_off,
            report.rounds,
            report.time,
            report.drafters[0].explanation
        );
    }
}
