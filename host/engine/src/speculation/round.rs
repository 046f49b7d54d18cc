//! One round of several sequences.

use super::Speculation;
use super::draft::Turn;
use crate::context::Context;
use crate::engine::{Outputs, Rows, SequenceId};
use crate::error::{EngineError, Result};
use crate::generate::StopReason;
use crate::programs::Want;
use crate::sampling::Sampler;
use crate::strategies::MOST_VERIFIED;
use std::ops::ControlFlow;
use std::time::Instant;

/// Sequences of one run.
const MOST_SEQUENCES: usize = 64;

/// A text that is being generated.
pub(crate) struct Running<'a> {
    pub sequence: SequenceId,
    pub sampler: &'a mut Sampler,
    pub end_tokens: &'a [u32],
    /// Most tokens.
    pub tokens: usize,
    /// Tokens so far.
    pub generated: usize,
    /// The last token, which is not processed yet.
    pub anchor: u32,
    pub stop: Option<StopReason>,
}

/// Receives tokens of texts, by their index.
pub(crate) type OnToken<'a> = &'a mut dyn FnMut(usize, u32) -> ControlFlow<()>;

/// Sees logits: index of the text, position of the token that was chosen from them, logits.
pub(crate) type OnLogits<'a> = &'a mut dyn FnMut(usize, usize, &[f32]);

impl Running<'_> {
    /// Takes a token of the text that belongs at `position`; false if the text ends with it.
    pub fn emit(
        &mut self,
        index: usize,
        token: u32,
        position: usize,
        context: usize,
        on_token: OnToken<'_>,
    ) -> bool {
        self.stop = self.emitted(index, token, on_token);
        if self.stop.is_none() && position >= context {
            self.stop = Some(StopReason::ContextFull);
        }
        self.stop.is_none()
    }

    fn emitted(&mut self, index: usize, token: u32, on_token: OnToken<'_>) -> Option<StopReason> {
        if self.end_tokens.contains(&token) {
            return Some(StopReason::EndToken);
        }
        if self.generated == self.tokens {
            return Some(StopReason::Length);
        }
        self.generated += 1;
        self.anchor = token;
        self.sampler.observe(token);
        if on_token(index, token).is_break() {
            return Some(StopReason::Stopped);
        }
        (self.generated == self.tokens).then_some(StopReason::Length)
    }
}

/// The token at `position`: found on the device, or drawn from the logits.
pub(crate) fn choose(
    outputs: &Outputs<'_>,
    row: usize,
    sampler: &mut Sampler,
    position: usize,
) -> Result<u32> {
    if let Some(logits) = outputs.logits(row) {
        return sampler.sample(logits, position as u64);
    }
    outputs.id(row).ok_or(EngineError::NotFinite { position: position.saturating_sub(1) })
}

/// What a round reads and tells.
pub(crate) struct RoundIo<'a> {
    /// Ids or logits of the target.
    pub want: Want,
    /// Receives the tokens.
    pub on_token: OnToken<'a>,
    /// Sees the logits of every row whose token was emitted: index of the text, position of the token.
    pub on_logits: Option<OnLogits<'a>>,
}

/// The rows of one text in a round, and what became of them.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Index of the text.
    text: usize,
    /// Position of the first row.
    position: usize,
    /// Rows.
    rows: usize,
    /// Tokens that were emitted: as many rows are kept.
    emitted: usize,
    /// Drafted tokens that were accepted.
    accepted: usize,
}

/// Drafts, verifies, accepts and commits for all texts that did not stop; every one gets at least one token.
pub(crate) fn round(
    context: &mut Context,
    speculation: &mut Speculation,
    texts: &mut [Running<'_>],
    io: &mut RoundIo<'_>,
) -> Result<()> {
    let start = Instant::now();
    speculation.catch_up(context, MOST_VERIFIED as usize + 1);
    let told = Instant::now();
    speculation.add_time(|t| &mut t.commit, told - start);

    let mut parts = [Part::default(); MOST_SEQUENCES];
    let count = draft(context, speculation, texts, &mut parts);
    let parts = &mut parts[..count];
    let drafted = Instant::now();
    speculation.add_time(|t| &mut t.draft, drafted - told);

    let before = context.counts;
    let mut rows = [Rows { sequence: SequenceId(0), tokens: &[], outputs: 0 }; MOST_SEQUENCES];
    for (rows, part) in rows.iter_mut().zip(parts.iter()) {
        let sequence = texts[part.text].sequence;
        let tokens = speculation.sequences[sequence.0 as usize].rows.as_slice();
        *rows = Rows { sequence, tokens, outputs: tokens.len() };
    }
    let positions = context.shape.positions as usize;
    // The anchor stays whatever its output is.
    let is_final = parts.iter().all(|part| part.rows == 1);
    let outputs = context.run(&rows[..count], io.want, is_final)?;
    let verified = Instant::now();
    let mut row = 0;
    // An error of one text must not leave rows of the others that were never accepted.
    let mut failed = None;
    for part in parts.iter_mut() {
        let accepted = accept(speculation, &mut texts[part.text], part, &outputs, row, positions, io);
        failed = failed.or(accepted.err());
        row += part.rows;
    }
    let after = context.counts;
    speculation.report.target_runs += after.since(before);
    speculation.add_time(|t| &mut t.verify, verified - drafted);
    if after.loads == before.loads {
        // Of several texts, the time and the draft of the average one.
        let drafts = parts.iter().map(|part| part.rows - 1).sum::<usize>();
        let mean = (drafts as f64 / count.max(1) as f64).round() as usize;
        speculation.controller.verified(mean, (verified - drafted).as_secs_f64() / count.max(1) as f64);
    }
    for part in parts.iter() {
        let text = &texts[part.text];
        let report = &mut speculation.report;
        report.rounds += 1;
        report.rounds_with_draft += u64::from(part.rows > 1);
        report.emitted += part.emitted as u64;
        let cut = text.stop.is_some() && part.emitted == part.accepted;
        speculation.settle(text.sequence, part.accepted, text.anchor, cut);
        // The anchor is part of the text, whatever became of its row's output.
        let kept = part.emitted.max(1);
        speculation.keep_rows(text.sequence, part.position, kept);
        let taken_back = context.roll_back(text.sequence, part.rows - kept);
        failed = failed.or(taken_back.err());
    }
    speculation.controller.end_round();
    speculation.add_time(|t| &mut t.host, verified.elapsed());
    failed.map_or(Ok(()), Err)
}

/// Prepares the rows of texts that did not stop, of as many as one run can have; gives how many these are.
fn draft(
    context: &mut Context,
    speculation: &mut Speculation,
    texts: &[Running<'_>],
    parts: &mut [Part; MOST_SEQUENCES],
) -> usize {
    let most_rows = context.most_equal_rows();
    let running = texts.iter().filter(|t| t.stop.is_none()).count();
    let active = running.min(MOST_SEQUENCES).min(most_rows);
    let share = (most_rows / active.max(1)).clamp(1, MOST_VERIFIED as usize + 1) - 1;
    let depth = share.min(context.shape.rollback_depth as usize);
    let is_active = speculation.is_active();
    let drafting = is_active && speculation.controller.begin_round();
    speculation.report.rounds_off += u64::from(is_active && (!drafting || speculation.controller.is_off()));
    // Where not all fit, they take turns.
    let first = if active < running { speculation.report.rounds as usize % texts.len() } else { 0 };
    let turns = (first..texts.len()).chain(0..first).filter(|&index| texts[index].stop.is_none());
    let mut count = 0;
    for (index, part) in turns.zip(parts.iter_mut().take(active)) {
        let text = &texts[index];
        let position = context.length(text.sequence);
        // The round gives one token more than it accepts, and all must have a place.
        let room = (context.shape.positions as usize).saturating_sub(position + 1);
        let room = room.min((text.tokens - text.generated).saturating_sub(1));
        let turn = Turn {
            id: text.sequence,
            anchor: text.anchor,
            most: depth.min(room),
            most_in_all: room,
            draws: text.sampler.draws(),
        };
        if is_active {
            speculation.prepare(context, turn, drafting);
        } else {
            speculation.prepare_plain(turn);
        }
        let rows = speculation.sequences[text.sequence.0 as usize].rows.len();
        *part = Part { text: index, position, rows, emitted: 0, accepted: 0 };
        count += 1;
    }
    count
}

/// Takes tokens of the target, row after row, as long as the draft agrees with them and the text goes on.
fn accept(
    speculation: &Speculation,
    text: &mut Running<'_>,
    part: &mut Part,
    outputs: &Outputs<'_>,
    first: usize,
    context: usize,
    io: &mut RoundIo<'_>,
) -> Result<()> {
    let rows = &speculation.sequences[text.sequence.0 as usize].rows;
    for row in 0..part.rows {
        let position = part.position + row + 1;
        let drafted = rows.get(row + 1).copied();
        if let (Some(see), Some(logits)) = (io.on_logits.as_mut(), outputs.logits(first + row)) {
            see(part.text, position, logits);
        }
        let distribution = drafted.and_then(|_| speculation.distribution(text.sequence, row));
        let token = match (drafted, distribution, outputs.logits(first + row)) {
            (Some(drafted), Some(distribution), Some(logits)) => {
                text.sampler.accept_or_replace(logits, position as u64, drafted, distribution)?
            }
            _ => choose(outputs, first + row, text.sampler, position)?,
        };
        part.emitted += 1;
        let agrees = drafted == Some(token);
        part.accepted += usize::from(agrees);
        let goes_on = text.emit(part.text, token, position, context, &mut *io.on_token);
        if !goes_on || !agrees {
            break;
        }
    }
    Ok(())
}
