//! Drafters at their best and at their worst: the text is the same, and the counts say what happened.

mod plugin;

use paceline_engine::{
    Acceptance, Engine, EngineOptions, GenerationOptions, Sampler, SpeculationReport, StrategyOptions,
};
use paceline_gguf::Gguf;
use paceline_strategy_gdn_replay as _;
use paceline_tests::engines::{builtin_cpu, options};
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{engine, strategies};
use paceline_tests::texts::{Text, Wish, assert_same, generate, generate_alone};
use plugin::{TOLD, TRUTH};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// Drafters know one text at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A random model, a prompt, and the text that drafters are told of.
struct Subject {
    gguf: Arc<Gguf>,
    prompt: Vec<u32>,
    expected: Vec<Text>,
    _guard: MutexGuard<'static, ()>,
}

/// Tokens after the first, which the prompt's run gives.
const EMITTED: u64 = 120;

impl Subject {
    fn new() -> Self {
        Self::of_length(EMITTED as usize + 1)
    }

    fn of_length(tokens: usize) -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|failed| failed.into_inner());
        let model = RandomModel::default();
        let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
        let prompt = model.tokens(30, 2);
        let mut bare = engine(gguf.clone(), &builtin_cpu(), context(), &StrategyOptions::default());
        let expected = generate_alone(&mut bare, &wish(std::slice::from_ref(&prompt), tokens));
        *TRUTH.lock().unwrap() = [&prompt[..], &expected[0].tokens].concat();
        Self { gguf, prompt, expected, _guard: guard }
    }

    fn engine(&self, id: &str, settings: &[(&str, &str)]) -> Engine {
        engine(self.gguf.clone(), &builtin_cpu(), context(), &strategies(&[(id, settings)], true))
    }

    /// Generates the text with a drafter and compares it; what happened.
    fn check(&self, id: &str, settings: &[(&str, &str)]) -> SpeculationReport {
        let mut engine = self.engine(id, settings);
        self.generate(&mut engine, &format!("{id} {settings:?}"))
    }

    fn generate(&self, engine: &mut Engine, name: &str) -> SpeculationReport {
        let tokens = self.expected[0].tokens.len();
        let found = generate_alone(engine, &wish(std::slice::from_ref(&self.prompt), tokens));
        assert_same(name, &found, &self.expected);
        let report = engine.speculation_report();
        assert_eq!(report.emitted, tokens as u64 - 1, "{name}");
        assert!(report.rounds <= report.emitted, "{name}: a round emits a token at least");
        assert_eq!(report.rounds + report.accepted(), report.emitted, "{name}");
        report
    }
}

fn context() -> EngineOptions {
    EngineOptions { sequences: 3, context: Some(1024), ..options(&[]) }
}

/// Texts that do not fall into a loop.
fn wish(prompts: &[Vec<u32>], tokens: usize) -> Wish<'_> {
    let mut wish = Wish::drawn(prompts, tokens);
    wish.sampling.temperature = 1.0;
    wish
}

#[test]
fn what_is_always_right_is_accepted_whole() {
    let subject = Subject::new();
    for most in ["1", "2", "7", "15"] {
        let report = subject.check("forced", &[("most", most)]);
        assert_eq!(report.acceptance(), Some(1.0));
        let length: u64 = most.parse().unwrap();
        assert_eq!(report.rounds, EMITTED.div_ceil(length + 1));
        assert_eq!(
            report.rounds_with_draft,
            (EMITTED - 1).div_ceil(length + 1),
            "a last token needs no draft"
        );
    }
}

#[test]
fn what_is_always_wrong_costs_rounds_and_nothing_else() {
    let subject = Subject::new();
    for most in ["1", "4", "15"] {
        let report = subject.check("forced", &[("most", most), ("guess", "wrong")]);
        assert_eq!((report.accepted(), report.rounds), (0, EMITTED));
        assert_eq!(report.drafters[0].disabled, None);
    }
}

#[test]
fn half_right_and_random_drafts_are_accepted_as_far_as_they_agree() {
    let subject = Subject::new();
    let report = subject.check("forced", &[("most", "8"), ("guess", "half")]);
    // Four of eight, until less than eight tokens are left.
    let positions = &report.drafters[0].positions;
    assert!(positions[3][0] - positions[3][1] <= 1, "{positions:?}");
    assert!(positions[3][1] >= 20 && positions[4][1] == 0, "{positions:?}");
    let report = subject.check("forced", &[("most", "4"), ("guess", "random")]);
    assert!(report.accepted() < EMITTED / 10, "{report:?}");
    assert_eq!(report.drafters[0].positions[0][0], report.rounds_with_draft);
}

#[test]
fn tokens_outside_of_the_vocabulary_are_quarantined_and_their_drafter_switched_off() {
    let subject = Subject::new();
    for guess in ["outside", "far outside", "infinite"] {
        let report = subject.check("forced", &[("guess", guess)]);
        let drafter = &report.drafters[0];
        assert_eq!((drafter.quarantined, drafter.drafts, drafter.verified), (32, 0, 0), "{guess}");
        let reason = drafter.disabled.as_deref().unwrap();
        assert_eq!(reason, "32 of its drafts held no tokens of the vocabulary", "{guess}");
        assert_eq!(report.rounds, EMITTED);
    }
}

#[test]
fn an_end_token_inside_of_a_draft_ends_the_text_only_where_the_model_says_so() {
    let subject = Subject::new();
    let prompts = std::slice::from_ref(&subject.prompt);
    // The model does not say it.
    let never = [0];
    assert!(!subject.expected[0].tokens.contains(&0));
    fn until<'a>(end_tokens: &'a [u32], prompts: &'a [Vec<u32>]) -> Wish<'a> {
        Wish { end_tokens, ..wish(prompts, EMITTED as usize + 1) }
    }
    let mut engine = subject.engine("forced", &[("guess", "end")]);
    let found = generate_alone(&mut engine, &until(&never, prompts));
    assert_same("a guessed end", &found, &subject.expected);
    // It does, in the middle of what is drafted.
    let mut bare = self::engine(subject.gguf.clone(), &builtin_cpu(), context(), &StrategyOptions::default());
    for at in 1..20 {
        let end = [subject.expected[0].tokens[at]];
        let expected = generate_alone(&mut bare, &until(&end, prompts));
        let mut engine = subject.engine("forced", &[]);
        assert_same("a true end", &generate_alone(&mut engine, &until(&end, prompts)), &expected);
    }
}

#[test]
fn drafters_that_fail_are_not_asked_again() {
    let subject = Subject::new();
    for call in ["begin", "observe", "propose", "resolve"] {
        let report = subject.check("forced", &[("fails", call)]);
        let reason = report.drafters[0].disabled.as_deref().unwrap();
        assert!(reason.contains(&format!("{call} failed as it was told to")), "{reason}");
        assert!(report.drafters[0].drafts <= 1 && report.rounds >= EMITTED - 8, "{call}: {report:?}");

        let report = subject.check("forced", &[("fails", &format!("panic in {call}"))]);
        let reason = report.drafters[0].disabled.as_deref().unwrap();
        assert!(reason.contains("panicked"), "{reason}");
    }
}

#[test]
fn a_failure_while_rows_are_taken_back_is_the_drafters_own() {
    let subject = Subject::new();
    let mut engine = subject.engine("forced", &[("fails", "truncate")]);
    let sequence = engine.new_sequence().unwrap();
    let rows = [paceline_engine::Rows { sequence, tokens: &subject.prompt[..8], outputs: 0 }];
    engine.run(&rows, paceline_engine::Want::Ids).unwrap();
    engine.roll_back(sequence, 2).unwrap();
    assert_eq!(engine.sequence_length(sequence), 6);
    assert!(engine.speculation_report().drafters[0].disabled.is_some());
    engine.end_sequence(sequence);
    subject.generate(&mut engine, "after a failure");
}

#[test]
fn a_draft_that_claims_to_be_longer_than_wanted_is_refused() {
    let subject = Subject::new();
    let report = subject.check("boaster", &[("most", "4")]);
    let reason = report.drafters[0].disabled.as_deref().unwrap();
    assert!(reason.contains("the drafter says that it guessed 5 tokens, 4 were wanted"), "{reason}");
    assert_eq!((report.drafters[0].drafts, report.rounds), (0, EMITTED));
}

#[test]
fn long_drafts_are_verified_in_windows_of_sixteen_rows() {
    let subject = Subject::of_length(514);
    for most in ["64", "256"] {
        let report = subject.check("forced", &[("most", most), ("free", "true")]);
        assert_eq!(report.acceptance(), Some(1.0), "drafts of {most}");
        let drafter = &report.drafters[0];
        // 513 tokens, 16 of them a round.
        let length: u64 = most.parse().unwrap();
        let rounds = 513u64.div_ceil(16) + 513 / length;
        assert!(report.rounds <= rounds, "drafts of {most}: {} rounds", report.rounds);
        assert!(drafter.drafts <= 513 / length + 1, "{} drafts of {most}", drafter.drafts);
    }
}

/// A copy ends, its source goes on: of what was drafted no more than one window is verified in vain.
#[test]
fn after_the_end_of_a_copy_one_window_is_in_vain() {
    let subject = Subject::of_length(300);
    for end in [100usize, 107, 150] {
        let settings = [("most", "256"), ("free", "true"), ("upto", &end.to_string())];
        let mut engine = subject.engine("forced", &settings);
        let prompts = std::slice::from_ref(&subject.prompt);
        // Until the copy ends and some tokens on.
        let tokens = end - subject.prompt.len() + 4;
        let found = generate_alone(&mut engine, &wish(prompts, tokens));
        assert_eq!(found[0].tokens, subject.expected[0].tokens[..tokens]);
        let report = engine.speculation_report();
        let in_vain = report.verified() - report.accepted();
        // One window at the end of the copy, and the drafts of the few tokens behind it.
        assert!(in_vain <= 15 + 3 + 2 + 1, "{in_vain} rows in vain: {report:?}");
    }
}

#[test]
fn several_texts_are_drafted_for_together() {
    let subject = Subject::new();
    let prompts = vec![subject.prompt.clone(); 3];
    let expected = vec![subject.expected[0].clone(); 3];
    for (guess, most) in [("right", "4"), ("half", "4"), ("wrong", "15"), ("right", "64")] {
        let settings =
            [("guess", guess), ("most", most), ("free", if most == "64" { "true" } else { "false" })];
        let mut engine = subject.engine("forced", &settings);
        let found = generate(&mut engine, &wish(&prompts, EMITTED as usize + 1));
        assert_same(guess, &found, &expected);
        let report = engine.speculation_report();
        assert_eq!(report.emitted, 3 * EMITTED);
        assert_eq!(report.rounds + report.accepted(), report.emitted);
        if guess == "right" {
            assert_eq!(report.acceptance(), Some(1.0), "drafts of {most}");
        }
    }
}

/// What is not asked need not listen; who is asked again, or saved, knows all.
#[test]
fn a_drafter_that_is_switched_off_is_told_late_and_of_everything() {
    let subject = Subject::of_length(900);
    for (free, calls) in [("false", 1..120), ("true", 800..1000)] {
        let mut wrong = strategies(&[("forced", &[("guess", "wrong"), ("free", free)])], true);
        wrong.controller = true;
        let mut engine = engine(subject.gguf.clone(), &builtin_cpu(), context(), &wrong);
        *TOLD.lock().unwrap() = (0, 0);
        let sequence = engine.new_sequence().unwrap();
        let prompts = std::slice::from_ref(&subject.prompt);
        let Wish { sampling, tokens, end_tokens, .. } = wish(prompts, subject.expected[0].tokens.len());
        let mut sampler = Sampler::new(sampling, engine.model().shape().vocabulary as usize).unwrap();
        let mut text = Vec::new();
        let mut on_token = |token| {
            text.push(token);
            ControlFlow::Continue(())
        };
        let limits = GenerationOptions { tokens, end_tokens };
        engine.generate(sequence, &subject.prompt, &mut sampler, limits, &mut |_| {}, &mut on_token).unwrap();
        assert_eq!(text, subject.expected[0].tokens);
        let report = engine.speculation_report();
        let (calls_made, _) = *TOLD.lock().unwrap();
        assert!(calls.contains(&calls_made), "free: {free}: told {calls_made} times");
        assert!(report.rounds_off > 600, "{report:?}");
        // It errs where a position is left out, and is switched off.
        engine.save_sequence(sequence).unwrap();
        assert_eq!(TOLD.lock().unwrap().1, engine.sequence_length(sequence));
        assert_eq!(engine.speculation_report().drafters[0].disabled, None);
    }
}

/// A drafter without distributions is judged by agreement, whatever was asked for.
#[test]
fn points_are_accepted_where_they_agree() {
    let subject = Subject::new();
    let options = StrategyOptions {
        acceptance: Acceptance::Reject,
        ..strategies(&[("forced", &[("guess", "half")])], true)
    };
    let mut engine = engine(subject.gguf.clone(), &builtin_cpu(), context(), &options);
    subject.generate(&mut engine, "by rejection");
}
