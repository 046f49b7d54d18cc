//! Strategies change the time that a text takes, and nothing else: the same tokens from logits of the same bits.
//!
//! What runs by default is a part of what there is; with `PACELINE_LONG_TESTS` set, all of it does, on all processors: some
//! CPU hours.

use paceline_engine::{
    Engine, EngineOptions, GenerationOptions, Rows, Sampler, SamplerOptions, Select, StopReason,
    StrategyOptions, Want,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{bits, builtin_cpu, options};
use paceline_tests::prompts::prompts;
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{Drafters, engine, open, strategies, wants_long_tests};
use paceline_tests::test_models::{demo_drafter_q8_path, demo_q8_path};
use paceline_tests::texts::{Text, Wish, assert_same, generate, generate_alone};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use {
    paceline_strategy_dflash as _, paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

const NGRAM: (&str, &[(&str, &str)]) = ("ngram-adaptive", &[("match", "2")]);
const MTP: (&str, &[(&str, &str)]) = ("mtp-chain", &[]);

/// Drafters of all kinds, forms and lengths.
const DRAFTERS: [(&str, Drafters<'static>); 12] = [
    ("ngram", &[NGRAM]),
    ("chain of 1", &[("mtp-chain", &[("depth", "1")])]),
    ("chain of 2", &[("mtp-chain", &[("depth", "2")])]),
    ("chain of 4", &[("mtp-chain", &[("depth", "4")])]),
    ("chain of 15", &[("mtp-chain", &[("depth", "15")])]),
    ("chain of 4, whole block", &[("mtp-chain", &[("depth", "4"), ("kv_only", "false")])]),
    ("loop of 1", &[("mtp-chain", &[("depth", "1"), ("form", "loop")])]),
    ("loop of 4", &[("mtp-chain", &[("depth", "4"), ("form", "loop")])]),
    (
        "loop of 15 that stops early",
        &[("mtp-chain", &[("depth", "15"), ("form", "loop"), ("least_probability", "0.4")])],
    ),
    ("chain of any length", &[MTP]),
    ("chain, then ngram", &[MTP, NGRAM]),
    ("ngram, then chain", &[NGRAM, MTP]),
];

/// One way to set strategies up.
#[derive(Clone)]
struct Way {
    name: String,
    drafters: Drafters<'static>,
    replay: bool,
    controller: bool,
    select: Select,
}

impl Way {
    fn options(&self, subject: &Subject) -> StrategyOptions {
        StrategyOptions {
            controller: self.controller,
            select: self.select,
            draft: subject.draft.clone().filter(|_| self.drafters.iter().any(|(id, _)| *id == "dflash")),
            ..strategies(self.drafters, self.replay)
        }
    }

    fn title(&self) -> String {
        let Self { name, replay, controller, select, .. } = self;
        format!("{name}, replay {replay}, controller {controller}, by {select:?}")
    }
}

/// Every depth of a chain, n-gram drafts that begin long, and DFlash where the model has a file for it.
fn further_drafters(subject: &Subject) -> Vec<(String, Drafters<'static>)> {
    fn kept<T>(value: T) -> &'static T {
        Box::leak(Box::new(value))
    }
    let depths: Vec<&'static str> = (1..16).map(|depth| kept(depth.to_string()).as_str()).collect();
    let of = |id: &'static str, depth: &&'static str| -> Drafters<'static> {
        kept([(id, &kept([("depth", *depth)])[..])])
    };
    let mut all: Vec<(String, Drafters<'static>)> =
        depths.iter().map(|depth| (format!("chain of {depth}"), of("mtp-chain", depth))).collect();
    for start in ["64", "256"] {
        let settings = kept([("match", "2"), ("start", start), ("floor", start)]);
        all.push((format!("ngram of {start}"), kept([("ngram-adaptive", &settings[..])])));
    }
    if subject.draft.is_some() {
        const DFLASH: (&str, &[(&str, &str)]) = ("dflash", &[]);
        all.extend(depths.iter().map(|depth| (format!("dflash of {depth}"), of("dflash", depth))));
        all.push(("dflash, then chain".into(), &[DFLASH, MTP]));
        all.push(("ngram, then dflash".into(), &[NGRAM, DFLASH]));
        all.push(("all three".into(), &[NGRAM, DFLASH, MTP]));
    }
    all
}

/// All ways; without the long tests, every drafter in one of them.
fn ways(subject: &Subject) -> Vec<Way> {
    let mut all = Vec::new();
    for (number, (name, drafters)) in DRAFTERS.into_iter().enumerate() {
        for kind in 0..8usize {
            let [replay, controller, ordered] = [1, 2, 4].map(|bit| kind & bit != 0);
            // With one drafter there is nothing to select.
            let needed = drafters.len() > 1 || !ordered;
            let picked = (number + usize::from(ordered && drafters.len() > 1)) % 4 == kind % 4;
            if needed && (wants_long_tests() || picked) {
                let select = if ordered { Select::Order } else { Select::Value };
                all.push(Way { name: name.into(), drafters, replay, controller, select });
            }
        }
    }
    if wants_long_tests() {
        for (name, drafters) in further_drafters(subject) {
            for replay in [false, true] {
                let controller = drafters.len() > 1;
                all.push(Way { name: name.clone(), drafters, replay, controller, select: Select::Value });
            }
        }
    }
    all
}

/// A model, and prompts for it.
struct Subject {
    name: &'static str,
    gguf: Arc<Gguf>,
    /// The file of a drafter that belongs to it.
    draft: Option<Arc<Gguf>>,
    prompts: Vec<Vec<u32>>,
}

fn demo() -> Subject {
    let gguf = open(&demo_q8_path());
    let kinds = ["code", "copy-edit", "json", "prose"];
    let (each, most) = if wants_long_tests() { (5, usize::MAX) } else { (1, 60) };
    let prompts = kinds.iter().flat_map(|kind| prompts(kind, &gguf).unwrap().into_iter().take(each));
    // The end of a prompt is what its continuation depends on most.
    let prompts = prompts.map(|p| p.ids[p.ids.len().saturating_sub(most)..].to_vec()).collect();
    Subject { name: "demo", gguf, draft: Some(open(&demo_drafter_q8_path())), prompts }
}

fn random(name: &'static str, weights: DType) -> Subject {
    let model = RandomModel { weights: weights.into(), ..RandomModel::wide() };
    let prompts = (1..5).map(|seed| model.tokens(20 * seed as usize, seed)).collect();
    Subject { name, gguf: Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap()), draft: None, prompts }
}

fn experts() -> Subject {
    let model = RandomModel::variant("experts-q8-0").expect("there is such a variant");
    let prompts = (1..3).map(|seed| model.tokens(20 * seed as usize, seed)).collect();
    let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
    Subject { name: "experts", gguf, draft: None, prompts }
}

fn context(kv_type: DType, sequences: u32) -> EngineOptions {
    // In the long tests every processor has an engine of its own.
    let settings: &[(&str, &str)] = if wants_long_tests() { &[("threads", "1")] } else { &[] };
    EngineOptions { kv_types: [kv_type; 2], sequences, context: Some(2048), ..options(settings) }
}

fn plain(subject: &Subject, options: EngineOptions) -> Engine {
    engine(subject.gguf.clone(), &builtin_cpu(), options, &StrategyOptions::default())
}

fn with(subject: &Subject, options: EngineOptions, strategies: &StrategyOptions) -> Engine {
    engine(subject.gguf.clone(), &builtin_cpu(), options, strategies)
}

/// Calls `check` with each of the ways: in the long tests on all processors, else one after the other.
fn for_each(ways: &[Way], check: &(dyn Fn(&Way) + Sync)) {
    if !wants_long_tests() {
        return ways.iter().for_each(check);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(way) = ways.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(way);
            println!("{}: the same", way.title());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

/// Every way gives the texts that no strategy gives, one at a time and four together.
fn check_all_ways(subject: &Subject, kv_type: DType, ways: &[Way], tokens: usize) {
    let prompts = &subject.prompts;
    let wishes = [Wish::greedy(prompts, tokens), Wish::drawn(prompts, tokens)];
    let mut engine = plain(subject, context(kv_type, 4));
    let expected: Vec<Vec<Text>> = wishes.iter().map(|wish| generate_alone(&mut engine, wish)).collect();
    for_each(ways, &|way| {
        let mut engine = with(subject, context(kv_type, 4), &way.options(subject));
        for (wish, expected) in wishes.iter().zip(&expected) {
            let name = format!("{}, KV {kv_type}, {}", subject.name, way.title());
            for (prompts, expected) in prompts.chunks(4).zip(expected.chunks(4)) {
                let found = generate(&mut engine, &Wish { prompts, ..wish.clone() });
                assert_same(&format!("{name}, together"), &found, expected);
            }
            let found = generate_alone(&mut engine, &Wish { prompts: &prompts[..1], ..wish.clone() });
            assert_same(&format!("{name}, alone"), &found, &expected[..1]);
        }
        let report = engine.speculation_report();
        assert!(report.drafters.iter().all(|d| d.disabled.is_none() && d.quarantined == 0), "{report:?}");
    });
}

fn length(short: usize) -> usize {
    if wants_long_tests() { 512 } else { short }
}

#[test]
fn the_demo_says_the_same_with_every_strategy() {
    let subject = demo();
    check_all_ways(&subject, DType::F16, &ways(&subject), length(32));
}

#[test]
fn quantised_caches_do_not_change_that() {
    let subject = demo();
    let ways = ways(&subject);
    for (number, kv_type) in [DType::Q8_0, DType::Q5_1, DType::Q4_0].into_iter().enumerate() {
        // Every sixth way, for each type others.
        let some = || ways.iter().skip(2 * number).step_by(6).cloned().collect();
        let ways: Vec<Way> = if wants_long_tests() { ways.clone() } else { some() };
        check_all_ways(&subject, kv_type, &ways, length(32));
    }
}

/// Nothing that a random model's block drafts is right, and its texts fall into loops: only rejections, and copies.
#[test]
fn random_models_say_the_same_with_every_strategy() {
    for (number, (name, weights)) in
        [("random q4_k", DType::Q4_K), ("random f16", DType::F16)].into_iter().enumerate()
    {
        let subject = random(name, weights);
        let mut ways = ways(&subject);
        if !wants_long_tests() {
            ways = ways.into_iter().skip(number).step_by(2).collect();
        }
        check_all_ways(&subject, DType::F16, &ways, length(32));
    }
    let subject = experts();
    let mut ways = ways(&subject);
    if !wants_long_tests() {
        ways = ways.into_iter().skip(3).step_by(5).collect();
    }
    check_all_ways(&subject, DType::F16, &ways, length(32));
}

#[test]
fn ids_found_on_the_device_give_the_same_text() {
    let subject = demo();
    let prompts = &subject.prompts[..1];
    let expected = generate_alone(&mut plain(&subject, context(DType::F16, 1)), &Wish::greedy(prompts, 40));
    let mut engine = with(&subject, context(DType::F16, 1), &strategies(DRAFTERS[3].1, true));
    let sequence = engine.new_sequence().unwrap();
    let vocabulary = engine.model().shape().vocabulary as usize;
    let mut sampler = Sampler::new(SamplerOptions::default(), vocabulary).unwrap();
    let mut found = Vec::new();
    let options = GenerationOptions { tokens: 40, end_tokens: &[] };
    let mut on_token = |token| {
        found.push(token);
        ControlFlow::Continue(())
    };
    engine.generate(sequence, &prompts[0], &mut sampler, options, &mut |_| {}, &mut on_token).unwrap();
    assert_eq!(found, expected[0].tokens);
}

#[test]
fn prompts_of_one_token_and_odd_ones_say_the_same() {
    let subject = demo();
    let mut all: Vec<Vec<u32>> = vec![vec![300], vec![0], vec![8191]];
    all.extend(prompts("edge", &subject.gguf).unwrap().into_iter().map(|p| p.ids));
    let wish = Wish::drawn(&all, 16);
    let expected = generate_alone(&mut plain(&subject, context(DType::F16, 1)), &wish);
    for drafters in [DRAFTERS[3].1, DRAFTERS[10].1] {
        let mut engine = with(&subject, context(DType::F16, 1), &strategies(drafters, true));
        assert_same("odd prompts", &generate_alone(&mut engine, &wish), &expected);
    }
}

#[test]
fn a_context_is_filled_to_its_last_position() {
    let subject = demo();
    let text = &subject.prompts[0][..40];
    let options = || EngineOptions { context: Some(40), ..options(&[]) };
    // From a prompt that leaves one place to one that leaves none.
    let prompts: Vec<Vec<u32>> = [8, 24, 25, 35, 38, 39, 40].map(|n| text[..n].to_vec()).into();
    for wish in [Wish::greedy(&prompts, 1000), Wish::drawn(&prompts, 1000)] {
        let expected = generate_alone(&mut plain(&subject, options()), &wish);
        for (prompt, text) in prompts.iter().zip(&expected) {
            assert_eq!(text.stop, StopReason::ContextFull);
            assert_eq!(prompt.len() + text.tokens.len(), 41, "the last token needs no place");
        }
        for (number, (name, drafters)) in DRAFTERS.into_iter().enumerate() {
            if wants_long_tests() || number % 3 == 1 {
                let mut engine = with(&subject, options(), &strategies(drafters, number % 2 == 0));
                assert_same(name, &generate_alone(&mut engine, &wish), &expected);
            }
        }
    }
}

#[test]
fn end_tokens_and_lengths_cut_drafts() {
    let subject = demo();
    let prompts = &subject.prompts[..1];
    let mut bare = plain(&subject, context(DType::F16, 1));
    let whole = generate_alone(&mut bare, &Wish::greedy(prompts, 24));
    let mut engines =
        [DRAFTERS[4].1, DRAFTERS[10].1].map(|d| with(&subject, context(DType::F16, 1), &strategies(d, true)));
    for tokens in (0..18).step_by(if wants_long_tests() { 1 } else { 3 }) {
        let end_tokens = [whole[0].tokens[tokens]];
        for wish in
            [Wish::greedy(prompts, tokens), Wish { end_tokens: &end_tokens, ..Wish::greedy(prompts, 24) }]
        {
            let expected = generate_alone(&mut bare, &wish);
            for engine in &mut engines {
                assert_same("a cut text", &generate_alone(engine, &wish), &expected);
            }
        }
    }
}

/// The receiver stops a text inside of a draft; what the sequence holds then, and what follows, is as without drafts.
#[test]
fn a_text_that_is_stopped_anywhere_can_be_continued() {
    let subject = demo();
    let prompt = &subject.prompts[0];
    let more = &subject.prompts[1][..6];
    let vocabulary = 8192;
    let run = |engine: &mut Engine, stop_after: usize| {
        let sequence = engine.new_sequence().unwrap();
        let mut sampler = Sampler::new(SamplerOptions::default(), vocabulary).unwrap();
        let mut tokens = Vec::new();
        let mut generate = |prompt: &[u32], most: usize, sampler: &mut Sampler| {
            let before = tokens.len();
            let options = GenerationOptions { tokens: 30, end_tokens: &[] };
            let mut on_token = |token| {
                tokens.push(token);
                if tokens.len() - before == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            engine.generate(sequence, prompt, sampler, options, &mut |_| {}, &mut on_token).unwrap();
            engine.sequence_length(sequence)
        };
        let lengths = [generate(prompt, stop_after, &mut sampler), generate(more, 12, &mut sampler)];
        let rows = [Rows { sequence, tokens: more, outputs: 1 }];
        let last = bits(engine.run(&rows, Want::Logits).unwrap().logits(0).unwrap());
        engine.end_sequence(sequence);
        (tokens, lengths, last)
    };
    let mut bare = plain(&subject, context(DType::F16, 1));
    let mut engines =
        [DRAFTERS[3].1, DRAFTERS[10].1].map(|d| with(&subject, context(DType::F16, 1), &strategies(d, true)));
    for stop_after in 1..9 {
        let expected = run(&mut bare, stop_after);
        for engine in &mut engines {
            assert!(run(engine, stop_after) == expected, "stopped after {stop_after} tokens");
        }
    }
}

/// More texts than a run has rows or outputs for: some wait for the next one.
#[test]
fn more_texts_than_fit_a_run_are_generated_all_the_same() {
    let subject = random("random q4_k", DType::Q4_K);
    let prompts: Vec<Vec<u32>> = (1..20).map(|n| subject.prompts[3][..n].to_vec()).collect();
    let options =
        |microbatch| EngineOptions { sequences: 19, microbatch, outputs: microbatch.min(16), ..options(&[]) };
    let wish = Wish::drawn(&prompts, 8);
    let expected = generate_alone(&mut plain(&subject, options(512)), &wish);
    for microbatch in [8, 512] {
        for strategies in [StrategyOptions::default(), strategies(DRAFTERS[3].1, true)] {
            let mut engine = with(&subject, options(microbatch), &strategies);
            assert_same(&format!("microbatch {microbatch}"), &generate(&mut engine, &wish), &expected);
        }
    }
}

/// How often drafts of a fixed length had how many tokens accepted, from none to all.
fn accepted_lengths(engine: &Engine, depth: usize) -> Vec<u64> {
    let report = engine.speculation_report();
    let positions = &report.drafters[0].positions;
    let at_least = |length: usize| match length {
        0 => positions[0][0],
        length if length <= depth => positions[length - 1][1],
        _ => 0,
    };
    (0..=depth).map(|length| at_least(length) - at_least(length + 1)).collect()
}

#[test]
fn replay_and_snapshots_agree_over_hundreds_of_rejections_of_every_length() {
    let subject = demo();
    let lengths = if wants_long_tests() { vec![("4", 4), ("15", 15)] } else { vec![("4", 4)] };
    for (depth, most) in lengths {
        let mut wish = Wish::drawn(&subject.prompts, 320 * if most > 4 { 5 } else { 1 });
        // With unlikely tokens a text says the same again less often.
        wish.sampling.top_p = 1.0;
        let expected = generate_alone(&mut plain(&subject, context(DType::F16, 1)), &wish);
        let lengths = [false, true].map(|replay| {
            // The likeliest tokens are rejected more often than those that are drawn.
            let drafters: Drafters<'_> = &[("mtp-chain", &[("depth", depth), ("draw", "false")])];
            let mut engine = with(&subject, context(DType::F16, 1), &strategies(drafters, replay));
            assert_same(&format!("replay {replay}"), &generate_alone(&mut engine, &wish), &expected);
            let report = engine.speculation_report();
            assert_eq!(report.emitted, report.rounds + report.accepted(), "no text ends inside of a draft");
            accepted_lengths(&engine, most)
        });
        println!("accepted lengths {:?}", lengths[0]);
        assert_eq!(lengths[0], lengths[1], "replay changes what is accepted");
        assert!(lengths[0].iter().all(|&count| count > 0), "{lengths:?}");
        let rejections: u64 = lengths[0][..most].iter().sum();
        assert!(rejections >= 100 + subject.prompts.len() as u64, "{rejections} rejections");
    }
}

#[test]
fn the_same_request_is_drafted_the_same_again_and_again() {
    let subject = demo();
    let wish = Wish::drawn(&subject.prompts[..2], 32);
    for drafters in [DRAFTERS[0].1, DRAFTERS[3].1, DRAFTERS[7].1] {
        let mut engine = with(&subject, context(DType::F16, 1), &strategies(drafters, true));
        let mut once = || {
            engine.clear_speculation_report();
            let texts = generate_alone(&mut engine, &wish);
            let report = engine.speculation_report();
            (texts, report.drafted(), report.accepted(), report.rounds)
        };
        let first = once();
        for _ in 0..3 {
            assert_eq!(once(), first);
        }
    }
}

#[test]
fn a_sequence_drafts_as_well_in_company_as_alone() {
    let subject = demo();
    let drafters = DRAFTERS[3].1;
    let wish = Wish::greedy(&subject.prompts[..4], 40);
    let accepted = |engine: &Engine| {
        let report = engine.speculation_report();
        (report.drafted(), report.accepted())
    };
    let mut engine = with(&subject, context(DType::F16, 4), &strategies(drafters, true));
    generate_alone(&mut engine, &wish);
    let alone = accepted(&engine);
    engine.clear_speculation_report();
    generate(&mut engine, &wish);
    // Four sequences share the 16 rows of a verification: at most 3 tokens each instead of 4.
    let (drafted, taken) = accepted(&engine);
    let rate = |taken: u64, drafted: u64| taken as f64 / drafted as f64;
    assert!(rate(taken, drafted) >= rate(alone.1, alone.0), "{taken} of {drafted}, {alone:?} alone");
}
