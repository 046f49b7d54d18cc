//! How long a draft should be, and whether to draft at all: by what rounds were worth so far.
//!
//! The value of a round is the number of tokens that it is expected to emit, for the time that it is expected to
//! take: (1 + expected accepted) / (draft + verify). Without a draft it is 1 / verify of one row. Acceptance is learned
//! by position, as a moving average, times by length, as the median of the last ones; what was not measured yet follows
//! from its nearest neighbours.

use crate::strategies::MOST_VERIFIED;

/// Lengths of drafts, from 0.
pub(crate) const LENGTHS: usize = MOST_VERIFIED as usize + 1;
/// Weight of a new measurement in an average of acceptance.
const NEW_PART: f64 = 0.06;
/// How many times of a length are kept; their median counts. What else runs on a machine makes some of them much longer,
/// and a mean, or the shortest, would favour those lengths that are measured seldom, or often.
const KEPT_TIMES: usize = 9;
/// Acceptance at a position that nothing is known of, and how many measurements that guess counts for.
const FIRST_GUESS: f64 = 0.75;
const GUESS_SAMPLES: u32 = 3;
/// Drafts of a text before what earlier texts were like may switch a drafter off.
const TRIALS: u32 = 3;
/// What a drafted token costs, in verifications of one row, before it was measured.
const FIRST_DRAFT_COST: f64 = 0.3;
/// How much better than no drafting a draft must be for a drafter that was off to be used again.
const RETURN_MARGIN: f64 = 1.04;
/// A drafter in use goes on down to this: it loses little until it is known better, and off it would gain nothing.
const STAY_MARGIN: f64 = 0.98;
/// Rounds without a draft after which one is tried; doubles while drafting does not pay.
const FIRST_PROBE: u32 = 32;
const LAST_PROBE: u32 = 1024;
/// Rounds after which rounds without a draft are timed again, first and at last: it doubles, since a context's first
/// rounds meet cold caches and fresh memory.
const FIRST_BASELINE_AFTER: u32 = 16;
const LAST_BASELINE_AFTER: u32 = 128;
/// How many of them in a row: what a drafter left of the caches slows down the one behind it.
const BASELINE: u32 = 3;
/// What a round that tries a drafter again may cost, in rounds without a draft.
const PROBE_COST: f64 = 2.2;
/// How often a drafter is asked for its longest draft before it is judged.
const LEAST_TRIES: u32 = 2;

/// A moving average.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    value: f64,
    samples: u32,
}

impl Average {
    /// Adds a sample to an average that begins at a guess.
    fn add(&mut self, sample: f64, guess: f64) {
        if self.samples == 0 {
            (self.value, self.samples) = (guess, GUESS_SAMPLES);
        }
        self.samples += 1;
        // The first samples count equally.
        let part = NEW_PART.max(1.0 / f64::from(self.samples));
        self.value += (sample - self.value) * part;
    }

    fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.value)
    }
}

/// The last few times of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
struct RecentTimes {
    seconds: [f64; KEPT_TIMES],
    samples: u32,
    /// Of those that are kept: it is asked for many times a round, and changes once.
    median: f64,
}

impl RecentTimes {
    fn add(&mut self, seconds: f64) {
        self.seconds[self.samples as usize % KEPT_TIMES] = seconds;
        self.samples = self.samples.saturating_add(1);
        let kept = KEPT_TIMES.min(self.samples as usize);
        let mut sorted = self.seconds;
        let sorted = &mut sorted[..kept];
        sorted.sort_unstable_by(f64::total_cmp);
        // Of an even number the shorter of the two in the middle: the first finds cold caches.
        self.median = sorted[(kept - 1) / 2];
    }

    fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.median)
    }
}

/// Times by length; lengths that were not measured follow from those that were.
#[derive(Clone, Debug)]
struct Times {
    by_length: [RecentTimes; LENGTHS],
    /// What is expected of the times, in any unit.
    expected: [f64; LENGTHS],
}

impl Times {
    fn new(expected: [f64; LENGTHS]) -> Self {
        Self { by_length: [RecentTimes::default(); LENGTHS], expected }
    }

    /// Times that grow with the length.
    fn proportional() -> Self {
        Self::new(std::array::from_fn(|length| length.max(1) as f64))
    }

    /// The time at `length`: measured, or from the nearest shorter one as expected, or between the nearest measured lengths,
    /// whichever is less.
    fn at(&self, length: usize) -> Option<f64> {
        if let Some(known) = self.by_length[length].known() {
            return Some(known);
        }
        let below = (0..length).rev().find_map(|l| self.by_length[l].known().map(|t| (l, t)));
        let above = (length + 1..LENGTHS).find_map(|l| self.by_length[l].known().map(|t| (l, t)));
        let from = |(l, time): (usize, f64)| time * self.expected[length] / self.expected[l];
        match (below, above) {
            (Some((l, t)), Some((m, u))) => {
                // The hopeful of two guesses: who is wrong finds out by trying, while a length that was given up is not tried.
                let between = t + (u - t) * (length - l) as f64 / (m - l) as f64;
                Some(between.min(from((l, t))))
            }
            (Some(known), None) | (None, Some(known)) => Some(from(known)),
            (None, None) => None,
        }
    }
}

/// What is known of one drafter.
#[derive(Clone, Debug)]
struct Drafter {
    /// Acceptance of the token at a position, given that those before were accepted.
    acceptance: [Average; LENGTHS],
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
    /// Its drafts that were judged in this text.
    trials: u32,
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
    /// The times of rounds without a draft are of another state of the machine than the next one.
    is_baseline_old: bool,
    /// Rounds without a draft that are still to be timed.
    baseline_left: u32,
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
            baseline_left: 0,
            rounds: 0,
        }
    }

    /// Adds a drafter that drafts at most `most` tokens; `fixed` if their number is not to be adapted.
    pub fn add_drafter(&mut self, most: usize, free: bool, fixed: bool) {
        self.drafters.push(Drafter {
            acceptance: [Average::default(); LENGTHS],
            times: Times::proportional(),
            tried: [0; LENGTHS],
            free,
            most,
            fixed,
            off: None,
            next_probe: FIRST_PROBE,
            judged: false,
            trials: 0,
        });
    }

    /// A new text begins: what was accepted in the last one says little of it.
    pub fn new_text(&mut self) {
        for drafter in &mut self.drafters {
            for position in &mut drafter.acceptance {
                position.samples = position.samples.min(GUESS_SAMPLES);
                position.value = (position.value + FIRST_GUESS) / 2.0;
            }
            drafter.trials = 0;
            (drafter.off, drafter.next_probe) = (None, FIRST_PROBE);
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
        self.drafters.get(drafter).is_some_and(|d| d.off.is_none_or(|rounds| rounds >= d.next_probe))
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
        // What the longest draft costs has to be seen: a block may cost the same at every length. By its own value such
        // a draft would be left out, and the drafter with it, however good shorter ones are.
        if d.off.is_none() && d.tried[most] < LEAST_TRIES && !d.free {
            return Choice { length: most, value: f64::INFINITY };
        }
        let choices = (1..=most)
            // A probe must not cost much.
            .filter(|&length| length == 1 || d.off.is_none() || self.costs_little(drafter, length))
            .map(|length| Choice { length, value: self.value(drafter, length) });
        choices.fold(Choice { length: most.min(4), value: 0.0 }, |best, choice| {
            if choice.value > best.value { choice } else { best }
        })
    }

    /// Expected tokens per second of a round with a draft of `length` tokens; 0 while no time is known.
    pub fn value(&self, drafter: usize, length: usize) -> f64 {
        let known = self.drafters.get(drafter).zip(self.seconds(drafter, length));
        known.map_or(0.0, |(d, seconds)| (1.0 + d.expected(length)) / seconds)
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
        let plain = self.plain_value();
        let Some(d) = self.drafters.get_mut(drafter).filter(|_| self.enabled) else { return true };
        match d.off {
            Some(rounds) => rounds >= d.next_probe,
            None if d.trials < TRIALS || value == 0.0 || value >= plain * STAY_MARGIN => true,
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
        let at = length.min(LENGTHS - 1);
        if d.off.is_none() || d.times.by_length[at].known().is_none() {
            d.times.by_length[at].add(seconds);
        }
    }

    /// Time of a verification of `drafts` drafted tokens of one sequence.
    pub fn verified(&mut self, drafts: usize, seconds: f64) {
        if drafts == 0 && std::mem::take(&mut self.is_baseline_old) {
            self.verify.by_length[0] = RecentTimes::default();
        }
        self.verify.by_length[drafts.min(LENGTHS - 1)].add(seconds);
    }

    /// A drafter gave nothing although it took the time of a draft of `length` tokens.
    pub fn gave_nothing(&mut self, drafter: usize, length: usize, seconds: f64) {
        self.drafted(drafter, length, length, seconds);
        self.accepted(drafter, 1, 0);
    }

    /// What was accepted of the `judged` tokens of a draft that the target had a say on.
    pub fn accepted(&mut self, drafter: usize, judged: usize, accepted: usize) {
        let Some(d) = self.drafters.get_mut(drafter) else { return };
        d.judged = true;
        for position in 1..=judged.min(accepted + 1).min(LENGTHS - 1) {
            // What the position before is like is the best guess of this one.
            let guess = d.acceptance[position - 1].known().unwrap_or(FIRST_GUESS);
            d.acceptance[position].add(if position <= accepted { 1.0 } else { 0.0 }, guess);
        }
    }

    /// Ends a round: drafters whose drafts were judged are switched off or on.
    pub fn end_round(&mut self) {
        if !self.enabled || self.verify.by_length[0].samples == 0 {
            self.drafters.iter_mut().for_each(|d| d.judged = false);
            return;
        }
        let plain = self.plain_value();
        for index in 0..self.drafters.len() {
            if !std::mem::take(&mut self.drafters[index].judged) {
                continue;
            }
            self.drafters[index].trials = self.drafters[index].trials.saturating_add(1);
            let value = self.best_value(index);
            let d = &mut self.drafters[index];
            let pays = value >= plain * if d.off.is_none() { STAY_MARGIN } else { RETURN_MARGIN };
            match (pays, d.off) {
                (true, _) => (d.off, d.next_probe) = (None, FIRST_PROBE),
                (false, None) if d.trials < TRIALS => {}
                (false, None) => d.off = Some(0),
                (false, Some(_)) => {
                    d.off = Some(0);
                    d.next_probe = (d.next_probe * 2).min(LAST_PROBE);
                }
            }
        }
    }

    /// The value of the drafter's drafts at the length that it would have.
    fn best_value(&self, drafter: usize) -> f64 {
        let d = &self.drafters[drafter];
        let most = d.most.min(LENGTHS - 1);
        if d.fixed {
            return self.value(drafter, most);
        }
        (1..=most).map(|length| self.value(drafter, length)).fold(0.0, f64::max)
    }

    /// Seconds of a verification of `drafts` drafted tokens, if that was measured.
    pub fn verify_seconds(&self, drafts: usize) -> Option<f64> {
        self.verify.by_length.get(drafts)?.known()
    }
}

impl Drafter {
    /// Expected number of accepted tokens of a draft of `length`.
    fn expected(&self, length: usize) -> f64 {
        let mut last = FIRST_GUESS;
        let mut reached = 1.0;
        let mut expected = 0.0;
        for position in 1..=length {
            // Behind the last position that is known, acceptance goes on as there.
            if let Some(known) = self.acceptance.get(position).and_then(Average::known) {
                last = known;
            }
            reached *= last;
            expected += reached;
        }
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length of the draft of a round.
    fn drafted(controller: &mut Controller) -> usize {
        let choice = controller.length(0, 15);
        if controller.begin_round() && controller.is_ready(0) && controller.pays(0, choice.value) {
            controller.length(0, 15).length
        } else {
            0
        }
    }

    /// Plays rounds with a drafter whose tokens are accepted with probability `accept`; times in units of a plain
    /// step. Returns tokens per plain step, and whether drafting ended switched off.
    fn play(accept: f64, draft_cost: f64, row_cost: f64, rounds: usize) -> (f64, bool) {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(8, false, false);
        let mut random = 0x2545_F491_4F6C_DD1Du64;
        let mut uniform = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1u64 << 53) as f64
        };
        let (mut tokens, mut time) = (0.0, 0.0);
        for _ in 0..rounds {
            let length = drafted(&mut controller);
            let draft = draft_cost * length as f64;
            let verify = 1.0 + row_cost * length as f64;
            let accepted = (0..length).take_while(|_| uniform() < accept).count();
            time += draft + verify;
            tokens += 1.0 + accepted as f64;
            controller.verified(length, verify);
            if length > 0 {
                controller.drafted(0, length, length, draft);
                controller.accepted(0, length, accepted);
            }
            controller.end_round();
        }
        (tokens / time, controller.is_off())
    }

    #[test]
    fn a_good_drafter_is_used_near_its_best_length() {
        let (gain, off) = play(0.9, 0.2, 0.05, 600);
        // The best fixed length is 7: 5.70 tokens in 2.75 steps.
        assert!(!off && gain > 1.9, "{gain}");
    }

    /// A text that cannot be guessed says little of the next.
    #[test]
    fn a_bad_text_does_not_spoil_the_next() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(4, false, false);
        for text in 0..20 {
            let is_good = text % 2 == 1;
            let mut drafts = 0;
            for _ in 0..60 {
                let length = drafted(&mut controller);
                controller.verified(length, 1.0 + 0.1 * length as f64);
                if length > 0 {
                    drafts += 1;
                    controller.drafted(0, length, length, 0.2 * length as f64);
                    controller.accepted(0, length, if is_good { length } else { 0 });
                }
                controller.end_round();
            }
            assert!(if is_good { drafts > 40 } else { drafts < 12 }, "text {text}: {drafts} drafts");
            controller.new_text();
        }
    }

    /// Seeing that long drafts do not pay says nothing of short ones.
    #[test]
    fn a_drafter_whose_short_drafts_alone_pay_is_used() {
        // Of a draft of 8, 2.2 tokens are accepted for 3.2 plain steps; of one of 2, 1.2 for 1.5.
        let (gain, off) = play(0.7, 0.15, 0.15, 600);
        assert!(!off && gain > 1.3, "{gain}");
    }

    #[test]
    fn a_useless_drafter_costs_little() {
        for accept in [0.0, 0.2] {
            let (gain, off) = play(accept, 0.3, 0.15, 600);
            assert!(off && gain > 0.97, "{accept}: {gain}");
        }
    }

    #[test]
    fn a_drafter_that_turns_good_is_found_again() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(4, false, false);
        let mut round = |good: bool| {
            let length = drafted(&mut controller);
            controller.verified(length, 1.0 + 0.1 * length as f64);
            if length > 0 {
                controller.drafted(0, length, length, 0.2 * length as f64);
                controller.accepted(0, length, if good { length } else { 0 });
            }
            controller.end_round();
            controller.is_off()
        };
        assert!((0..100).any(|_| round(false)));
        assert!((0..2000).any(|_| !round(true)));
    }

    /// A bad drafter is left alone for longer and longer, whatever another one is worth.
    #[test]
    fn a_bad_drafter_does_not_hide_behind_another() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(8, true, false);
        controller.add_drafter(8, false, false);
        let mut asked = 0;
        for _ in 0..2000 {
            let drafting = controller.begin_round();
            let choice = controller.length(1, 15);
            // The free one never finds anything.
            if drafting && controller.is_ready(1) && controller.pays(1, choice.value) {
                asked += 1;
                controller.drafted(1, choice.length, choice.length, 0.3 * choice.length as f64);
                controller.verified(choice.length, 1.0 + 0.1 * choice.length as f64);
                controller.accepted(1, choice.length, 0);
            } else {
                controller.verified(0, 1.0);
            }
            controller.end_round();
        }
        assert!((2..20).contains(&asked), "{asked}");
    }

    /// A drafter that gives less than it is asked for is judged all the same.
    #[test]
    fn a_drafter_that_stops_early_is_judged() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(8, false, false);
        let mut drafted = 0;
        for _ in 0..200 {
            let choice = controller.length(0, 15);
            if controller.begin_round() && controller.is_ready(0) && controller.pays(0, choice.value) {
                drafted += 1;
                controller.drafted(0, choice.length, 1, 0.5);
                controller.verified(1, 1.1);
                controller.accepted(0, 1, 0);
            } else {
                controller.verified(0, 1.0);
            }
            controller.end_round();
        }
        assert!(controller.is_off() && drafted < 20, "{drafted}");
    }

    /// A launch that guesses nothing costs time too.
    #[test]
    fn empty_drafts_switch_a_drafter_off() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(4, false, false);
        let mut asked = 0;
        for _ in 0..200 {
            let choice = controller.length(0, 15);
            if controller.begin_round() && controller.is_ready(0) && controller.pays(0, choice.value) {
                asked += 1;
                controller.gave_nothing(0, choice.length, 0.4);
            }
            controller.verified(0, 1.0);
            controller.end_round();
        }
        assert!(asked < 20, "{asked}");
    }

    #[test]
    fn a_fixed_length_is_kept() {
        let mut controller = Controller::new(true, std::array::from_fn(|drafts| 1.0 + 0.1 * drafts as f64));
        controller.add_drafter(6, false, true);
        for _ in 0..50 {
            controller.accepted(0, 6, 0);
        }
        assert_eq!(controller.length(0, 15).length, 6);
        assert_eq!(controller.length(0, 3).length, 3);
    }
}
