//! How long a draft should be, and whether to draft at all: by what rounds were worth so far.
//!
//! The value of a round is the number of tokens that it is expected to emit, for the time that it is expected to
//! take: (1 + expected accepted) / (draft + verify). Without a draft it is 1 / verify of one row. Acceptance is learned
//! by position, of this text and of earlier ones, times by length, as the median of the last ones; what was not measured
//! yet follows from its nearest neighbours. The neighbours of the best length are tried now and then.

mod acceptance;
mod times;

use crate::strategies::MOST_VERIFIED;
use acceptance::Acceptance;
use times::{RecentTimes, Times};

/// Lengths of drafts, from 0.
pub(crate) const LENGTHS: usize = MOST_VERIFIED as usize + 1;
/// Drafts of a text before it may switch a drafter off, and of a context, whose first ones find cold caches.
const TRIALS: u32 = 3;
const FIRST_TRIALS: u32 = 8;
/// A drafter that seems to be worth less than this, of no drafting, needs no more trials.
const NO_DOUBT: f64 = 0.6;
/// A drafter that is usually worth less than this, of no drafting, is not tried anew in every text, once it has made so many
/// drafts.
const HOPELESS: f64 = 0.95;
const KNOWN_AFTER: u32 = 16;
/// What a drafted token costs, in verifications of one row, before it was measured.
const FIRST_DRAFT_COST: f64 = 0.3;
/// How much better than no drafting a draft must be for a drafter that was off to be used again.
const RETURN_MARGIN: f64 = 1.04;
/// Rounds without a draft after which one is tried; doubles while drafting does not pay.
const FIRST_PROBE: u32 = 32;
const LAST_PROBE: u32 = 1024;
/// Rounds after which rounds without a draft are timed again, first and at last: it doubles, since a context's first
/// rounds meet cold caches and fresh memory.
const FIRST_BASELINE_AFTER: u32 = 16;
const LAST_BASELINE_AFTER: u32 = 128;
/// How many of them in a row, and how many of these count: a drafter's weights take the place of the model's in caches, and
/// the first rounds behind a draft are slower than others.
const BASELINE: u32 = 4;
const BASELINE_SKIPPED: u32 = 2;
/// A machine is another one, faster or slower, if rounds without a draft take less or more than before by this factor. All
/// other times are held against them, so they are taken to have changed as much.
const ANOTHER_MACHINE: f64 = 1.1;
/// Drafts in a row that try a drafter again: the first has to catch up, and finds cold caches.
const PROBE: u32 = 3;
/// What a round that tries a drafter again may cost, in rounds without a draft.
const PROBE_COST: f64 = 2.2;
/// What drafts may lose all in all, in rounds without a draft: so many, and this part of all rounds. What they gained before
/// makes up for no more than so many.
const FIRST_ALLOWANCE: f64 = 12.0;
const ALLOWANCE: f64 = 0.01;
const MOST_CREDIT: f64 = 24.0;
/// The length that a drafter begins with.
const FIRST_LENGTH: usize = 4;
/// Drafts at the best length between those that try another one, first and at last, and how many these are: the first of
/// them finds cold caches.
const FIRST_SEARCH_AFTER: u32 = 4;
const LAST_SEARCH_AFTER: u32 = 64;
const SEARCH: u32 = 3;
/// A length is tried whose value is this part of the best one's or more.
const WORTH_TRYING: f64 = 0.9;

/// Drafts of a length that is not the best known one.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The length, while drafts of it are left.
    length: usize,
    left: u32,
    /// Drafts since the last ones, and those until the next.
    since: u32,
    after: u32,
}

/// What is known of one drafter.
#[derive(Clone, Debug)]
struct Drafter {
    acceptance: Acceptance,
    times: Times,
    /// How often drafts of a length were asked for; it may have given less.
    tried: [u32; LENGTHS],
    free: bool,
    most: usize,
    fixed: bool,
    /// Rounds since its drafts were found not to pay.
    off: Option<u32>,
    /// Rounds after which one is tried again.
    next_probe: u32,
    /// One of its drafts was judged in this round.
    judged: bool,
    /// Drafts of the present probe that are left.
    probe_left: u32,
    /// Its drafts that were judged in this text, and in all.
    trials: u32,
    drafts: u32,
    /// Rounds without a draft that its drafts have cost more than they were worth.
    lost: f64,
    search: Search,
}

/// What to do in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Length of the draft; 0 for none.
    pub length: usize,
    /// Expected tokens per second; 0 while no time is known, infinite for a draft that has to be made to see what it costs.
    pub value: f64,
}

/// What is learned about the rounds of a context.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    enabled: bool,
    verify: Times,
    drafters: Vec<Drafter>,
    since_baseline: u32,
    /// Rounds after the last baseline until the next.
    next_baseline: u32,
    /// The times of rounds without a draft may be of another state of the machine than the next one.
    is_baseline_old: bool,
    /// What such a round took when it was timed last.
    last_baseline: Option<f64>,
    /// Rounds without a draft that are still to be made.
    baseline_left: u32,
    /// Rounds without a draft since the last one with one.
    undrafted: u32,
    /// What the first of them take, and whose draft was the last one.
    behind_draft: [RecentTimes; BASELINE_SKIPPED as usize],
    last_drafter: Option<usize>,
    rounds: u64,
}

impl Controller {
    /// A controller; `verify` are the expected times of verifications of 0, 1, ... drafted tokens, in any unit.
    pub fn new(enabled: bool, verify: [f64; LENGTHS]) -> Self {
        Self {
            enabled,
            verify: Times::new(verify),
            drafters: Vec::new(),
            since_baseline: 0,
            next_baseline: FIRST_BASELINE_AFTER,
            is_baseline_old: false,
            last_baseline: None,
            baseline_left: 0,
            undrafted: 0,
            behind_draft: [RecentTimes::default(); BASELINE_SKIPPED as usize],
            last_drafter: None,
            rounds: 0,
        }
    }

    /// Adds a drafter that drafts at most `most` tokens; `fixed` if their number is not to be adapted.
    pub fn add_drafter(&mut self, most: usize, free: bool, fixed: bool) {
        self.drafters.push(Drafter {
            acceptance: Acceptance::new(),
            times: Times::proportional(),
            tried: [0; LENGTHS],
            free,
            most,
            fixed,
            off: None,
            next_probe: FIRST_PROBE,
            judged: false,
            probe_left: PROBE,
            trials: 0,
            drafts: 0,
            lost: 0.0,
            search: Search { length: 0, left: 0, since: 0, after: FIRST_SEARCH_AFTER },
        });
    }

    /// A new text begins.
    pub fn new_text(&mut self) {
        let plain = self.plain_value();
        for index in 0..self.drafters.len() {
            self.drafters[index].acceptance.new_text();
            let value = self.best(index, LENGTHS - 1).value;
            let d = &mut self.drafters[index];
            let is_hopeless = d.drafts >= KNOWN_AFTER && value < plain * HOPELESS;
            d.trials = 0;
            if d.off.is_none() || !is_hopeless {
                (d.off, d.next_probe, d.probe_left) = (None, FIRST_PROBE, PROBE);
            }
        }
    }

    /// Begins a round: false if it is to be one without drafts, whose time is needed to judge the others.
    pub fn begin_round(&mut self) -> bool {
        if !self.enabled {
            return true;
        }
        self.rounds += 1;
        self.since_baseline += 1;
        for drafter in &mut self.drafters {
            drafter.off = drafter.off.map(|rounds| rounds.saturating_add(1));
        }
        if self.rounds == 2 {
            self.baseline_left = BASELINE;
        } else if self.since_baseline >= self.next_baseline {
            self.next_baseline = (self.next_baseline * 2).min(LAST_BASELINE_AFTER);
            self.baseline_left = BASELINE;
            self.is_baseline_old = true;
        }
        if self.baseline_left == 0 {
            return true;
        }
        self.baseline_left -= 1;
        self.since_baseline = 0;
        false
    }

    /// True if drafts of the drafter are worth it as far as is known, or one is due that tries it again.
    pub fn is_ready(&self, drafter: usize) -> bool {
        self.may_lose(drafter)
            && self.drafters.get(drafter).is_some_and(|d| d.off.is_none_or(|rounds| rounds >= d.next_probe))
    }

    /// False if a drafter's drafts have cost too much for now, whatever they promise.
    fn may_lose(&self, drafter: usize) -> bool {
        let allowance = FIRST_ALLOWANCE + ALLOWANCE * self.rounds as f64;
        !self.enabled || self.drafters.get(drafter).is_some_and(|d| d.lost < allowance)
    }

    /// Counts what a draft has cost, by the usual times: those of one round say more of what else runs on the machine.
    fn count_loss(&mut self, drafter: usize, length: usize, accepted: usize) {
        let Some((seconds, plain)) = self.seconds(drafter, length).zip(self.verify.at(0)) else { return };
        self.lose(drafter, seconds / plain - (1 + accepted) as f64);
    }

    /// Adds what a drafter has lost, in rounds without a draft; less than 0 if it gained.
    fn lose(&mut self, drafter: usize, rounds: f64) {
        if let Some(d) = self.drafters.get_mut(drafter) {
            d.lost = (d.lost + rounds).max(-MOST_CREDIT);
        }
    }

    /// True while no drafter is worth it.
    pub fn is_off(&self) -> bool {
        !self.drafters.is_empty() && self.drafters.iter().all(|d| d.off.is_some())
    }

    /// The best length of a draft of `drafter`, at most `most`, by its value.
    pub fn length(&self, drafter: usize, most: usize) -> Choice {
        let Some(d) = self.drafters.get(drafter) else { return Choice { length: 0, value: 0.0 } };
        let most = most.min(d.most).min(LENGTHS - 1);
        if !self.enabled || d.fixed || most == 0 {
            return Choice { length: most, value: self.value(drafter, most) };
        }
        // What a draft costs has to be seen: by what is guessed before that, it might never be made.
        if d.off.is_none() && d.tried == [0; LENGTHS] && !d.free {
            return Choice { length: FIRST_LENGTH.min(most), value: f64::INFINITY };
        }
        if d.off.is_none() && d.search.left > 0 && d.search.length <= most {
            // It is asked for by the value of the best one, so that trying it keeps others out of no round.
            return Choice { length: d.search.length, value: self.best(drafter, most).value };
        }
        if d.off.is_some() {
            // A probe must not cost much.
            return self.best_of(drafter, most, |length| self.costs_little(drafter, length));
        }
        self.best(drafter, most)
    }

    /// The length of up to `most` with the best value.
    fn best(&self, drafter: usize, most: usize) -> Choice {
        self.best_of(drafter, most, |_| true)
    }

    /// The same of those lengths that `may` be taken, and of one token.
    fn best_of(&self, drafter: usize, most: usize, may: impl Fn(usize) -> bool) -> Choice {
        let d = &self.drafters[drafter];
        let most = most.min(d.most).min(LENGTHS - 1);
        if d.fixed {
            return Choice { length: most, value: self.value(drafter, most) };
        }
        let choices = (1..=most)
            .filter(|&length| length == 1 || may(length))
            .map(|length| Choice { length, value: self.value(drafter, length) });
        choices.fold(Choice { length: most.min(FIRST_LENGTH), value: 0.0 }, |best, choice| {
            if choice.value > best.value { choice } else { best }
        })
    }

    /// Expected tokens per second of a round with a draft of `length` tokens; 0 while no time is known.
    pub fn value(&self, drafter: usize, length: usize) -> f64 {
        let known = self.drafters.get(drafter).zip(self.seconds(drafter, length));
        known.map_or(0.0, |(d, seconds)| (1.0 + d.acceptance.of_draft(length)) / seconds)
    }

    /// Expected time of a round with a draft of `length` tokens; `None` while no time is known.
    fn seconds(&self, drafter: usize, length: usize) -> Option<f64> {
        let (d, at) = (self.drafters.get(drafter)?, length.min(LENGTHS - 1));
        let verify = self.verify.at(at)?;
        let one = self.verify.at(0).unwrap_or(verify);
        let draft = match d.times.at(at) {
            Some(time) => time,
            None if d.free => 0.0,
            None => one * FIRST_DRAFT_COST * length as f64,
        };
        Some(verify + draft)
    }

    fn costs_little(&self, drafter: usize, length: usize) -> bool {
        let seconds = self.seconds(drafter, length);
        seconds.zip(self.verify.at(0)).is_none_or(|(seconds, plain)| seconds <= plain * PROBE_COST)
    }

    /// Tokens per second without drafts; 0 while no time is known.
    pub fn plain_value(&self) -> f64 {
        self.verify.at(0).map_or(0.0, |time| 1.0 / time)
    }

    /// True if a draft of this value is worth verifying; if not, the drafter is left alone until the next probe, which is
    /// made in any case.
    pub fn pays(&mut self, drafter: usize, value: f64) -> bool {
        let (plain, may_lose) = (self.plain_value(), self.may_lose(drafter));
        let Some(d) = self.drafters.get_mut(drafter).filter(|_| self.enabled) else { return true };
        match d.off {
            _ if !may_lose => false,
            Some(rounds) => rounds >= d.next_probe,
            None if d.is_new(value, plain) || value == 0.0 || value >= plain => true,
            None => {
                d.off = Some(0);
                false
            }
        }
    }

    /// Time that a drafter took for a draft of `length` tokens of the `wanted` ones.
    pub fn drafted(&mut self, drafter: usize, wanted: usize, length: usize, seconds: f64) {
        let Some(d) = self.drafters.get_mut(drafter) else { return };
        let tried = &mut d.tried[wanted.min(LENGTHS - 1)];
        *tried = tried.saturating_add(1);
        // Behind a pause a drafter first has to catch up, which says nothing of the drafts to come.
        if d.off.is_none() || d.probe_left < PROBE || d.times.measured(length).samples() == 0 {
            d.times.add(length, seconds);
        }
        if self.enabled && d.off.is_none() && !d.free && !d.fixed {
            self.search(drafter, wanted);
        }
    }

    /// Goes on with the search for a better length, behind a draft of `wanted` tokens.
    fn search(&mut self, drafter: usize, wanted: usize) {
        let best = self.best(drafter, LENGTHS - 1);
        let d = &mut self.drafters[drafter];
        if d.search.left > 0 {
            d.search.left -= u32::from(wanted == d.search.length);
            return;
        }
        let seen = d.times.measured(wanted).samples();
        if (1..SEARCH).contains(&seen) {
            (d.search.length, d.search.left) = (wanted, SEARCH - seen);
            return;
        }
        d.search.since += 1;
        if d.search.since < d.search.after {
            return;
        }
        (d.search.since, d.search.after) = (0, (d.search.after * 2).min(LAST_SEARCH_AFTER));
        let d = &self.drafters[drafter];
        let neighbours = [best.length + 1, best.length.saturating_sub(1)];
        let worth = neighbours.into_iter().filter(|&length| {
            (1..=d.most.min(LENGTHS - 1)).contains(&length)
                && self.value(drafter, length) >= best.value * WORTH_TRYING
        });
        if let Some(length) = worth.min_by_key(|&length| d.tried[length]) {
            let search = &mut self.drafters[drafter].search;
            (search.length, search.left) = (length, SEARCH);
        }
    }

    /// Time of a verification of `drafts` drafted tokens of one sequence.
    pub fn verified(&mut self, drafts: usize, seconds: f64) {
        self.undrafted = if drafts == 0 { self.undrafted.saturating_add(1) } else { 0 };
        if drafts == 0 {
            if self.undrafted <= BASELINE_SKIPPED && self.verify.measured(0).samples() > 0 {
                self.count_round_behind_draft(seconds);
                return;
            }
            if std::mem::take(&mut self.is_baseline_old) {
                self.last_baseline = self.verify.at(0);
                self.verify.forget(0);
            }
        }
        self.verify.add(drafts, seconds);
        if drafts == 0 && self.verify.measured(0).samples() == BASELINE - BASELINE_SKIPPED {
            self.hold_against_baseline();
        }
    }

    /// What a round behind a draft takes longer than others is the loss of whose draft it was.
    fn count_round_behind_draft(&mut self, seconds: f64) {
        let Some(times) = self.behind_draft.get_mut(self.undrafted.saturating_sub(1) as usize) else {
            return;
        };
        times.add(seconds);
        if let (Some(drafter), Some(usual), Some(plain)) =
            (self.last_drafter, times.known(), self.verify.at(0))
        {
            self.lose(drafter, (usual / plain - 1.0).max(0.0));
        }
    }

    /// Takes all times along if those of rounds without a draft have changed: what was measured on a machine that was busy would
    /// otherwise look slow for ever on one that is not.
    fn hold_against_baseline(&mut self) {
        let (Some(before), Some(now)) = (self.last_baseline.take(), self.verify.measured(0).known()) else {
            return;
        };
        let factor = now / before;
        if !(1.0 / ANOTHER_MACHINE..=ANOTHER_MACHINE).contains(&factor) && factor.is_finite() {
            self.verify.scale_others(Some(0), factor);
            self.behind_draft.iter_mut().for_each(|times| times.scale(factor));
            self.drafters.iter_mut().for_each(|d| d.times.scale_others(None, factor));
        }
    }

    /// A drafter gave nothing although it took the time of a draft of `length` tokens.
    pub fn gave_nothing(&mut self, drafter: usize, length: usize, seconds: f64) {
        self.drafted(drafter, length, length, seconds);
        (self.undrafted, self.last_drafter) = (0, Some(drafter));
        let usual = self.drafters.get(drafter).and_then(|d| d.times.at(length.min(LENGTHS - 1)));
        if let Some((usual, plain)) = usual.zip(self.verify.at(0)) {
            self.lose(drafter, usual / plain);
        }
        self.judged(drafter, 1, 0);
    }

    /// What was accepted of the `judged` tokens of a draft that the target had a say on.
    pub fn accepted(&mut self, drafter: usize, judged: usize, accepted: usize) {
        self.last_drafter = Some(drafter);
        self.count_loss(drafter, judged, accepted);
        self.judged(drafter, judged, accepted);
    }

    /// Learns from what was accepted.
    fn judged(&mut self, drafter: usize, judged: usize, accepted: usize) {
        let Some(d) = self.drafters.get_mut(drafter) else { return };
        d.judged = true;
        if d.off.is_some() && accepted > 0 {
            // The text may have become another one. To age behind a bad draft would bring back what is usual.
            d.acceptance.age();
        }
        d.acceptance.add(judged, accepted);
    }

    /// Ends a round: drafters whose drafts were judged are switched off or on.
    pub fn end_round(&mut self) {
        if !self.enabled || self.verify.measured(0).samples() == 0 {
            self.drafters.iter_mut().for_each(|d| d.judged = false);
            return;
        }
        let plain = self.plain_value();
        for index in 0..self.drafters.len() {
            if !std::mem::take(&mut self.drafters[index].judged) {
                continue;
            }
            let value = self.best(index, LENGTHS - 1).value;
            let may_lose = self.may_lose(index);
            let d = &mut self.drafters[index];
            d.trials = d.trials.saturating_add(1);
            d.drafts = d.drafts.saturating_add(1);
            let pays = value >= plain * if d.off.is_none() { 1.0 } else { RETURN_MARGIN };
            match (pays, d.off) {
                (true, _) => (d.off, d.next_probe, d.probe_left) = (None, FIRST_PROBE, PROBE),
                (false, None) if may_lose && d.is_new(value, plain) => {}
                (false, None) => d.off = Some(0),
                (false, Some(_)) if d.probe_left > 1 => d.probe_left -= 1,
                (false, Some(_)) => {
                    (d.off, d.probe_left) = (Some(0), PROBE);
                    d.next_probe = (d.next_probe * 2).min(LAST_PROBE);
                }
            }
        }
    }

    /// Seconds of a verification of `drafts` drafted tokens, if that was measured.
    pub fn verify_seconds(&self, drafts: usize) -> Option<f64> {
        self.verify.measured(drafts).known()
    }
}

impl Drafter {
    /// Too little was seen of it to believe what it seems to be worth.
    fn is_new(&self, value: f64, plain: f64) -> bool {
        let is_unknown = self.drafts < FIRST_TRIALS || self.search.left > 0;
        self.trials < TRIALS || (is_unknown && value > plain * NO_DOUBT)
    }
}

#[cfg(test)]
mod tests;
