//! Whether a strategy changes what a model says: the same texts are generated with it and without, without temperature
//! and with, and their tokens and logits are compared to the bit.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use paceline_engine::{
    DrafterOptions, Engine, EngineError, EngineOptions, GenerationOptions, Model, RollbackOptions, Sampler,
    SamplerOptions, Select, SpeculationReport, StrategyOptions, Task,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::BackendClient;
use paceline_registry::{Plugin, Registry};
use paceline_text::Tokenizer;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::tokenizer;

/// Tokens of each text.
const TOKENS: usize = 64;
const SEED: u64 = 7;
/// Code repeats itself and is often guessed right, prose is not: drafts must be accepted and refused.
const PROMPTS: [(&str, &str); 2] = [
    ("code", "pub struct Point { x: f32, y: f32 }\n\nimpl Point {\n    pub fn x(&self) -> f32 { self.x }\n"),
    ("prose", "A sequence is a list of tokens. Every run of the model adds some of them, and"),
];
const TEMPERATURES: [f32; 2] = [0.0, 0.7];

/// One text, as it was generated.
#[derive(Default)]
struct Text {
    tokens: Vec<u32>,
    /// Of the logits that each token was chosen from.
    logits: Vec<u64>,
}

/// What is compared, and on what.
pub struct Subject<'a> {
    /// The strategy.
    pub plugin: &'a Plugin,
    /// Its settings.
    pub settings: &'a [(String, String)],
    /// The model.
    pub model: &'a Path,
    /// The drafter's own file.
    pub draft: Option<&'a Path>,
}

/// Generates all texts and says, as JSON, what came of it: `skipped`, a reason why there was nothing to compare; or
/// `texts` with a verdict each, and `faults`, sentences about what is wrong.
///
/// # Errors
/// What has nothing to do with the strategy: a model that cannot be opened, or no backend for it.
pub fn compare(subject: &Subject<'_>, registry: &Registry) -> Result<Value, Failure> {
    let source = ModelSource::resolve(subject.model)?;
    let gguf = source.open()?;
    let tokenizer = tokenizer::build(&gguf, &source)?;
    let model = Model::new(Arc::new(gguf))?;
    let draft = crate::engine_setup::open_draft(subject.draft)?;
    let backend = registry.backend(None)?;
    let bench = Bench { model, tokenizer, backend };
    let expected = bench.texts(&mut bench.engine(&StrategyOptions::default())?)?;
    let said = json!({ "model": source.to_string(), "backend": bench.backend.plugin(), "tokens": TOKENS });
    let outcome = match strategies(subject, draft, registry)? {
        Err(reason) => json!({ "skipped": reason }),
        Ok((strategies, what)) => match bench.engine(&strategies) {
            Ok(engine) => bench.judge(engine, &expected, what),
            Err(EngineError::StrategyRefused { source, .. }) if source.kind == ErrorKind::Unsupported => {
                json!({ "skipped": format!("it cannot work here: {source}") })
            }
            // What a caller can have wrong are the settings.
            Err(EngineError::StrategyRefused { plugin, source }) if source.kind == ErrorKind::Invalid => {
                return Err(EngineError::StrategyRefused { plugin, source }.into());
            }
            Err(error) => json!({ "texts": [], "faults": [Failure::from(error).in_one_line()] }),
        },
    };
    let mut all = said;
    if let (Some(all), Value::Object(outcome)) = (all.as_object_mut(), outcome) {
        all.extend(outcome);
    }
    Ok(all)
}

/// What the strategy is tested as.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Drafter,
    Rollback,
}

/// The strategy in use, with whatever it needs to be of use; or why there is no such thing.
fn strategies(
    subject: &Subject<'_>,
    draft: Option<Arc<Gguf>>,
    registry: &Registry,
) -> Result<Result<(StrategyOptions, Role), String>, Failure> {
    let (id, client) = (subject.plugin.id(), &subject.plugin.client);
    let failed = |error| Failure::plugin_call(&id, &error);
    let settings = subject.settings.to_vec();
    // Drafts of full length in every round, whether they pay or not, and the same ones each time.
    let options =
        StrategyOptions { controller: false, select: Select::Order, draft, ..StrategyOptions::default() };
    if let Some(plugin) = client.drafters().map_err(failed)? {
        let drafters = vec![DrafterOptions { plugin, settings }];
        return Ok(Ok((StrategyOptions { drafters, ..options }, Role::Drafter)));
    }
    let Some(plugin) = client.rollbacks().map_err(failed)? else {
        return Ok(Err("it neither drafts nor rolls back".to_owned()));
    };
    // All that is linked in and guesses, so that there is something to take back.
    let others = registry.plugins().iter().filter(|it| it.origin.path().is_none() && !it.is_backend());
    let drafters = others.filter_map(|it| it.client.drafters().ok().flatten());
    let needs_file = |plugin: &str| plugin == crate::strategies::DFLASH;
    let drafters: Vec<_> = drafters
        .filter(|it| options.draft.is_some() || !needs_file(it.plugin()))
        .map(|plugin| DrafterOptions { plugin, settings: Vec::new() })
        .collect();
    if drafters.is_empty() {
        return Ok(Err(
            "this program was built without a drafter whose guesses could be taken back".to_owned()
        ));
    }
    let rollback = Some(RollbackOptions { plugin, settings });
    Ok(Ok((StrategyOptions { drafters, rollback, ..options }, Role::Rollback)))
}

/// The model and the backend that all texts are from.
struct Bench {
    model: Model,
    tokenizer: Tokenizer,
    backend: BackendClient,
}

impl Bench {
    fn engine(&self, strategies: &StrategyOptions) -> Result<Engine, EngineError> {
        let options = EngineOptions { context: Some(512), ..EngineOptions::default() };
        Engine::with_strategies(self.model.clone(), &self.backend, options, strategies, &mut |_, _| {})
    }

    /// All texts, those of a prompt one after the other.
    fn texts(&self, engine: &mut Engine) -> Result<Vec<Text>, Failure> {
        let mut texts = Vec::new();
        for (prompt, temperature) in cases() {
            texts.push(self.text(engine, prompt, temperature)?.0);
        }
        Ok(texts)
    }

    fn text(
        &self,
        engine: &mut Engine,
        prompt: &str,
        temperature: f32,
    ) -> Result<(Text, SpeculationReport), Failure> {
        let prompt = tokenizer::encode(&self.tokenizer, prompt, false)?;
        let sampling = SamplerOptions { temperature, seed: SEED, ..SamplerOptions::default() };
        let mut sampler = Sampler::new(sampling, self.model.shape().vocabulary as usize)?;
        let sequence = engine.new_sequence()?;
        engine.clear_speculation_report();
        let mut text = Text::default();
        let options = GenerationOptions { tokens: TOKENS, end_tokens: &[] };
        let generated = engine.generate_watched(
            &mut [Task { sequence, prompt: &prompt, sampler: &mut sampler, options }],
            &mut |_, token| {
                text.tokens.push(token);
                ControlFlow::Continue(())
            },
            &mut |_, _, logits| text.logits.push(hash(logits.iter().map(|logit| logit.to_bits()))),
        );
        engine.end_sequence(sequence);
        generated?;
        Ok((text, engine.speculation_report()))
    }

    /// Generates the texts with the strategy and compares them.
    fn judge(&self, mut engine: Engine, expected: &[Text], role: Role) -> Value {
        let (mut texts, mut faults) = (Vec::new(), Vec::new());
        let (mut verified, mut accepted) = (0, 0);
        for (index, (prompt, temperature)) in cases().enumerate() {
            let name = PROMPTS[index / TEMPERATURES.len()].0;
            let (found, report) = match self.text(&mut engine, prompt, temperature) {
                Ok(made) => made,
                Err(failure) => {
                    faults.push(format!(
                        "{name} at temperature {temperature} ends with an error: {}",
                        failure.in_one_line()
                    ));
                    break;
                }
            };
            let wanted = &expected[index];
            let first = differs(&found.tokens, &wanted.tokens);
            let first_logits = differs(&found.logits, &wanted.logits);
            if let Some(first) = first {
                faults.push(format!(
                    "{name} at temperature {temperature} is another text from token {first} on"
                ));
            } else if let Some(first) = first_logits {
                faults.push(format!(
                    "{name} at temperature {temperature} has other logits from token {first} on"
                ));
            }
            verified += report.verified();
            accepted += report.accepted();
            texts.push(json!({
                "text": name,
                "temperature": temperature.to_string(),
                "guessed": report.verified(),
                "accepted": report.accepted(),
                "tokens_hash": hex(&found.tokens),
                "expected_tokens_hash": hex(&wanted.tokens),
                "logits_hash": hash_text(hash(found.logits.iter().copied())),
                "expected_logits_hash": hash_text(hash(wanted.logits.iter().copied())),
                "differs_from": first.or(first_logits),
            }));
        }
        let report = engine.speculation_report();
        let mut panics = Vec::new();
        for panic in engine.panics() {
            let said = panic.message.strip_prefix("the plugin panicked: ").unwrap_or(&panic.message);
            faults.push(format!("`{}` panics: {said}", panic.plugin));
            panics.push(panic.message);
        }
        for drafter in &report.drafters {
            if let Some(reason) = drafter.disabled.as_ref().filter(|reason| !panics.contains(reason)) {
                faults.push(format!("`{}` had to be switched off: {reason}", drafter.plugin));
            }
            if drafter.quarantined > 0 {
                faults.push(format!("`{}` gave drafts that are no tokens of the vocabulary", drafter.plugin));
            }
        }
        // Nothing was found out about what was never used.
        let idle = match role {
            Role::Drafter if verified == 0 => Some("it guessed nothing in any of the texts"),
            Role::Rollback if verified == accepted => Some("no guess was taken back in any of the texts"),
            _ => None,
        };
        json!({ "texts": texts, "faults": faults, "idle": idle })
    }
}

fn cases() -> impl Iterator<Item = (&'static str, f32)> {
    PROMPTS.into_iter().flat_map(|(_, prompt)| TEMPERATURES.map(|temperature| (prompt, temperature)))
}

/// The first entry, from 1, in which two lists differ.
fn differs<T: PartialEq>(found: &[T], expected: &[T]) -> Option<usize> {
    let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
    first
        .or_else(|| (found.len() != expected.len()).then(|| found.len().min(expected.len())))
        .map(|at| at + 1)
}

/// FNV-1a of 64 bits.
fn hash<T: Into<u64>>(values: impl Iterator<Item = T>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    values.flat_map(|value| value.into().to_le_bytes()).fold(0xCBF2_9CE4_8422_2325, step)
}

fn hex(tokens: &[u32]) -> String {
    hash_text(hash(tokens.iter().copied()))
}

fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(differs(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(differs(&[1, 5, 3], &[1, 2, 3]), Some(2));
        assert_eq!(differs(&[1, 2], &[1, 2, 3]), Some(3));
    }

    #[test]
    fn a_hash_depends_on_the_order() {
        assert_ne!(hash([1u32, 2].into_iter()), hash([2u32, 1].into_iter()));
        assert_eq!(hex(&[]), "cbf29ce484222325");
    }
}
