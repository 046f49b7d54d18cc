//! Prompt and continuation of one sequence.

use crate::engine::{Engine, Rows, SequenceId};
use crate::error::{EngineError, Result};
use crate::programs::Want;
use crate::sampling::Sampler;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended the text.
    EndToken,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
    /// The receiver of the tokens stopped it.
    Stopped,
}

/// What a generation did.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationReport {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Time for the prompt, until its last logits.
    pub prompt_time: Duration,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// Time for all generated tokens but the first, which the prompt's run gave.
    pub generation_time: Duration,
    /// Why it ended.
    pub stop: StopReason,
}

impl GenerationReport {
    /// Prompt tokens per second.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Generated tokens per second, without the first.
    pub fn generation_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.generation_time)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// What a generation is asked for.
#[derive(Clone, Copy, Debug)]
pub struct GenerationOptions<'a> {
    /// Most tokens.
    pub tokens: usize,
    /// Tokens that end the text.
    pub end_tokens: &'a [u32],
}

impl Engine {
    /// Processes tokens of a sequence in microbatches; the last row's output stays in the result block and the id or
    /// logits come back. `progress` is called with tokens done.
    ///
    /// # Errors
    /// Tokens that do not fit the context, and all errors of [`Engine::run`].
    pub fn prompt(
        &mut self,
        sequence: SequenceId,
        tokens: &[u32],
        want: Want,
        progress: &mut dyn FnMut(usize),
    ) -> Result<crate::engine::Outputs<'_>> {
        let context = self.context_length();
        if tokens.is_empty() {
            return Err(EngineError::Request("the prompt is empty; it needs at least one token".into()));
        }
        if self.sequence_length(sequence) + tokens.len() > context {
            return Err(EngineError::PromptTooLong { tokens: tokens.len(), context });
        }
        let microbatch = self.microbatch();
        let mut done = 0;
        while tokens.len() - done > microbatch {
            let part = &tokens[done..done + microbatch];
            self.run(&[Rows { sequence, tokens: part, outputs: 0 }], want)?;
            done += part.len();
            progress(done);
        }
        self.run(&[Rows { sequence, tokens: &tokens[done..], outputs: 1 }], want)
    }

    /// Continues a sequence by a prompt and generated tokens, which `on_token` receives one by one; the end token is
    /// not among them.
    ///
    /// # Errors
    /// As for [`Engine::prompt`]; logits that are not numbers.
    pub fn generate(
        &mut self,
        sequence: SequenceId,
        prompt: &[u32],
        sampler: &mut Sampler,
        options: GenerationOptions<'_>,
        progress: &mut dyn FnMut(usize),
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<GenerationReport> {
        let want = if sampler.options().is_greedy() { Want::Ids } else { Want::Logits };
        prompt.iter().for_each(|&token| sampler.observe(token));
        let start = Instant::now();
        let position = self.sequence_length(sequence) + prompt.len();
        let outputs = self.prompt(sequence, prompt, want, progress)?;
        let mut token = choose(&outputs, sampler, position)?;
        let prompt_time = start.elapsed();

        let start = Instant::now();
        let mut generated = 0;
        let stop = loop {
            if options.end_tokens.contains(&token) {
                break StopReason::EndToken;
            }
            if generated == options.tokens {
                break StopReason::Length;
            }
            generated += 1;
            sampler.observe(token);
            if on_token(token).is_break() {
                break StopReason::Stopped;
            }
            if generated == options.tokens {
                break StopReason::Length;
            }
            if self.sequence_length(sequence) == self.context_length() {
                break StopReason::ContextFull;
            }
            let position = self.sequence_length(sequence) + 1;
            let outputs = self.run(&[Rows { sequence, tokens: &[token], outputs: 1 }], want)?;
            token = choose(&outputs, sampler, position)?;
        };
        Ok(GenerationReport {
            prompt_tokens: prompt.len(),
            prompt_time,
            generated_tokens: generated,
            generation_time: start.elapsed(),
            stop,
        })
    }
}

/// The token at `position`: found on the device, or drawn from the logits.
fn choose(outputs: &crate::engine::Outputs<'_>, sampler: &mut Sampler, position: usize) -> Result<u32> {
    if let Some(logits) = outputs.logits(0) {
        return sampler.sample(logits, position as u64);
    }
    outputs.id(0).ok_or(EngineError::NotFinite { position: position.saturating_sub(1) })
}
