//! How drafts are accepted does not change what is said, or how likely: chi-square against exact probabilities. The
//! same checks find rules that are wrong.

mod plugin;

use paceline_engine::{
    Acceptance, Engine, EngineOptions, GenerationOptions, Purpose, Rows, Sampler, SamplerOptions,
    StrategyOptions, Task, Want, uniform,
};
use paceline_gguf::Gguf;
use paceline_tests::chi_square::{ChiSquare, chi_square};
use paceline_tests::engines::{builtin_cpu, options};
use paceline_tests::random_model::{Generator, RandomModel};
use paceline_tests::strategies::{engine, strategies};
use plugin::{LIKELY, WEIGHTS};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Tokens of the made-up vocabulary, and of each text in it.
const VOCABULARY: usize = 6;
const LENGTH: usize = 3;

/// A model of a tiny vocabulary and a drafter that is only roughly right, both by all tokens before.
struct Language {
    logits: HashMap<Vec<u32>, Vec<f32>>,
    drafts: HashMap<Vec<u32>, Vec<f32>>,
}

impl Language {
    fn new() -> Self {
        let mut generator = Generator::new(4, "language");
        let mut row = |scale: f64| -> Vec<f32> {
            (0..VOCABULARY).map(|_| (generator.normal() * scale) as f32).collect()
        };
        let (mut logits, mut drafts) = (HashMap::new(), HashMap::new());
        for before in prefixes(LENGTH - 1) {
            let truth = row(1.5);
            let guess: Vec<f32> = truth.iter().zip(row(1.0)).map(|(a, b)| a + b).collect();
            drafts.insert(before.clone(), probabilities(&guess, &SamplerOptions::plain()));
            logits.insert(before, truth);
        }
        Self { logits, drafts }
    }

    /// Exact probability of every text.
    fn joint(&self, options: &SamplerOptions) -> Vec<f64> {
        let texts = prefixes(LENGTH).into_iter().filter(|text| text.len() == LENGTH);
        texts
            .map(|text| {
                let step = |at: usize| probabilities(&self.logits[&text[..at]], options)[text[at] as usize];
                (0..LENGTH).map(step).map(f64::from).product()
            })
            .collect()
    }

    /// Draws texts in rounds of two drafted tokens, accepted by `rule`; counts them in the order of `joint`.
    fn draw(&self, options: &SamplerOptions, rule: Rule, texts: usize) -> Vec<u64> {
        let mut counts = vec![0; VOCABULARY.pow(LENGTH as u32)];
        let mut generator = Generator::new(9, "drafts");
        for seed in 0..texts as u64 {
            let mut sampler = Sampler::new(SamplerOptions { seed, ..options.clone() }, VOCABULARY).unwrap();
            let mut text: Vec<u32> = Vec::new();
            while text.len() < LENGTH {
                let mut goes_on = true;
                for row in 0..3 {
                    if !goes_on || text.len() == LENGTH {
                        break;
                    }
                    let (logits, draft) = (&self.logits[&text], &self.drafts[&text]);
                    let position = text.len() as u64 + 1;
                    let token = if row < 2 {
                        let drafted = pick(draft, &mut generator);
                        let token = rule(&mut sampler, logits, position, drafted, draft);
                        goes_on = token == drafted;
                        token
                    } else {
                        sampler.sample(logits, position).unwrap()
                    };
                    text.push(token);
                }
            }
            counts[text.iter().fold(0, |cell, &token| cell * VOCABULARY + token as usize)] += 1;
        }
        counts
    }
}

/// Gives the token of a row: sampler, logits, position, drafted token, and what that was drawn from.
type Rule = fn(&mut Sampler, &[f32], u64, u32, &[f32]) -> u32;

fn right_rule(sampler: &mut Sampler, logits: &[f32], position: u64, token: u32, draft: &[f32]) -> u32 {
    sampler.accept_or_replace(logits, position, token, draft).unwrap()
}

fn accept_always(_: &mut Sampler, _: &[f32], _: u64, token: u32, _: &[f32]) -> u32 {
    token
}

/// Forgets to take the draft's distribution off before it draws another token.
fn without_residual(sampler: &mut Sampler, logits: &[f32], position: u64, token: u32, draft: &[f32]) -> u32 {
    let options = sampler.options().clone();
    let (p, q) = (probabilities(logits, &options)[token as usize], draft[token as usize]);
    if uniform(options.seed, position, Purpose::Acceptance) * f64::from(q) < f64::from(p) {
        return token;
    }
    sampler.sample(logits, position).unwrap()
}

trait Plain {
    fn plain() -> Self;
}

impl Plain for SamplerOptions {
    /// All of the distribution.
    fn plain() -> Self {
        Self { temperature: 1.0, top_k: 0, ..Self::default() }
    }
}

/// All texts up to a length, in the order of their digits.
fn prefixes(length: usize) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..length {
        let longer =
            |text: &Vec<u32>| (0..VOCABULARY as u32).map(|t| [&text[..], &[t]].concat()).collect::<Vec<_>>();
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// What the sampler's options make of logits, said plainly.
fn probabilities(logits: &[f32], options: &SamplerOptions) -> Vec<f32> {
    let weights: Vec<f64> = logits.iter().map(|l| f64::from(l / options.temperature).exp()).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    if options.top_k > 0 {
        order.truncate(options.top_k);
    }
    let total: f64 = order.iter().map(|&i| weights[i]).sum();
    let mut reached = 0.0;
    let needed = order.iter().take_while(|&&i| {
        let before = reached;
        reached += weights[i] / total;
        before < f64::from(options.top_p)
    });
    let needed = needed.count();
    order.truncate(needed);
    let least = f64::from(options.min_p) * weights[order[0]];
    order.retain(|&i| weights[i] >= least);
    let total: f64 = order.iter().map(|&i| weights[i]).sum();
    let mut all = vec![0.0; weights.len()];
    order.iter().for_each(|&i| all[i] = (weights[i] / total) as f32);
    all
}

fn pick(distribution: &[f32], generator: &mut Generator) -> u32 {
    let mut wanted = generator.unit();
    let found = distribution.iter().position(|&p| {
        wanted -= f64::from(p);
        wanted < 0.0
    });
    found.unwrap_or(0) as u32
}

fn samplings() -> [SamplerOptions; 5] {
    let plain = SamplerOptions::plain;
    [
        plain(),
        SamplerOptions { temperature: 0.6, ..plain() },
        SamplerOptions { top_k: 3, ..plain() },
        SamplerOptions { top_p: 0.8, ..plain() },
        SamplerOptions { min_p: 0.2, temperature: 1.3, ..plain() },
    ]
}

const TEXTS: usize = 60_000;

fn compare(language: &Language, options: &SamplerOptions, rule: Rule) -> ChiSquare {
    chi_square(&language.draw(options, rule, TEXTS), &language.joint(options))
}

#[test]
fn rejection_keeps_the_joint_distribution_of_three_tokens() {
    let language = Language::new();
    for options in samplings() {
        let result = compare(&language, &options, right_rule);
        println!("{result:?}");
        assert!(result.fits(), "{options:?}: {result:?}");
    }
}

#[test]
fn wrong_rules_are_found() {
    let language = Language::new();
    for rule in [accept_always as Rule, without_residual] {
        let result = compare(&language, &SamplerOptions::plain(), rule);
        println!("{result:?}");
        assert!(!result.fits(), "{result:?}");
    }
}

/// The likely tokens of a real engine: the three that can be drawn.
const DRAWN: usize = 3;
/// Tokens of a text: one from the prompt's run, two that are drafted, and one more.
const TOKENS: usize = 4;

fn drawn() -> SamplerOptions {
    SamplerOptions { top_k: DRAWN, ..SamplerOptions::plain() }
}

struct Subject {
    gguf: Arc<Gguf>,
    prompt: Vec<u32>,
    /// Probability of every text that can be drawn, and its tokens.
    texts: Vec<(Vec<u32>, f64)>,
}

impl Subject {
    /// Enumerates all texts, and tells the drafter which tokens are likely behind each.
    fn new() -> Self {
        let model =
            RandomModel { vocab: paceline_tests::random_model::MIN_VOCABULARY, ..RandomModel::default() };
        let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
        let prompt = model.tokens(4, 3);
        let mut bare = engine(gguf.clone(), &builtin_cpu(), options(&[]), &StrategyOptions::default());
        let mut texts = vec![(Vec::new(), 1.0)];
        let mut likely = HashMap::new();
        for _ in 0..TOKENS {
            let mut longer = Vec::new();
            for (text, probability) in texts {
                let sequence = bare.new_sequence().unwrap();
                let tokens = [&prompt[..], &text[..]].concat();
                let run = [Rows { sequence, tokens: &tokens, outputs: 1 }];
                let outputs = bare.run(&run, Want::Logits).unwrap();
                let row = probabilities(outputs.logits(0).unwrap(), &drawn());
                let next: Vec<u32> = (0..row.len() as u32).filter(|&t| row[t as usize] > 0.0).collect();
                assert_eq!(next.len(), DRAWN);
                for &token in &next {
                    longer
                        .push(([&text[..], &[token]].concat(), probability * f64::from(row[token as usize])));
                }
                likely.insert(tokens, next);
                bare.end_sequence(sequence);
            }
            texts = longer;
        }
        *LIKELY.lock().unwrap() = Some(likely);
        Self { gguf, prompt, texts }
    }

    fn engine(&self, acceptance: Acceptance) -> Engine {
        let options = EngineOptions { sequences: 2, context: Some(256), ..options(&[]) };
        let strategies = StrategyOptions { acceptance, ..strategies(&[("roughly-right", &[])], false) };
        engine(self.gguf.clone(), &builtin_cpu(), options, &strategies)
    }

    /// Draws texts, two at a time, and counts them in the order of `texts`.
    fn draw(&self, engine: &mut Engine, pairs: u64) -> Vec<u64> {
        let vocabulary = engine.model().shape().vocabulary as usize;
        let cells: HashMap<&[u32], usize> =
            self.texts.iter().enumerate().map(|(cell, (text, _))| (&text[..], cell)).collect();
        let mut counts = vec![0; self.texts.len()];
        for pair in 0..pairs {
            let ids = [0, 1].map(|_| engine.new_sequence().unwrap());
            let mut samplers = [0, 1].map(|number| {
                let options = SamplerOptions { seed: pair * 2 + number, ..drawn() };
                Sampler::new(options, vocabulary).unwrap()
            });
            let [first, second] = &mut samplers;
            let mut tasks = [(ids[0], first), (ids[1], second)].map(|(sequence, sampler)| Task {
                sequence,
                prompt: &self.prompt,
                sampler,
                options: GenerationOptions { tokens: TOKENS, end_tokens: &[] },
            });
            let mut texts = [Vec::new(), Vec::new()];
            engine
                .generate_all(&mut tasks, &mut |text, token| {
                    texts[text].push(token);
                    ControlFlow::Continue(())
                })
                .unwrap();
            texts.iter().for_each(|text| counts[cells[&text[..]]] += 1);
            ids.iter().for_each(|&id| engine.end_sequence(id));
        }
        counts
    }
}

#[test]
fn an_engine_with_a_drafter_that_gives_distributions_keeps_the_joint_distribution() {
    let subject = Subject::new();
    let probabilities: Vec<f64> = subject.texts.iter().map(|(_, p)| *p).collect();
    assert!((WEIGHTS.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    let mut acceptances = Vec::new();
    for acceptance in [Acceptance::Reject, Acceptance::Agree] {
        let mut engine = subject.engine(acceptance);
        let counts = subject.draw(&mut engine, 1500);
        let result = chi_square(&counts, &probabilities);
        let report = engine.speculation_report();
        println!("{acceptance:?}: {result:?}, {:?} accepted", report.acceptance());
        assert!(result.fits(), "{acceptance:?}: {result:?}");
        assert_eq!(report.drafters[0].quarantined, 0);
        acceptances.push(report.acceptance().unwrap());
    }
    // What rejection is for: the overlap of two distributions is more than the chance that two draws agree.
    assert!(acceptances[0] > acceptances[1] + 0.1, "{acceptances:?}");
}
