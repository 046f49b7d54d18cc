//! Guessing ahead: drafters propose, the target verifies, what agrees is kept.
//!
//! A round of a sequence has the anchor, the last token of the text, and drafted tokens behind it. All are processed
//! in one run of the target; its own tokens at these rows are the text, and a drafted token is accepted if the target
//! says the same. The rows behind the first that does not agree are taken back. A round without a draft goes the same
//! way. So a drafter can change the time that a text takes, and nothing else.
//!
//! The one exception is asked for: with [`Acceptance::Reject`] the text is another than without a drafter, and distributed
//! as the target's only if the drafter really draws from the distributions that it gives.

mod controller;
mod draft;
mod report;
mod round;

pub use report::{DrafterReport, SpeculationReport, TimeSplit};
pub(crate) use round::{OnLogits, RoundIo, Running, choose, round};

use crate::context::Context;
use crate::engine::SequenceId;
use crate::strategies::{Acceptance, Drafter, RunSession, STAGED_AFTER_MICROBATCH, Select, StrategyOptions};
use controller::{Controller, LENGTHS};
use paceline_gguf::Gguf;
use paceline_plugin_api::strategy::{Outcome, draft_cost, draft_kind};
use std::sync::Arc;
use std::time::Duration;

/// Longest draft that is asked for at once; it is verified in windows.
const LONGEST_DRAFT: usize = 1024;
/// A drafter in use.
struct Active {
    drafter: Drafter,
    report: DrafterReport,
    /// Drafts that were no tokens, over all reports.
    unsound: u64,
}

impl Active {
    fn is_free(&self) -> bool {
        self.drafter.client.info().cost == draft_cost::FREE
    }

    fn is_enabled(&self) -> bool {
        self.report.disabled.is_none()
    }

    fn disable(&mut self, reason: String) {
        tracing::warn!("strategy `{}` is not used any more: {reason}", self.report.plugin);
        self.report.disabled = Some(reason);
    }
}

/// A draft that is being verified.
#[derive(Debug, Default)]
struct Pending {
    drafter: usize,
    tokens: Vec<u32>,
    /// What its tokens were drawn from, a row each, if the drafter told and it is wanted.
    distributions: Vec<f32>,
    has_distributions: bool,
    /// Tokens of it that were accepted in earlier windows.
    accepted: usize,
    /// Tokens of the window in verification.
    window: usize,
    wanted: usize,
}

impl Pending {
    fn drop_rest(&mut self) {
        self.tokens.clear();
        self.accepted = 0;
    }
}

/// What is kept of one sequence.
#[derive(Debug, Default)]
struct Sequence {
    pending: Pending,
    /// The rows of the round: anchor, then the window of the draft.
    rows: Vec<u32>,
    /// Tokens that were kept but that not all drafters were told of, the first at this position.
    unobserved_from: usize,
    unobserved: Vec<u32>,
    /// How many of them each drafter was told of.
    told: Vec<usize>,
}

impl Sequence {
    /// `tokens` at `position` were processed and are kept for now.
    fn keep(&mut self, position: usize, tokens: &[u32]) {
        if self.unobserved.is_empty() {
            self.unobserved_from = position;
        }
        self.unobserved.extend_from_slice(tokens);
    }

    /// The last `count` of the tokens that were kept are not part of the text any more.
    fn take_back(&mut self, count: usize) {
        let kept = self.unobserved.len().saturating_sub(count);
        self.unobserved.truncate(kept);
        self.told.iter_mut().for_each(|told| *told = kept.min(*told));
        self.forget_told();
    }

    /// Tokens that all were told of are not needed any more.
    fn forget_told(&mut self) {
        if self.told.iter().all(|&told| told >= self.unobserved.len()) {
            self.forget_all();
        }
    }

    fn forget_all(&mut self) {
        self.unobserved.clear();
        self.told.fill(0);
    }
}

/// The drafters of a context, and what is known of their worth.
pub(crate) struct Speculation {
    drafters: Vec<Active>,
    draft_file: Option<Arc<Gguf>>,
    acceptance: Acceptance,
    select: Select,
    controller: Controller,
    sequences: Vec<Sequence>,
    report: SpeculationReport,
    tokens: Vec<u32>,
    confidence: Vec<f32>,
    /// Distributions of the draft in `tokens`, where a drafter gives them and they are wanted.
    distributions: Vec<f32>,
    has_distributions: bool,
    vocabulary: usize,
}

impl Speculation {
    pub fn new(context: &Context, drafters: Vec<Drafter>, options: &StrategyOptions) -> Self {
        let mut controller = Controller::new(options.controller, verify_estimates(context));
        let vocabulary = context.model.shape().vocabulary as usize;
        let mut longest = 0;
        let mut with_distributions = 0;
        for drafter in &drafters {
            let info = drafter.client.info();
            let most = (info.most as usize).min(LONGEST_DRAFT);
            controller.add_drafter(most, info.cost == draft_cost::FREE, info.fixed);
            longest = longest.max(most);
            if info.kind == draft_kind::DISTRIBUTION && options.acceptance == Acceptance::Reject {
                with_distributions = context.shape.rollback_depth as usize;
            }
        }
        let most_kept = context.shape.staged_rows as usize;
        let sequence = || Sequence {
            pending: Pending {
                tokens: Vec::with_capacity(longest),
                distributions: vec![0.0; with_distributions * vocabulary],
                ..Pending::default()
            },
            rows: Vec::with_capacity(context.shape.planes() as usize),
            unobserved_from: 0,
            unobserved: Vec::with_capacity(if drafters.is_empty() { 0 } else { most_kept }),
            told: vec![0; drafters.len()],
        };
        Self {
            sequences: (0..context.shape.sequences).map(|_| sequence()).collect(),
            drafters: drafters
                .into_iter()
                .map(|drafter| Active {
                    report: DrafterReport::new(drafter.client.plugin()),
                    drafter,
                    unsound: 0,
                })
                .collect(),
            draft_file: options.draft.clone(),
            acceptance: options.acceptance,
            select: options.select,
            controller,
            report: SpeculationReport::default(),
            tokens: vec![0; longest],
            confidence: vec![0.0; longest],
            distributions: vec![0.0; with_distributions * vocabulary],
            has_distributions: false,
            vocabulary,
        }
    }

    /// True if there is a drafter.
    fn is_active(&self) -> bool {
        self.drafters.iter().any(Active::is_enabled)
    }

    /// A sequence begins, empty.
    pub fn begin(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id.0 as usize) else { return };
        sequence.pending.drop_rest();
        sequence.rows.clear();
        sequence.forget_all();
        for active in self.drafters.iter_mut().filter(|d| d.is_enabled()) {
            if let Err(error) = active.drafter.client.begin(id.0) {
                active.disable(error.to_string());
            }
        }
    }

    /// A new text begins in the context.
    pub fn new_text(&mut self) {
        self.controller.new_text();
    }

    /// The target has processed tokens at `position`, outside of a round, and they are kept for now.
    pub fn processed(&mut self, id: SequenceId, position: usize, tokens: &[u32]) {
        let is_active = self.is_active();
        let Some(sequence) = self.sequences.get_mut(id.0 as usize) else { return };
        // What was drafted followed another text.
        sequence.pending.drop_rest();
        if is_active {
            sequence.keep(position, tokens);
        }
    }

    /// A run of `rows` rows of a sequence was refused or failed: they were not processed.
    pub fn not_processed(&mut self, id: SequenceId, rows: usize) {
        if let Some(sequence) = self.sequences.get_mut(id.0 as usize) {
            sequence.take_back(rows);
        }
    }

    /// The first `count` rows of a sequence's round, at `position`, are kept.
    fn keep_rows(&mut self, id: SequenceId, position: usize, count: usize) {
        if !self.is_active() {
            return;
        }
        let sequence = &mut self.sequences[id.0 as usize];
        let rows = std::mem::take(&mut sequence.rows);
        sequence.keep(position, &rows[..count]);
        sequence.rows = rows;
    }

    /// The last `rows` positions were taken back; `length` remain.
    pub fn taken_back(&mut self, id: SequenceId, rows: usize, length: usize) {
        let Some(sequence) = self.sequences.get_mut(id.0 as usize) else { return };
        sequence.take_back(rows);
        sequence.pending.drop_rest();
        for active in self.drafters.iter_mut().filter(|d| d.is_enabled()) {
            if let Err(error) = active.drafter.client.truncate(id.0, length as u32) {
                active.disable(error.to_string());
            }
        }
    }

    /// Tells drafters what was kept since they were told last, before a run of `rows` rows of a sequence. One that is switched
    /// off need not know yet: it works on many tokens in less time than on one after the other, and on those of a text that it
    /// is never asked in not at all. What it works on, the hidden states of positions, is kept for so many rows.
    pub fn catch_up(&mut self, context: &mut Context, rows: usize) {
        let room = (context.shape.staged_rows as usize)
            .saturating_sub(rows.saturating_add(STAGED_AFTER_MICROBATCH as usize));
        for slot in 0..self.sequences.len() {
            let waiting = self.sequences[slot].unobserved.len();
            for index in 0..self.drafters.len() {
                let may_wait = waiting <= room && !self.drafters[index].is_free();
                if !may_wait || self.controller.is_ready(index) {
                    self.tell(context, slot, index);
                }
            }
            self.sequences[slot].forget_told();
        }
    }

    /// Tells drafters all that was kept.
    pub fn tell_all(&mut self, context: &mut Context) {
        self.catch_up(context, usize::MAX);
    }

    /// Tells a drafter what was kept of a sequence.
    fn tell(&mut self, context: &mut Context, slot: usize, index: usize) {
        let (sequence, active) = (&mut self.sequences[slot], &mut self.drafters[index]);
        let told = std::mem::replace(&mut sequence.told[index], sequence.unobserved.len());
        let tokens = &sequence.unobserved[told..];
        if tokens.is_empty() || !active.is_enabled() {
            return;
        }
        let mut session = RunSession {
            context,
            draft: self.draft_file.as_deref(),
            programs: active.drafter.programs.clone(),
            draws: None,
        };
        let position = (sequence.unobserved_from + told) as u32;
        if let Err(error) = active.drafter.client.observe(&mut session, slot as u32, position, tokens) {
            active.disable(error.to_string());
        }
    }

    /// The distribution that a drafted token of the round was drawn from, if it is to be accepted by it.
    fn distribution(&self, id: SequenceId, position: usize) -> Option<&[f32]> {
        let pending = &self.sequences[id.0 as usize].pending;
        if self.acceptance != Acceptance::Reject || !pending.has_distributions {
            return None;
        }
        let row = pending.accepted + position;
        pending.distributions.get(row * self.vocabulary..(row + 1) * self.vocabulary)
    }

    /// What became of a sequence's round: `accepted` tokens of the window, and `last`, the last token that was emitted.
    /// If the text was `cut`, the target had no say on the rest of the window.
    fn settle(&mut self, id: SequenceId, accepted: usize, last: u32, cut: bool) {
        let pending = &mut self.sequences[id.0 as usize].pending;
        if pending.tokens.is_empty() {
            return;
        }
        let window = pending.window;
        let judged = if cut { accepted } else { window };
        let mut verified = pending.accepted + judged;
        pending.accepted += accepted;
        let mut goes_on = accepted == window && !cut;
        if goes_on && let Some(&next) = pending.tokens.get(pending.accepted) {
            // Behind a window that was accepted whole the target said one token more: the draft's next, or it ends.
            goes_on = next == last;
            pending.accepted += usize::from(goes_on);
            verified += 1;
        }
        goes_on &= pending.accepted < pending.tokens.len();
        let (drafter, total, all) = (pending.drafter, pending.accepted, pending.tokens.len());
        let wanted = pending.wanted;
        if !goes_on {
            pending.drop_rest();
        }
        if let Some(active) = self.drafters.get_mut(drafter) {
            active.report.add(judged, accepted);
        }
        if judged > 0 {
            self.controller.accepted(drafter, judged, accepted);
        }
        if goes_on {
            return;
        }
        for (index, active) in self.drafters.iter_mut().enumerate() {
            if active.report.disabled.is_some() {
                continue;
            }
            let mine = index == drafter;
            let number = |value: usize| if mine { value as u32 } else { 0 };
            let outcome = Outcome {
                sequence: id.0,
                verified: number(verified),
                accepted: number(total),
                drafted: number(all),
                wanted: number(wanted),
            };
            if let Err(error) = active.drafter.client.resolve(outcome) {
                active.disable(error.to_string());
            }
        }
    }

    /// What drafters keep of a sequence, by plugin.
    pub fn save(&self, id: SequenceId) -> Vec<(String, Vec<u8>)> {
        let active = self.drafters.iter().filter(|d| d.is_enabled());
        active
            .filter_map(|d| {
                let saved = d.drafter.client.save(id.0).unwrap_or_else(|error| {
                    tracing::warn!("strategy `{}` could not save a sequence: {error}", d.report.plugin);
                    None
                })?;
                Some((d.report.plugin.clone(), saved))
            })
            .collect()
    }

    /// A sequence was filled with these tokens; what drafters kept of it is in `saved`.
    pub fn restore(&mut self, id: SequenceId, tokens: &[u32], saved: &[(&str, &[u8])]) {
        self.begin(id);
        for active in self.drafters.iter_mut().filter(|d| d.is_enabled()) {
            let found = saved.iter().find(|(plugin, _)| *plugin == active.report.plugin);
            let bytes = found.map_or(&[][..], |(_, bytes)| *bytes);
            if let Err(error) = active.drafter.client.restore(id.0, tokens, bytes) {
                active.disable(error.to_string());
            }
        }
    }

    /// What happened since [`Speculation::clear_report`].
    pub fn report(&self) -> SpeculationReport {
        let drafters = self.drafters.iter().map(|active| {
            let explanation = active.drafter.client.explain().unwrap_or_default();
            DrafterReport { explanation, ..active.report.clone() }
        });
        SpeculationReport { drafters: drafters.collect(), ..self.report.clone() }
    }

    /// Begins a new report.
    pub fn clear_report(&mut self) {
        self.report = SpeculationReport::default();
        self.drafters.iter_mut().for_each(|active| active.report.clear());
    }

    /// Seconds of a verification by the number of drafted tokens, as far as they were measured.
    pub fn verify_seconds(&self) -> Vec<(usize, f64)> {
        (0..)
            .map_while(|drafts| (drafts < 16).then(|| (drafts, self.controller.verify_seconds(drafts))))
            .filter_map(|(drafts, seconds)| Some((drafts, seconds?)))
            .collect()
    }

    fn add_time(&mut self, part: fn(&mut TimeSplit) -> &mut Duration, elapsed: Duration) {
        *part(&mut self.report.time) += elapsed;
    }
}

/// Operations that take as long as reading a byte, on a machine that nothing is known of.
const OPERATIONS_PER_BYTE: f64 = 10.0;

/// What the plans say of verifications of 0, 1, ... drafted tokens, against one another.
fn verify_estimates(context: &Context) -> [f64; LENGTHS] {
    std::array::from_fn(|drafts| {
        let work = context.loaded.work(drafts as u32 + 1);
        work.map(|(bytes, operations)| bytes.max(operations / OPERATIONS_PER_BYTE)).sum::<f64>().max(1.0)
    })
}
