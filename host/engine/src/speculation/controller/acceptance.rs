//! How often the token at each position of a draft is accepted, given that those before it were.
//!
//! Texts differ, and a text's first rounds say little of it. So what earlier texts were like counts for some drafts of the
//! text, the mean of a Beta distribution with that weight: (usual · weight + accepted) / (weight + judged).

use super::LENGTHS;

/// Acceptance at a position that nothing is known of.
const FIRST_GUESS: f64 = 0.75;
/// Drafts that this guess counts for, and those that earlier texts count for.
const GUESS_WEIGHT: f64 = 3.0;
const USUAL_WEIGHT: f64 = 6.0;
/// Drafts that one text may add to what is usual.
const TEXT_WEIGHT: f64 = 12.0;
/// What is left of earlier texts when one is added.
const KEPT_OF_TEXTS: f64 = 0.85;
/// What is left of a text's drafts when one is judged: the last 48 or so count.
const KEPT_OF_DRAFTS: f64 = 1.0 - 1.0 / 48.0;

/// Drafts that reached a position, and those whose token was accepted there; old ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    judged: f64,
    accepted: f64,
}

impl Count {
    fn scale(&mut self, factor: f64) {
        self.judged *= factor;
        self.accepted *= factor;
    }

    /// The share of accepted ones, if `guess` counts for `weight` drafts.
    fn share(&self, guess: f64, weight: f64) -> f64 {
        guess.mul_add(weight, self.accepted) / (weight + self.judged)
    }
}

/// What is known of a drafter's acceptance, by position.
#[derive(Clone, Debug)]
pub(super) struct Acceptance {
    /// Of earlier texts.
    usual: [Count; LENGTHS],
    /// Of this one.
    text: [Count; LENGTHS],
    /// Expected acceptance at each position, given that it is reached: asked for more often than it changes.
    expected: [f64; LENGTHS],
}

impl Acceptance {
    pub fn new() -> Self {
        Self {
            usual: [Count::default(); LENGTHS],
            text: [Count::default(); LENGTHS],
            expected: [FIRST_GUESS; LENGTHS],
        }
    }

    /// What was accepted of a draft that the target judged `judged` tokens of.
    pub fn add(&mut self, judged: usize, accepted: usize) {
        for position in 1..=judged.min(accepted + 1).min(LENGTHS - 1) {
            let count = &mut self.text[position];
            count.scale(KEPT_OF_DRAFTS);
            count.judged += 1.0;
            count.accepted += if position <= accepted { 1.0 } else { 0.0 };
        }
        self.expect();
    }

    /// What this text was like so far is long ago.
    pub fn age(&mut self) {
        self.text.iter_mut().for_each(|count| count.scale(0.5));
        self.expect();
    }

    /// Another text begins.
    pub fn new_text(&mut self) {
        for (usual, text) in self.usual.iter_mut().zip(&mut self.text) {
            let weight = (TEXT_WEIGHT / text.judged.max(f64::MIN_POSITIVE)).min(1.0);
            usual.scale(if text.judged > 0.0 { KEPT_OF_TEXTS } else { 1.0 });
            usual.judged += text.judged * weight;
            usual.accepted += text.accepted * weight;
            *text = Count::default();
        }
        self.expect();
    }

    /// Expected number of accepted tokens of a draft of `length`.
    pub fn of_draft(&self, length: usize) -> f64 {
        let mut reached = 1.0;
        let positions = self.expected.iter().skip(1).take(length);
        positions.fold(0.0, |sum, share| {
            reached *= share;
            sum + reached
        })
    }

    fn expect(&mut self) {
        // What the position before is like is the best guess of one that little is known of.
        let mut guess = FIRST_GUESS;
        for position in 1..LENGTHS {
            let usual = self.usual[position].share(guess, GUESS_WEIGHT);
            let weight = (GUESS_WEIGHT + self.usual[position].judged).min(USUAL_WEIGHT);
            guess = self.text[position].share(usual, weight);
            self.expected[position] = guess;
        }
    }
}
