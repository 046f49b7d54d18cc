//! A round's drafts: which drafter is asked, and for how much.

use super::Speculation;
use crate::context::Context;
use crate::engine::SequenceId;
use crate::sampling::Draws;
use crate::strategies::{RunSession, Select};
use paceline_plugin_api::strategy::{Request, draft_kind};
use std::time::Instant;

/// A drafter whose guesses were not tokens this often is not asked any more.
const MOST_UNSOUND: u64 = 32;
/// How far the sum of a distribution may be from 1.
const SUM_TOLERANCE: f64 = 1e-3;

/// A sequence whose round is prepared.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub id: SequenceId,
    /// The last token of the text.
    pub anchor: u32,
    /// Most drafted tokens of the round.
    pub most: usize,
    /// Most tokens that a draft may go on to in later rounds.
    pub most_in_all: usize,
    /// What the text's tokens are drawn with.
    pub draws: Option<Draws>,
}

impl Speculation {
    /// Prepares the rows of a sequence for a round: the anchor, and drafted tokens if the round is to have some.
    pub(super) fn prepare(&mut self, context: &mut Context, turn: Turn, drafting: bool) {
        let slot = turn.id.0 as usize;
        let pending = &mut self.sequences[slot].pending;
        if pending.tokens.len() <= pending.accepted || !self.drafters[pending.drafter].is_enabled() {
            pending.drop_rest();
            if drafting && turn.most > 0 {
                self.draft(context, turn);
            }
        }
        let pending = &self.sequences[slot].pending;
        let left = pending.tokens.len() - pending.accepted.min(pending.tokens.len());
        let window = if left == 0 { 0 } else { self.window(pending.drafter, left.min(turn.most)) };
        let sequence = &mut self.sequences[slot];
        let pending = &mut sequence.pending;
        pending.window = window;
        sequence.rows.clear();
        sequence.rows.push(turn.anchor);
        sequence.rows.extend_from_slice(&pending.tokens[pending.accepted..pending.accepted + window]);
    }

    /// Prepares the rows of a sequence for a round without drafters.
    pub(super) fn prepare_plain(&mut self, turn: Turn) {
        let sequence = &mut self.sequences[turn.id.0 as usize];
        sequence.pending.drop_rest();
        sequence.rows.clear();
        sequence.rows.push(turn.anchor);
    }

    /// How many of `left` drafted tokens are verified in one run.
    fn window(&self, drafter: usize, left: usize) -> usize {
        if self.drafters[drafter].is_free() {
            self.controller.length(drafter, left).length.min(left)
        } else {
            left
        }
    }

    /// Asks the drafters.
    fn draft(&mut self, context: &mut Context, turn: Turn) {
        match self.select {
            Select::Order => self.draft_by_order(context, turn),
            Select::Value => self.draft_by_value(context, turn),
        }
    }

    /// The first that guesses anything and pays.
    fn draft_by_order(&mut self, context: &mut Context, turn: Turn) {
        for index in 0..self.drafters.len() {
            if !self.controller.is_ready(index) {
                continue;
            }
            let choice = self.controller.length(index, turn.most);
            let is_free = self.drafters[index].is_free();
            if !is_free && !self.controller.pays(index, choice.value) {
                continue;
            }
            let wanted = if is_free { turn.most_in_all } else { choice.length };
            let count = self.ask(context, index, turn, wanted);
            if count > 0 {
                let value = self.controller.length(index, count.min(turn.most)).value;
                if !is_free || self.controller.pays(index, value) {
                    self.keep(turn.id, index, count, wanted);
                    return;
                }
            }
        }
    }

    /// Those that cost nothing are all asked; one that runs programs only if it is expected to be better.
    fn draft_by_value(&mut self, context: &mut Context, turn: Turn) {
        // What the draft that is kept is worth.
        let mut best: Option<f64> = None;
        for index in 0..self.drafters.len() {
            if !self.drafters[index].is_free() {
                continue;
            }
            let count = self.ask(context, index, turn, turn.most_in_all);
            if count == 0 {
                continue;
            }
            let value = self.controller.length(index, count.min(turn.most)).value;
            if best.is_none_or(|known| value > known) && self.controller.pays(index, value) {
                best = Some(value);
                self.keep(turn.id, index, count, turn.most_in_all);
            }
        }
        let device = (0..self.drafters.len())
            .filter(|&index| !self.drafters[index].is_free() && self.drafters[index].is_enabled())
            .filter(|&index| self.controller.is_ready(index))
            .map(|index| (index, self.controller.length(index, turn.most)))
            .max_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let Some((index, choice)) = device else { return };
        if best.is_some_and(|free| free >= choice.value) || !self.controller.pays(index, choice.value) {
            return;
        }
        let count = self.ask(context, index, turn, choice.length);
        if count > 0 {
            self.keep(turn.id, index, count, choice.length);
        }
    }

    /// Asks one drafter; gives how many tokens are in the buffer.
    fn ask(&mut self, context: &mut Context, index: usize, turn: Turn, wanted: usize) -> usize {
        let active = &mut self.drafters[index];
        let info = active.drafter.client.info();
        let mut wanted = wanted.min(info.most as usize).min(self.tokens.len());
        let with_distribution = info.kind == draft_kind::DISTRIBUTION && !self.distributions.is_empty();
        if with_distribution {
            // No more than there is room for the distributions of.
            wanted = wanted.min(self.distributions.len() / self.vocabulary);
        }
        if wanted == 0 || !active.is_enabled() {
            return 0;
        }
        // One that was switched off may have been told nothing for a while.
        self.tell(context, turn.id.0 as usize, index);
        let active = &mut self.drafters[index];
        if !active.is_enabled() {
            return 0;
        }
        let frontier = context.length(turn.id) as u32;
        let request = Request { sequence: turn.id.0, frontier, anchor: turn.anchor, most: wanted as u32 };
        let before = context.counts;
        let start = Instant::now();
        let mut session = RunSession {
            context,
            draft: self.draft_file.as_deref(),
            programs: active.drafter.programs.clone(),
            draws: turn.draws,
        };
        let rows = wanted * self.vocabulary;
        // A row that the drafter leaves out must not be one of an earlier draft.
        self.distributions.iter_mut().take(if with_distribution { rows } else { 0 }).for_each(|q| *q = 0.0);
        let distributions = with_distribution.then(|| &mut self.distributions[..rows]);
        let given = active.drafter.client.propose(
            &mut session,
            request,
            &mut self.tokens,
            &mut self.confidence,
            distributions,
        );
        let seconds = start.elapsed().as_secs_f64();
        let runs = context.counts.since(before);
        let is_first_use = runs.loads > 0;
        self.report.strategy_runs += runs;
        let count = match given {
            Ok(count) => count,
            Err(error) => {
                active.disable(error.to_string());
                return 0;
            }
        };
        if !self.is_sound(count, with_distribution) {
            let active = &mut self.drafters[index];
            active.report.quarantined += 1;
            active.unsound += 1;
            if active.unsound >= MOST_UNSOUND {
                active.disable(format!("{MOST_UNSOUND} of its drafts held no tokens of the vocabulary"));
            }
            return 0;
        }
        self.has_distributions = with_distribution;
        if count > 0 {
            let active = &mut self.drafters[index];
            active.report.drafts += 1;
            active.report.drafted += count as u64;
            if !is_first_use {
                self.controller.drafted(index, wanted, count, seconds);
            }
        } else if runs.launches > 0 && !is_first_use {
            self.controller.gave_nothing(index, wanted, seconds);
        }
        count
    }

    /// True if the buffers hold tokens, and distributions that they can have been drawn from.
    fn is_sound(&self, count: usize, with_distribution: bool) -> bool {
        let are_tokens = self.tokens[..count].iter().all(|&id| (id as usize) < self.vocabulary)
            && self.confidence[..count].iter().all(|c| !c.is_infinite());
        let is_drawn = |(token, row): (&u32, &[f32])| {
            let sum: f64 = row.iter().map(|&q| f64::from(q)).sum();
            row.iter().all(|q| q.is_finite() && *q >= 0.0)
                && (sum - 1.0).abs() <= SUM_TOLERANCE
                && row[*token as usize] > 0.0
        };
        are_tokens
            && (!with_distribution
                || self.tokens[..count]
                    .iter()
                    .zip(self.distributions.chunks_exact(self.vocabulary))
                    .all(is_drawn))
    }

    /// The tokens in the buffer are the draft of the round.
    fn keep(&mut self, id: SequenceId, drafter: usize, count: usize, wanted: usize) {
        let pending = &mut self.sequences[id.0 as usize].pending;
        pending.tokens.clear();
        pending.tokens.extend_from_slice(&self.tokens[..count]);
        // The draft of another sequence takes the buffer next, so the rows move along with the tokens.
        std::mem::swap(&mut pending.distributions, &mut self.distributions);
        pending.has_distributions = self.has_distributions;
        (pending.drafter, pending.accepted, pending.wanted) = (drafter, 0, wanted);
    }
}
