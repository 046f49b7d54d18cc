//! What strategies did: counts and times of a context's rounds.

use crate::context::RunCounts;
use crate::strategies::MOST_VERIFIED;
use std::time::Duration;

const POSITIONS: usize = MOST_VERIFIED as usize;

/// Where the time of rounds went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeSplit {
    /// Asking drafters, and telling those that were switched off what they missed.
    pub draft: Duration,
    /// Runs of the target.
    pub verify: Duration,
    /// Telling drafters what was kept.
    pub commit: Duration,
    /// Everything else: sampling, stop conditions, the receiver of the tokens.
    pub host: Duration,
}

/// What one drafter did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrafterReport {
    /// Id of the plugin.
    pub plugin: String,
    /// Drafts that had a token.
    pub drafts: u64,
    /// Tokens that it guessed.
    pub drafted: u64,
    /// Its tokens that were verified.
    pub verified: u64,
    /// Its tokens that were accepted.
    pub accepted: u64,
    /// By position in a verification, from 1: how often a token there was verified, and how often accepted.
    pub positions: Vec<[u64; 2]>,
    /// Drafts that were dropped as a token was outside of the vocabulary, or a probability not finite.
    pub quarantined: u64,
    /// Why it is not asked any more.
    pub disabled: Option<String>,
    /// What the drafter says of itself.
    pub explanation: String,
}

impl DrafterReport {
    pub(super) fn new(plugin: &str) -> Self {
        Self { plugin: plugin.to_owned(), positions: vec![[0; 2]; POSITIONS], ..Self::default() }
    }

    pub(super) fn add(&mut self, verified: usize, accepted: usize) {
        self.verified += verified as u64;
        self.accepted += accepted as u64;
        for (index, [tried, taken]) in self.positions.iter_mut().enumerate().take(verified) {
            *tried += 1;
            *taken += u64::from(index < accepted);
        }
    }

    pub(super) fn clear(&mut self) {
        self.positions.iter_mut().for_each(|p| *p = [0; 2]);
        (self.drafts, self.drafted, self.verified, self.accepted, self.quarantined) = (0, 0, 0, 0, 0);
    }
}

/// What the rounds of a context did since the last report was begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculationReport {
    /// Verifications: a run for each.
    pub rounds: u64,
    /// Rounds with a drafted token.
    pub rounds_with_draft: u64,
    /// Tokens that were emitted, without those that prompts gave.
    pub emitted: u64,
    /// By drafter.
    pub drafters: Vec<DrafterReport>,
    /// Where the time went.
    pub time: TimeSplit,
    /// Runs of strategies' programs.
    pub strategy_runs: RunCounts,
    /// Runs of the target in rounds.
    pub target_runs: RunCounts,
    /// Rounds in which the controller did not draft.
    pub rounds_off: u64,
}

impl SpeculationReport {
    /// Drafted tokens that were verified.
    pub fn verified(&self) -> u64 {
        self.drafters.iter().map(|d| d.verified).sum()
    }

    /// Drafted tokens that were accepted.
    pub fn accepted(&self) -> u64 {
        self.drafters.iter().map(|d| d.accepted).sum()
    }

    /// Tokens that drafters guessed.
    pub fn drafted(&self) -> u64 {
        self.drafters.iter().map(|d| d.drafted).sum()
    }

    /// Accepted among verified, `None` if nothing was verified.
    pub fn acceptance(&self) -> Option<f64> {
        let verified = self.verified();
        (verified > 0).then(|| self.accepted() as f64 / verified as f64)
    }

    /// Mean tokens per round, the one that the target adds included.
    pub fn mean_length(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.emitted as f64 / self.rounds as f64 }
    }

    /// Part of the rounds with a draft.
    pub fn coverage(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.rounds_with_draft as f64 / self.rounds as f64 }
    }
}
