//! The sampler chain.

use super::random::{Draws, Purpose, key, uniform};
use crate::error::{EngineError, Result};
use paceline_plugin_api::graph::noise;
use std::cmp::Ordering;

/// What a request asks of the sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Logits are divided by it; 0 takes the largest.
    pub temperature: f32,
    /// Only the k largest logits; 0 for all.
    pub top_k: usize,
    /// Only the smallest set of largest probabilities that reaches p; 1 for all.
    pub top_p: f32,
    /// Only probabilities of at least this part of the largest; 0 for all.
    pub min_p: f32,
    /// Logits of tokens among the last ones are divided by it if positive, multiplied if negative; 1 for none.
    pub repeat_penalty: f32,
    /// How many of the last tokens the penalty sees.
    pub repeat_window: usize,
    /// Seed of the generator.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 40,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_window: 64,
            seed: 0,
        }
    }
}

impl SamplerOptions {
    fn check(&self) -> Result<()> {
        let limits = [
            ("temperature", self.temperature, 0.0, 100.0),
            ("top-p", self.top_p, f32::MIN_POSITIVE, 1.0),
            ("min-p", self.min_p, 0.0, 1.0),
            ("repeat penalty", self.repeat_penalty, 0.01, 100.0),
        ];
        for (name, value, min, max) in limits {
            if !(min..=max).contains(&value) {
                let min = if min == f32::MIN_POSITIVE { "more than 0".into() } else { format!("from {min}") };
                return Err(EngineError::Request(format!(
                    "{name} cannot be {value}; it takes {min} to {max}"
                )));
            }
        }
        Ok(())
    }

    /// True if the largest logit is always taken and nothing changes it.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 && self.repeat_penalty == 1.0
    }
}

/// A candidate: logit, later probability, and id.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    weight: f32,
    id: u32,
}

/// Logits whose largest one tells whether any of them can be among the best.
const GROUP: usize = 64;

/// Larger weights first, lower ids first among equals.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id))
}

/// The largest of a group without NaN, whose order does not matter.
fn largest_of(group: &[f32]) -> f32 {
    const LANES: usize = 16;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = group.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, logit);
        }
    }
    let lanes = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    chunks.remainder().iter().copied().fold(lanes, larger)
}

/// The chain with its buffers; sampling allocates nothing.
pub struct Sampler {
    options: SamplerOptions,
    candidates: Vec<Candidate>,
    /// The largest logit of each group, in order, and then sorted as far as needed.
    largest: Vec<f32>,
    ranked: Vec<f32>,
    /// The last tokens, a ring.
    recent: Vec<u32>,
    next: usize,
}

impl Sampler {
    /// A sampler for a vocabulary.
    ///
    /// # Errors
    /// Options out of range, by name.
    pub fn new(options: SamplerOptions, vocabulary: usize) -> Result<Self> {
        options.check()?;
        let recent = Vec::with_capacity(options.repeat_window);
        let groups = vocabulary.div_ceil(GROUP);
        Ok(Self {
            options,
            candidates: Vec::with_capacity(vocabulary),
            largest: Vec::with_capacity(groups),
            ranked: Vec::with_capacity(groups),
            recent,
            next: 0,
        })
    }

    /// The options.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Tells the sampler of a token of the text: of the prompt, or one that was emitted.
    pub fn observe(&mut self, token: u32) {
        let window = self.options.repeat_window;
        if self.options.repeat_penalty == 1.0 || window == 0 {
            return;
        }
        if self.recent.len() < window {
            self.recent.push(token);
        } else {
            self.recent[self.next] = token;
            self.next = (self.next + 1) % window;
        }
    }

    /// The token at `position`, from the logits of the position before.
    ///
    /// # Errors
    /// Logits that are not numbers.
    pub fn sample(&mut self, logits: &[f32], position: u64) -> Result<u32> {
        self.weigh(logits, position)?;
        if self.options.temperature == 0.0 {
            return Ok(self.candidates.first().map_or(0, |c| c.id));
        }
        Ok(self.draw(position))
    }

    /// Accepts a drafted token that was drawn from `draft`, a distribution over the vocabulary, or gives another in
    /// its place, so that the result is distributed as [`Sampler::sample`] would have it: the token is accepted with
    /// probability min(1, p/q), else the normed positive part of p - q is drawn from (Leviathan et al.,
    /// arXiv 2211.17192).
    ///
    /// # Errors
    /// Logits that are not numbers.
    pub fn accept_or_replace(
        &mut self,
        logits: &[f32],
        position: u64,
        token: u32,
        draft: &[f32],
    ) -> Result<u32> {
        self.weigh(logits, position)?;
        let total: f64 = self.candidates.iter().map(|c| f64::from(c.weight)).sum();
        let target = |c: &Candidate| if self.is_greedy_choice() { 1.0 } else { f64::from(c.weight) / total };
        let drafted = |id: u32| f64::from(draft.get(id as usize).copied().unwrap_or(0.0));
        let p = self.candidates.iter().find(|c| c.id == token).map_or(0.0, target);
        if uniform(self.options.seed, position, Purpose::Acceptance) * drafted(token) < p {
            return Ok(token);
        }
        let rest = |c: &Candidate| (target(c) - drafted(c.id)).max(0.0);
        let left: f64 = self.candidates.iter().map(rest).sum();
        let wanted = uniform(self.options.seed, position, Purpose::Residual) * left;
        let mut reached = 0.0;
        for candidate in &self.candidates {
            reached += rest(candidate);
            if wanted < reached {
                return Ok(candidate.id);
            }
        }
        // Rounding: the last one that can be drawn; with equal distributions, any that p has.
        let last = self.candidates.iter().rev();
        Ok(last.clone().find(|c| rest(c) > 0.0).or(last.clone().next()).map_or(0, |c| c.id))
    }

    fn is_greedy_choice(&self) -> bool {
        self.options.temperature == 0.0
    }

    /// Fills the candidates with those that can be drawn and their weights; the one largest if nothing is drawn.
    fn weigh(&mut self, logits: &[f32], position: u64) -> Result<()> {
        // By groups, without a branch in each, so that it is done for many at once.
        let has_nan = |group: &[f32]| group.iter().fold(false, |found, logit| found | logit.is_nan());
        if logits.chunks(GROUP).any(has_nan) || logits.is_empty() {
            // The error is about the row that the logits are of.
            return Err(EngineError::NotFinite { position: position.saturating_sub(1) as usize });
        }
        self.candidates.clear();
        if self.shortlist(logits) {
            self.softmax();
            self.keep_top_p();
            self.keep_min_p();
            return Ok(());
        }
        let all = logits.iter().enumerate();
        self.candidates.extend(all.map(|(id, &weight)| Candidate { weight, id: id as u32 }));
        self.penalize();
        if self.options.temperature == 0.0 {
            let largest = self.candidates.iter().copied().min_by(order);
            self.candidates.clear();
            self.candidates.extend(largest);
            return Ok(());
        }
        let factor = 1.0 / self.options.temperature;
        self.candidates.iter_mut().for_each(|c| c.weight *= factor);
        self.keep_top_k();
        self.softmax();
        self.keep_top_p();
        self.keep_min_p();
        Ok(())
    }

    /// Fills the candidates with the k largest logits, divided by the temperature, as [`Sampler::keep_top_k`] would leave
    /// them, and looks closely only at what can be among them; false if that does not do here.
    fn shortlist(&mut self, logits: &[f32]) -> bool {
        let k = self.options.top_k;
        let factor = 1.0 / self.options.temperature;
        let groups = logits.len().div_ceil(GROUP);
        if k == 0
            || k > groups
            || k >= logits.len()
            || self.options.repeat_penalty != 1.0
            || !factor.is_finite()
        {
            return false;
        }
        self.largest.clear();
        self.largest.extend(logits.chunks(GROUP).map(largest_of));
        self.ranked.clone_from(&self.largest);
        self.ranked.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        // k logits are at least this, one in each of so many groups. Products decide, since rounding may make equals.
        let bound = self.ranked[k - 1] * factor;
        for (index, (group, &largest)) in logits.chunks(GROUP).zip(&self.largest).enumerate() {
            if largest * factor < bound {
                continue;
            }
            for (id, logit) in (index * GROUP..).zip(group) {
                let weight = logit * factor;
                if weight >= bound {
                    self.candidates.push(Candidate { weight, id: id as u32 });
                }
            }
        }
        if k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, order);
            self.candidates.truncate(k);
        }
        self.candidates.sort_unstable_by(order);
        true
    }

    fn penalize(&mut self) {
        let penalty = self.options.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        for (index, &token) in self.recent.iter().enumerate() {
            // Once per token, however often it occurs.
            if self.recent[..index].contains(&token) {
                continue;
            }
            if let Some(candidate) = self.candidates.get_mut(token as usize) {
                if candidate.weight > 0.0 {
                    candidate.weight /= penalty;
                } else {
                    candidate.weight *= penalty;
                }
            }
        }
    }

    fn keep_top_k(&mut self) {
        let k = self.options.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, order);
            self.candidates.truncate(k);
            self.candidates.sort_unstable_by(order);
        }
    }

    /// Weights become probabilities: softmax in f64, each rounded once.
    fn softmax(&mut self) {
        let largest = self.candidates.iter().map(|c| c.weight).fold(f32::NEG_INFINITY, f32::max);
        let exp = |weight: f32| {
            // +inf shares all probability among its equals.
            if weight == largest { 1.0 } else { (f64::from(weight) - f64::from(largest)).exp() }
        };
        let total: f64 = self.candidates.iter().map(|c| exp(c.weight)).sum();
        self.candidates.iter_mut().for_each(|c| c.weight = (exp(c.weight) / total) as f32);
    }

    fn keep_top_p(&mut self) {
        let p = f64::from(self.options.top_p);
        if p >= 1.0 {
            return;
        }
        let count = self.candidates.len();
        let mut sorted = 0;
        let mut reached = 0.0;
        // Only as many are sorted as are needed.
        while sorted < count {
            let chunk = (sorted.max(32) * 2).min(count);
            if chunk < count {
                self.candidates[sorted..].select_nth_unstable_by(chunk - sorted - 1, order);
            }
            self.candidates[sorted..chunk].sort_unstable_by(order);
            for index in sorted..chunk {
                reached += f64::from(self.candidates[index].weight);
                if reached >= p {
                    self.candidates.truncate(index + 1);
                    return;
                }
            }
            sorted = chunk;
        }
    }

    fn keep_min_p(&mut self) {
        let min_p = self.options.min_p;
        if min_p > 0.0 {
            let largest = self.candidates.iter().map(|c| c.weight).fold(0.0, f32::max);
            self.candidates.retain(|c| c.weight >= min_p * largest);
        }
    }

    /// A token by the noise of the position: the one with the smallest E/w, whatever the order of the candidates. Who guesses
    /// the token with the same noise mostly guesses it right ([`noise`]).
    fn draw(&self, position: u64) -> u32 {
        let key = key(self.options.seed, position);
        let (mut least, mut drawn) = (f64::INFINITY, None);
        for candidate in &self.candidates {
            let weight = f64::from(candidate.weight);
            let u = noise::uniform(key, candidate.id);
            // -ln u is at least 1 - u, which rules out most candidates.
            if weight <= 0.0 || 1.0 - u > least * weight {
                continue;
            }
            let ratio = -u.ln() / weight;
            if ratio < least || drawn.is_none() {
                (least, drawn) = (ratio, Some(candidate.id));
            }
        }
        drawn.or(self.candidates.first().map(|c| c.id)).unwrap_or(0)
    }

    /// What tokens are drawn with; `None` if the largest logit is taken. Guesses leave out what the filters leave out, as far as that
    /// can be told from the largest logit: the tail of 1 - top-p is about what has less than that part of the largest probability.
    pub(crate) fn draws(&self) -> Option<Draws> {
        let factor = 1.0 / self.options.temperature;
        let least_part = self.options.min_p.max(1.0 - self.options.top_p);
        let floor = if least_part > 0.0 { -least_part.ln() } else { LOWEST_DRAWN };
        factor.is_finite().then_some(Draws {
            seed: self.options.seed,
            factor,
            floor: floor.clamp(0.0, LOWEST_DRAWN),
        })
    }
}

/// What guesses leave out: tokens whose probability is less than e^-10 of the largest.
const LOWEST_DRAWN: f32 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(temperature: f32) -> SamplerOptions {
        SamplerOptions { temperature, top_k: 0, ..SamplerOptions::default() }
    }

    fn counts(options: SamplerOptions, logits: &[f32], draws: u64) -> Vec<u64> {
        let mut sampler = Sampler::new(options, logits.len()).unwrap();
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            counts[sampler.sample(logits, position).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_lowest_id_wins_ties() {
        let mut sampler = Sampler::new(options(0.0), 4).unwrap();
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], 0).unwrap(), 1);
        assert_eq!(sampler.sample(&[-0.0, 0.0, 0.0, -1.0], 0).unwrap(), 1);
    }

    proptest! {
        /// Looking at few logits gives the candidates that looking at all gives, ties and infinities included.
        #[test]
        fn a_shortlist_is_the_top_k(
            seed in any::<u64>(),
            size in 100usize..900,
            top_k in 1usize..60,
            levels in prop::sample::select(vec![3u64, 40, 1 << 20]),
            temperature in prop::sample::select(vec![0.01f32, 0.7, 1.0, 3.0]),
        ) {
            let mut random = seed | 1;
            let mut logits: Vec<f32> = (0..size)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    ((random >> 33) % levels) as f32 / 7.0 - 1.0
                })
                .collect();
            logits[size / 2] = f32::NEG_INFINITY;
            logits[size / 3] = -0.0;
            let options = SamplerOptions { temperature, top_k, ..SamplerOptions::default() };
            let candidates = |penalty: f32| {
                let options = SamplerOptions { repeat_penalty: penalty, ..options.clone() };
                let mut sampler = Sampler::new(options, size).unwrap();
                sampler.weigh(&logits, 0).unwrap();
                sampler.candidates.iter().map(|c| (c.id, c.weight.to_bits())).collect::<Vec<_>>()
            };
            // A penalty that meets no token, so that all are looked at.
            prop_assert_eq!(candidates(1.0), candidates(1.5));
        }
    }

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [2.0f32, 1.0, 0.0, -1.0, 0.5];
        let temperature = 0.8;
        let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let draws = 20_000;
        let found = counts(options(temperature as f32), &logits, draws);
        let chi_square: f64 = weights
            .iter()
            .zip(&found)
            .map(|(w, &n)| {
                let expected = w / total * draws as f64;
                (n as f64 - expected).powi(2) / expected
            })
            .sum();
        // 0.999 quantile of chi-square with 4 degrees of freedom.
        assert!(chi_square < 18.47, "{chi_square} {found:?}");
    }

    /// Who draws with the same noise from a similar distribution draws the same token with a probability of at least
    /// (1 - d)/(1 + d), where d is the total variation distance of the two.
    #[test]
    fn similar_distributions_draw_the_same_token() {
        let (own, other) = ([2.0f32, 1.0, 0.0, -1.0, 0.5], [1.4f32, 1.3, 0.2, -1.0, 0.1]);
        let softmax = |logits: &[f32]| {
            let weights: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp()).collect();
            let total: f64 = weights.iter().sum();
            weights.into_iter().map(|w| w / total).collect::<Vec<_>>()
        };
        let apart = softmax(&own).iter().zip(softmax(&other)).map(|(p, q)| (p - q).abs()).sum::<f64>() / 2.0;
        let mut sampler = Sampler::new(options(1.0), own.len()).unwrap();
        let draws = 20_000;
        let same = (0..draws).filter(|&position| {
            sampler.sample(&own, position).unwrap() == sampler.sample(&other, position).unwrap()
        });
        let rate = same.count() as f64 / draws as f64;
        let least = (1.0 - apart) / (1.0 + apart);
        assert!(apart > 0.1 && rate > least - 0.01 && rate < 1.0 - apart, "{rate} {least} {apart}");
    }

    /// What a drafter that draws with the row for `draw/1` takes is what the sampler takes.
    #[test]
    fn draws_tell_what_is_drawn() {
        let logits: Vec<f32> =
            (0..500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 2e6).collect();
        let options = SamplerOptions { temperature: 0.7, top_k: 0, seed: 5, ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options, logits.len()).unwrap();
        let draws = sampler.draws().unwrap();
        for position in 0..200 {
            let noise = draws.at(position);
            let score = |&id: &u32| {
                let u = noise::uniform_f32(noise.key, id);
                logits[id as usize] * noise.factor - (-u.ln()).ln()
            };
            let best = (0..500).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
            assert_eq!(sampler.sample(&logits, position).unwrap(), best, "{position}");
        }
        let floor =
            |options: SamplerOptions| Sampler::new(options, 1).unwrap().draws().map(|draws| draws.floor);
        assert_eq!(floor(SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }), None);
        assert_eq!(floor(SamplerOptions { min_p: 0.5, ..self::options(1.0) }), Some(2.0f32.ln()));
        assert_eq!(floor(SamplerOptions { top_p: 0.75, ..self::options(1.0) }), Some(4.0f32.ln()));
        assert_eq!(floor(SamplerOptions { min_p: 1.0, ..self::options(1.0) }), Some(0.0));
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits = [3.0f32, 2.0, 1.0, 0.0, -5.0];
        let alive = |options: SamplerOptions| -> Vec<usize> {
            let found = counts(options, &logits, 4000);
            (0..found.len()).filter(|&i| found[i] > 0).collect()
        };
        assert_eq!(alive(SamplerOptions { top_k: 2, ..options(1.0) }), [0, 1]);
        // Probabilities: .643 .237 .087 .032 .0002
        assert_eq!(alive(SamplerOptions { top_p: 0.64, ..options(1.0) }), [0]);
        assert_eq!(alive(SamplerOptions { top_p: 0.88, ..options(1.0) }), [0, 1]);
        assert_eq!(alive(SamplerOptions { min_p: 0.1, ..options(1.0) }), [0, 1, 2]);
    }

    #[test]
    fn the_penalty_sees_the_window_only() {
        let make = || {
            let options = SamplerOptions { repeat_penalty: 2.0, repeat_window: 2, ..options(0.0) };
            Sampler::new(options, 3).unwrap()
        };
        let logits = [4.0, 3.0, -1.0];
        let mut sampler = make();
        sampler.observe(0);
        assert_eq!(sampler.sample(&logits, 0).unwrap(), 1);
        sampler.observe(2);
        sampler.observe(2);
        assert_eq!(sampler.sample(&logits, 0).unwrap(), 0);
    }

    #[test]
    fn wrong_options_and_logits_are_refused() {
        let message = |options| Sampler::new(options, 1).err().unwrap().to_string();
        assert_eq!(message(options(-1.0)), "temperature cannot be -1; it takes from 0 to 100");
        assert_eq!(message(options(f32::NAN)), "temperature cannot be NaN; it takes from 0 to 100");
        assert_eq!(
            message(SamplerOptions { top_p: 0.0, ..options(1.0) }),
            "top-p cannot be 0; it takes more than 0 to 1"
        );
        let mut sampler = Sampler::new(options(1.0), 2).unwrap();
        assert!(sampler.sample(&[1.0, f32::NAN], 0).is_err());
        assert!(sampler.sample(&[], 0).is_err());
    }

    proptest! {
        #[test]
        fn top_p_equals_the_plain_definition(
            logits in proptest::collection::vec(-8.0f32..8.0, 1..300),
            p in 0.05f32..0.99,
        ) {
            let mut sampler = Sampler::new(SamplerOptions { top_p: p, ..options(1.0) }, 300).unwrap();
            sampler.sample(&logits, 0).unwrap();
            let kept: Vec<u32> = sampler.candidates.iter().map(|c| c.id).collect();

            let mut plain = Sampler::new(options(1.0), 300).unwrap();
            plain.sample(&logits, 0).unwrap();
            let mut all = plain.candidates.clone();
            all.sort_by(order);
            let mut reached = 0.0;
            let mut expected = Vec::new();
            for candidate in all {
                expected.push(candidate.id);
                reached += f64::from(candidate.weight);
                if reached >= f64::from(p) {
                    break;
                }
            }
            prop_assert_eq!(kept, expected);
        }

        #[test]
        fn any_numbers_give_an_id_of_the_vocabulary(
            logits in proptest::collection::vec(any::<f32>().prop_filter("a number", |x| !x.is_nan()), 1..50),
            temperature in 0.0f32..3.0, top_k in 0usize..60, min_p in 0.0f32..1.0, position: u64,
        ) {
            let options = SamplerOptions { temperature, top_k, min_p, top_p: 0.9, ..SamplerOptions::default() };
            let mut sampler = Sampler::new(options, 50).unwrap();
            let id = sampler.sample(&logits, position).unwrap() as usize;
            prop_assert!(id < logits.len());
        }
    }
}
