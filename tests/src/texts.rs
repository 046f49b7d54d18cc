//! Generated texts with the bits that they came from, to be compared between strategies.

use paceline_engine::{Engine, GenerationOptions, Sampler, SamplerOptions, SequenceId, StopReason, Task};
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

/// What is generated.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// A text for each, together in one context.
    pub prompts: &'a [Vec<u32>],
    /// How tokens are drawn.
    pub sampling: SamplerOptions,
    /// Most tokens of a text.
    pub tokens: usize,
    /// Tokens that end a text.
    pub end_tokens: &'a [u32],
}

impl<'a> Wish<'a> {
    /// Texts of the most likely tokens.
    pub fn greedy(prompts: &'a [Vec<u32>], tokens: usize) -> Self {
        Self { prompts, sampling: SamplerOptions::default(), tokens, end_tokens: &[] }
    }

    /// Texts that are drawn, always with the same seed.
    pub fn drawn(prompts: &'a [Vec<u32>], tokens: usize) -> Self {
        let sampling = SamplerOptions { temperature: 0.7, top_p: 0.9, seed: 11, ..SamplerOptions::default() };
        Self { sampling, ..Self::greedy(prompts, tokens) }
    }
}

/// A text that was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// By position, a hash of the logits that the token there was chosen from.
    pub logits: Vec<(usize, u64)>,
    /// Why it ended.
    pub stop: StopReason,
    /// Positions that its sequence held in the end.
    pub length: usize,
}

/// Generates texts in new sequences, all together.
pub fn generate(engine: &mut Engine, wish: &Wish<'_>) -> Vec<Text> {
    let ids: Vec<SequenceId> =
        wish.prompts.iter().map(|_| engine.new_sequence().expect("a free sequence")).collect();
    let vocabulary = engine.model().shape().vocabulary as usize;
    let mut samplers: Vec<Sampler> = wish
        .prompts
        .iter()
        .map(|_| Sampler::new(wish.sampling.clone(), vocabulary).expect("options in range"))
        .collect();
    let mut tasks: Vec<Task<'_>> = ids
        .iter()
        .zip(wish.prompts)
        .zip(&mut samplers)
        .map(|((&sequence, prompt), sampler)| Task {
            sequence,
            prompt,
            sampler,
            options: GenerationOptions { tokens: wish.tokens, end_tokens: wish.end_tokens },
        })
        .collect();
    let mut tokens = vec![Vec::new(); ids.len()];
    let mut logits = vec![Vec::new(); ids.len()];
    let reports = engine
        .generate_watched(
            &mut tasks,
            &mut |text, token| {
                tokens[text].push(token);
                ControlFlow::Continue(())
            },
            &mut |text, position, row| logits[text].push((position, hash(row))),
        )
        .expect("it generates");
    let texts =
        tokens.into_iter().zip(logits).zip(reports).zip(&ids).map(|(((tokens, logits), report), &id)| Text {
            tokens,
            logits,
            stop: report.stop,
            length: engine.sequence_length(id),
        });
    let texts = texts.collect();
    ids.iter().for_each(|&id| engine.end_sequence(id));
    texts
}

/// Every text alone in the context.
pub fn generate_alone(engine: &mut Engine, wish: &Wish<'_>) -> Vec<Text> {
    let alone = |prompt: &Vec<u32>| {
        let prompts = std::slice::from_ref(prompt);
        generate(engine, &Wish { prompts, ..wish.clone() }).pop().expect("a text")
    };
    wish.prompts.iter().map(alone).collect()
}

/// Fails at the first token or logits that differ.
pub fn assert_same(name: &str, found: &[Text], expected: &[Text]) {
    assert_eq!(found.len(), expected.len(), "{name}: number of texts");
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        let at = found.tokens.iter().zip(&expected.tokens).position(|(a, b)| a != b);
        assert_eq!(at, None, "{name}: text {number} differs at this token");
        let at = found.logits.iter().zip(&expected.logits).position(|(a, b)| a != b);
        assert_eq!(at, None, "{name}: logits of text {number} differ at this token");
        assert_eq!(found, expected, "{name}: text {number}");
    }
}

fn hash(row: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.iter().for_each(|logit| hasher.write_u32(logit.to_bits()));
    hasher.finish()
}
