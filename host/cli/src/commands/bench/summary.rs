//! What the runs of one arm say together.

use super::model::{Position, Report, Run, SplitSeconds};
use super::statistics::{MedianEstimate, Proportion, Spread};

/// The kind under which the runs of all kinds are put together.
pub const ALL_KINDS: &str = "all";

/// The runs of one arm on prompts of one kind, at one temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Name of the arm.
    pub arm: String,
    /// Kind of the prompts, or [`ALL_KINDS`].
    pub kind: String,
    /// Temperature of sampling.
    pub temperature: f32,
    /// Number of runs.
    pub runs: usize,
    /// Tokens per second of generation; `None` if no run generated any.
    pub rate: Option<Spread>,
    /// The rate as a multiple of the first arm's, pair by pair of the same prompt and repetition; `None` for the
    /// first arm itself and without pairs.
    pub speed_up: Option<MedianEstimate>,
    /// Time until the first token.
    pub prompt_seconds: Option<Spread>,
    /// Prompt tokens per second.
    pub prompt_rate: Option<Spread>,
    /// Accepted of verified guesses; `None` if there were none.
    pub acceptance: Option<Proportion>,
    /// Tokens that a round brought on average, the target model's own included; `None` without rounds.
    pub tokens_per_round: Option<f64>,
    /// Rounds with a guess, of all rounds.
    pub coverage: Option<Proportion>,
    /// For each place of a draft, rounds that took the guess there, of rounds that guessed so far.
    pub positions: Vec<Option<Proportion>>,
    /// All rounds.
    pub rounds: u64,
    /// All guesses, verified or not.
    pub drafted: u64,
    /// Where the time of generation went, in all runs together.
    pub split: SplitSeconds,
    /// Runs with the tokens of the first arm.
    pub identical: u64,
    /// Runs whose tokens were compared with the first arm's.
    pub compared: u64,
    /// The most device memory that the strategy took.
    pub strategy_bytes: u64,
    /// Uploads in all runs.
    pub uploads: u64,
    /// Waits in all runs.
    pub waits: u64,
    /// Launches in all runs.
    pub launches: u64,
}

/// One summary for each arm, kind and temperature that has runs: ordered by temperature, then kind as they come, then
/// arm. If there are several kinds, those of all kinds together come last.
pub fn summaries(report: &Report) -> Vec<Summary> {
    let mut temperatures: Vec<f32> = distinct(report.runs.iter().map(|run| run.temperature));
    temperatures.sort_by(f32::total_cmp);
    let mut kinds: Vec<&str> = distinct(report.runs.iter().map(|run| run.kind.as_str()));
    if kinds.len() > 1 {
        kinds.push(ALL_KINDS);
    }
    let mut summaries = Vec::new();
    for temperature in temperatures {
        for (index, kind) in kinds.iter().enumerate() {
            // The last of several stands for all, whatever a prompt's kind is called.
            let is_all = kinds.len() > 1 && index + 1 == kinds.len();
            for arm in &report.arms {
                let runs: Vec<&Run> = report
                    .runs
                    .iter()
                    .filter(|run| run.arm == *arm && run.temperature == temperature)
                    .filter(|run| is_all || run.kind == *kind)
                    .collect();
                if !runs.is_empty() {
                    summaries.push(summary(report, arm, kind, temperature, &runs));
                }
            }
        }
    }
    summaries
}

fn summary(report: &Report, arm: &str, kind: &str, temperature: f32, runs: &[&Run]) -> Summary {
    let total = |field: fn(&Run) -> u64| runs.iter().map(|run| field(run)).sum::<u64>();
    let seconds = |field: fn(&SplitSeconds) -> f64| runs.iter().map(|run| field(&run.split)).sum::<f64>();
    let rounds = total(|run| run.rounds);
    let compared: Vec<bool> = runs.iter().filter_map(|run| run.identical).collect();
    Summary {
        arm: arm.to_owned(),
        kind: kind.to_owned(),
        temperature,
        runs: runs.len(),
        rate: Spread::of(runs.iter().filter_map(|run| run.rate())),
        speed_up: speed_up(report, arm, runs),
        prompt_seconds: Spread::of(runs.iter().map(|run| run.prompt_seconds)),
        prompt_rate: Spread::of(runs.iter().filter_map(|run| run.prompt_rate())),
        acceptance: Proportion::of(total(|run| run.accepted), total(|run| run.verified)),
        tokens_per_round: (rounds > 0).then(|| total(Run::emitted) as f64 / rounds as f64),
        coverage: Proportion::of(total(Run::rounds_with_draft), rounds),
        positions: positions(runs),
        rounds,
        drafted: total(|run| run.drafted),
        split: SplitSeconds {
            draft: seconds(|split| split.draft),
            verify: seconds(|split| split.verify),
            commit: seconds(|split| split.commit),
            host: seconds(|split| split.host),
        },
        identical: compared.iter().filter(|identical| **identical).count() as u64,
        compared: compared.len() as u64,
        strategy_bytes: runs.iter().map(|run| run.strategy_bytes).max().unwrap_or(0),
        uploads: total(|run| run.uploads),
        waits: total(|run| run.waits),
        launches: total(|run| run.launches),
    }
}

/// Pairs are what a machine does to both alike: slow minutes fall out of the ratio.
fn speed_up(report: &Report, arm: &str, runs: &[&Run]) -> Option<MedianEstimate> {
    let first = report.arms.first().filter(|first| *first != arm)?;
    let ratio = |run: &&Run| {
        let pair = report.runs.iter().find(|other| other.arm == *first && other.is_same_task(run))?;
        Some(run.rate()? / pair.rate()?)
    };
    MedianEstimate::of(runs.iter().filter_map(ratio))
}

fn positions(runs: &[&Run]) -> Vec<Option<Proportion>> {
    let deepest = runs.iter().map(|run| run.positions.len()).max().unwrap_or(0);
    let at = |place: usize| {
        let positions = runs.iter().filter_map(|run| run.positions.get(place));
        let sum = positions.fold(Position::default(), |sum, position| Position {
            drafted: sum.drafted + position.drafted,
            accepted: sum.accepted + position.accepted,
        });
        Proportion::of(sum.accepted, sum.drafted)
    };
    (0..deepest).map(at).collect()
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arm: &str, kind: &str, repetition: u32, generation_seconds: f64) -> Run {
        Run {
            arm: arm.to_owned(),
            kind: kind.to_owned(),
            prompt: "p".to_owned(),
            repetition,
            generated_tokens: 101,
            generation_seconds,
            rounds: 40,
            verified: 80,
            accepted: 60,
            positions: vec![Position { drafted: 40, accepted: 36 }, Position { drafted: 40, accepted: 24 }],
            identical: Some(true),
            ..Run::default()
        }
    }

    fn report(runs: Vec<Run>) -> Report {
        Report { arms: vec!["none".to_owned(), "mtp".to_owned()], runs, ..Report::default() }
    }

    #[test]
    fn speed_up_is_that_of_pairs() {
        // The machine is half as fast in the second repetition: the ratios stay 2.
        let runs = vec![
            run("none", "code", 0, 1.0),
            run("mtp", "code", 0, 0.5),
            run("none", "code", 1, 2.0),
            run("mtp", "code", 1, 1.0),
            // Without a pair.
            run("mtp", "code", 2, 0.001),
        ];
        let summaries = summaries(&report(runs));
        assert_eq!(summaries.len(), 2);
        assert_eq!(summaries[0].speed_up, None);
        let speed_up = summaries[1].speed_up.unwrap();
        assert_eq!((speed_up.median, speed_up.samples, speed_up.interval), (2.0, 2, None));
        assert_eq!(summaries[0].rate.unwrap().median, 75.0);
    }

    #[test]
    fn counts_of_rounds() {
        let summary = &summaries(&report(vec![run("mtp", "code", 0, 1.0)]))[0];
        assert_eq!(summary.tokens_per_round, Some(2.5));
        assert_eq!(summary.acceptance.unwrap().rate, 0.75);
        assert_eq!(summary.coverage.unwrap().rate, 1.0);
        let rates: Vec<f64> = summary.positions.iter().flatten().map(|position| position.rate).collect();
        assert_eq!(rates, [0.9, 0.6]);
        assert_eq!((summary.identical, summary.compared), (1, 1));
    }

    #[test]
    fn several_kinds_are_also_put_together() {
        let runs = vec![run("none", "code", 0, 1.0), run("none", "prose", 0, 1.0)];
        let kinds: Vec<(String, usize)> =
            summaries(&report(runs)).into_iter().map(|it| (it.kind, it.runs)).collect();
        assert_eq!(kinds, [("code".to_owned(), 1), ("prose".to_owned(), 1), ("all".to_owned(), 2)]);
    }

    #[test]
    fn what_was_not_measured_is_none() {
        let nothing = Run { arm: "none".to_owned(), ..Run::default() };
        let summary = &summaries(&report(vec![nothing]))[0];
        assert_eq!((summary.rate, summary.acceptance, summary.tokens_per_round), (None, None, None));
        assert_eq!((summary.coverage, summary.positions.len(), summary.compared), (None, 0, 0));
    }
}
