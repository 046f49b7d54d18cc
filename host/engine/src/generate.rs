//! Prompt and continuation of one sequence.

use crate::engine::{Engine, Rows, SequenceId};
use crate::error::{EngineError, Result};
use crate::programs::Want;
use crate::sampling::Sampler;
use crate::speculation::{OnLogits, RoundIo, Running, choose, round};
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

/// A text to be generated, with others or alone.
pub struct Task<'a> {
    /// The sequence that it continues.
    pub sequence: SequenceId,
    /// Tokens that come first, at least one.
    pub prompt: &'a [u32],
    /// Draws the tokens.
    pub sampler: &'a mut Sampler,
    /// What is asked for.
    pub options: GenerationOptions<'a>,
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
        let task = Task { sequence, prompt, sampler, options };
        let mut reports = Vec::with_capacity(1);
        self.generate_each(&mut [task], progress, &mut |_, token| on_token(token), None, &mut reports)?;
        reports.pop().ok_or_else(|| EngineError::Request("there is nothing to generate".into()))
    }

    /// Continues several sequences together; `on_token` receives the index of a task and its token.
    ///
    /// # Errors
    /// As for [`Engine::prompt`]; logits that are not numbers. An error ends all of the texts.
    pub fn generate_all(
        &mut self,
        tasks: &mut [Task<'_>],
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<GenerationReport>> {
        let mut reports = Vec::with_capacity(tasks.len());
        self.generate_each(tasks, &mut |_| {}, on_token, None, &mut reports)?;
        Ok(reports)
    }

    /// As [`Engine::generate_all`], and `on_logits` sees the logits that every emitted token was chosen from: index of
    /// the task, position of the token, logits.
    ///
    /// # Errors
    /// As there.
    pub fn generate_watched(
        &mut self,
        tasks: &mut [Task<'_>],
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
        on_logits: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<Vec<GenerationReport>> {
        let mut reports = Vec::with_capacity(tasks.len());
        self.generate_each(tasks, &mut |_| {}, on_token, Some(on_logits), &mut reports)?;
        Ok(reports)
    }

    fn generate_each(
        &mut self,
        tasks: &mut [Task<'_>],
        progress: &mut dyn FnMut(usize),
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
        on_logits: Option<OnLogits<'_>>,
        reports: &mut Vec<GenerationReport>,
    ) -> Result<()> {
        let greedy = tasks.iter().all(|task| task.sampler.options().is_greedy());
        let want = if greedy && on_logits.is_none() { Want::Ids } else { Want::Logits };
        let context = self.context_length();
        // The closures live for different times; both live for this call.
        let on_logits = on_logits.map(|see| &mut *see as OnLogits<'_>);
        let mut io = RoundIo { want, on_token: &mut *on_token, on_logits };
        let mut texts = Vec::with_capacity(tasks.len());
        let mut prompts = Vec::with_capacity(tasks.len());
        self.speculation.new_text();
        for (index, task) in tasks.iter_mut().enumerate() {
            task.prompt.iter().for_each(|&token| task.sampler.observe(token));
            let start = Instant::now();
            let position = self.sequence_length(task.sequence) + task.prompt.len();
            let outputs = self.prompt(task.sequence, task.prompt, want, progress)?;
            let mut text = Running {
                sequence: task.sequence,
                end_tokens: task.options.end_tokens,
                tokens: task.options.tokens,
                generated: 0,
                anchor: 0,
                stop: None,
                sampler: &mut *task.sampler,
            };
            if let (Some(see), Some(logits)) = (io.on_logits.as_mut(), outputs.logits(0)) {
                see(index, position, logits);
            }
            let token = choose(&outputs, 0, text.sampler, position)?;
            prompts.push((task.prompt.len(), start.elapsed()));
            text.emit(index, token, position, context, &mut *io.on_token);
            texts.push(text);
        }

        let start = Instant::now();
        while texts.iter().any(|text| text.stop.is_none()) {
            round(&mut self.context, &mut self.speculation, &mut texts, &mut io)?;
        }
        let generation_time = start.elapsed();
        for (text, (prompt_tokens, prompt_time)) in texts.iter().zip(prompts) {
            reports.push(GenerationReport {
                prompt_tokens,
                prompt_time,
                generated_tokens: text.generated,
                generation_time,
                stop: text.stop.unwrap_or(StopReason::Length),
            });
        }
        Ok(())
    }
}
