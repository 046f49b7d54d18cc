//! What `mtp-chain` guesses: as recorded for the demo, the same in all of its forms, and mostly right.
//!
//! The host does not show drafts, so a drafter of this test stands around the real one and writes them down.

use paceline_engine::{Engine, EngineOptions, StrategyOptions};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session,
};
use paceline_plugin_api::{PluginInfo, Result, abi, drafter_plugin};
use paceline_strategy_gdn_replay as _;
use paceline_strategy_mtp_chain::MtpChain;
use paceline_tests::engines::{builtin_cpu, options};
use paceline_tests::prompts::prompts;
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{engine, open, strategies};
use paceline_tests::test_models::{TopLogits, demo_q8_path, reference_logits};
use paceline_tests::test_models_or_skip;
use paceline_tests::texts::{Wish, generate_alone};
use std::path::Path;
use std::sync::{Arc, Mutex};

const INFO: PluginInfo = PluginInfo {
    id: "recorder",
    version: "0.1.0",
    kind: abi::kind::STRATEGY,
    descriptor: r#"
id = "recorder"
kind = "strategy"
version = "0.1.0"
abi = { oldest = "1.0", built = "1.0" }
license = "MIT"
summary = "Writes down what mtp-chain drafts."
needs = []
"#,
};

/// Drafts since the last look.
static DRAFTS: Mutex<Vec<Vec<u32>>> = Mutex::new(Vec::new());
/// Tests that look at them run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Recorder;

struct Recording {
    inner: <MtpChain as DrafterPlugin>::Drafter,
    /// The first draft follows this token instead of the anchor.
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
        let (mine, others): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|(key, _)| key == "anchor");
        let anchor = mine.first().and_then(|(_, value)| value.parse().ok());
        Ok(Recording { inner: MtpChain.create(facts, &others, session)?, anchor })
    }
}

impl Drafter for Recording {
    fn info(&self) -> DrafterInfo {
        self.inner.info()
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.inner.begin(sequence)
    }

    fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()> {
        self.inner.observe(session, sequence, position, tokens)
    }

    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let request = Request { anchor: self.anchor.take().unwrap_or(request.anchor), ..request };
        let (mut tokens, mut confidence) = ([0; 16], [0.0; 16]);
        let most = request.most as usize;
        let mut own = Draft::new(&mut tokens[..most], &mut confidence[..most], None);
        self.inner.propose(session, request, &mut own)?;
        let count = own.len();
        (0..count).for_each(|index| draft.push(tokens[index], confidence[index]));
        DRAFTS.lock().expect("no test failed").push(tokens[..count].to_vec());
        Ok(())
    }

    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        self.inner.resolve(outcome)
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.inner.truncate(sequence, length)
    }
}

drafter_plugin!(INFO, Recorder, Recorder);

fn with(gguf: &Arc<Gguf>, kv_type: DType, settings: &[(&str, &str)]) -> Engine {
    let options = EngineOptions { kv_types: [kv_type; 2], context: Some(1024), ..options(&[]) };
    engine(gguf.clone(), &builtin_cpu(), options, &strategies(&[("recorder", settings)], true))
}

/// The drafts of a greedy text behind a prompt.
fn drafts(engine: &mut Engine, prompt: &[u32], tokens: usize) -> Vec<Vec<u32>> {
    DRAFTS.lock().expect("no test failed").clear();
    generate_alone(engine, &Wish::greedy(&[prompt.to_vec()], tokens));
    std::mem::take(&mut *DRAFTS.lock().expect("no test failed"))
}

/// Drafts equal recorded ones, up to the first that two tokens are nearly tied for.
fn assert_recorded(name: &str, found: &[u32], recorded: &[u32], tops: &[TopLogits], margin: f64) -> usize {
    assert_eq!((found.len(), recorded.len()), (4, 4), "{name}");
    for (step, ((found, recorded), top)) in found.iter().zip(recorded).zip(tops).enumerate() {
        let lead = top.logits[0] - top.logits[1];
        if found != recorded {
            assert!(
                lead <= margin,
                "{name}, step {step}: {found}, recorded is {recorded} with a lead of {lead}"
            );
            return step;
        }
    }
    4
}

/// Both recorded chains of every prompt; gives how many of their tokens were compared.
fn compare_with_recorded(path: &Path, kv_type: DType, margin: f64) -> usize {
    let gguf = open(path);
    let mut compared = 0;
    for form in ["chain", "loop"] {
        let mut after_prompt = with(&gguf, kv_type, &[("depth", "4"), ("form", form)]);
        for prompt in reference_logits().unwrap().prompts {
            let chain = &prompt.mtp_chain;
            let found = drafts(&mut after_prompt, &prompt.ids, 6);
            let name = format!("{} by {form}", prompt.name);
            compared += assert_recorded(&name, &found[0], &chain.drafts, &chain.top20, margin);

            let (last, before) = prompt.ids.split_last().unwrap();
            let settings = [("depth", "4"), ("form", form), ("anchor", &last.to_string())];
            let found = drafts(&mut with(&gguf, kv_type, &settings), before, 6);
            let recorded = &prompt.from_last_prompt_token;
            let name = format!("{name}, from the last token of the prompt");
            compared += assert_recorded(&name, &found[0], &recorded.mtp_drafts, &recorded.mtp_top20, margin);
        }
    }
    compared
}

#[test]
fn drafts_of_the_demo_in_f16_are_those_recorded() {
    let _guard = ONE_AT_A_TIME.lock();
    let models = test_models_or_skip!();
    assert_eq!(compare_with_recorded(&models.join("demo-qwen35-F16.gguf"), DType::F32, 0.0), 2 * 3 * 2 * 4);
}

#[test]
fn drafts_of_the_demo_in_q8_0_are_those_recorded_but_for_near_ties() {
    let _guard = ONE_AT_A_TIME.lock();
    let compared = compare_with_recorded(&demo_q8_path(), DType::F16, 0.15);
    println!("{compared} of 48 tokens compared");
    assert!(compared >= 40, "{compared}");
}

/// A prompt that is longer than a microbatch and not a multiple of it, on a model whose drafts are hard to guess.
#[test]
fn forms_and_prompt_passes_draft_the_same() {
    let _guard = ONE_AT_A_TIME.lock();
    let model = RandomModel { weights: DType::Q8_0.into(), ..RandomModel::wide() };
    let random = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
    let demo = open(&demo_q8_path());
    let subjects = [(&random, model.tokens(530, 8)), (&demo, prompts("code", &demo).unwrap().remove(0).ids)];
    for (gguf, prompt) in subjects {
        let settings: [&[(&str, &str)]; 4] = [
            &[("depth", "5")],
            &[("depth", "5"), ("kv_only", "false")],
            &[("depth", "5"), ("form", "loop")],
            &[("depth", "5"), ("form", "loop"), ("kv_only", "false")],
        ];
        let found = settings.map(|settings| drafts(&mut with(gguf, DType::F16, settings), &prompt, 60));
        assert!(found[0].len() >= 10 && found[0].iter().all(|draft| !draft.is_empty()));
        for (settings, other) in settings.iter().zip(&found).skip(1) {
            assert_eq!(*other, found[0], "{settings:?}");
        }
    }
}

/// The whole state of a chain: its drafts behind a text do not depend on how the text came about, even if the token
/// that the first one followed did not become part of it.
#[test]
fn drafts_do_not_depend_on_what_was_drafted_before() {
    let _guard = ONE_AT_A_TIME.lock();
    let demo = open(&demo_q8_path());
    let prompt = prompts("code", &demo).unwrap().remove(1).ids;
    let mut fresh = with(&demo, DType::F16, &[("depth", "4")]);
    let text = generate_alone(&mut fresh, &Wish::greedy(std::slice::from_ref(&prompt), 60)).remove(0).tokens;
    let another = (text[0] ^ 1).to_string();
    for (settings, tokens) in [(&[("depth", "4")][..], 60), (&[("depth", "4"), ("anchor", &another)], 20)] {
        let all = drafts(&mut with(&demo, DType::F16, settings), &prompt, tokens);
        // A draft begins behind every token that a round ended with.
        let mut position = 0;
        for (number, draft) in all.iter().enumerate() {
            let known = [&prompt[..], &text[..position]].concat();
            let expected = drafts(&mut fresh, &known, tokens - position).swap_remove(0);
            let misled = number == 0 && settings.len() > 1;
            assert!(misled || *draft == expected, "behind {position} tokens: {draft:?}, {expected:?}");
            let accepted = draft.iter().zip(&text[position + 1..]).take_while(|(a, b)| a == b).count();
            position += accepted + 1;
        }
        assert!(position >= tokens - 5, "{position}");
    }
}

#[test]
fn three_of_four_drafted_tokens_of_code_are_accepted() {
    let demo = open(&demo_q8_path());
    let prompts: Vec<Vec<u32>> = prompts("code", &demo).unwrap().into_iter().map(|p| p.ids).collect();
    let options = EngineOptions { context: Some(1024), ..options(&[]) };
    let strategies: StrategyOptions = strategies(&[("mtp-chain", &[("depth", "4")])], true);
    let mut engine = engine(demo, &builtin_cpu(), options, &strategies);
    generate_alone(&mut engine, &Wish::greedy(&prompts, 64));
    let report = engine.speculation_report();
    println!("{:?} accepted, {:.2} tokens a round", report.acceptance(), report.mean_length());
    assert!(report.acceptance().unwrap() >= 0.75, "{report:?}");
}
