//! What a run of several rows costs, against one of a single row.

use std::time::Instant;

use paceline_engine::{MOST_VERIFIED, Rows, Want};

use super::lanes::{Lane, Plan};
use super::measure::Task;
use super::model::VerifyCost;
use super::statistics::Spread;
use crate::app::App;
use crate::engine_setup::Setup;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Most rows of a verification: the anchor and as many guesses as are verified at once.
const MOST_ROWS: usize = MOST_VERIFIED as usize + 1;
/// Times that each number of rows is run; the first does not count.
const TIMES: usize = 12;
/// Runs of a width at a time; only the last one's time counts, since the first meets what another width left behind.
const IN_A_ROW: usize = 2;
/// Positions that all runs take together, and some more.
pub const ROOM: u32 = (MOST_ROWS * (TIMES * IN_A_ROW + 2)) as u32;

/// Times runs of 1 to 16 rows, as far as the arm's engine can take them back. Empty if Ctrl-C ended it.
pub fn measure(
    plan: Plan,
    setup: &Setup,
    tasks: &[Task<'_>],
    interrupt: &Interrupt,
    app: &App,
) -> Result<Vec<VerifyCost>, Failure> {
    let Some(task) = tasks.iter().min_by_key(|task| task.ids.len()) else { return Ok(Vec::new()) };
    let Lane { mut engine, sequence, .. } = Lane::new(plan, setup, app)?;
    let _working = app.printer.working("timing runs of several rows");
    engine.prompt(sequence, &task.ids, Want::Ids, &mut |_| {})?;
    let tokens: Vec<u32> = task.ids.iter().copied().cycle().take(MOST_ROWS).collect();
    let widest = MOST_ROWS.min(engine.most_outputs());
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); widest];
    for time in 0..TIMES {
        for (rows, samples) in (1..).zip(&mut samples) {
            if interrupt.requested() {
                return Ok(Vec::new());
            }
            let mut seconds = None;
            for _ in 0..IN_A_ROW {
                if engine.sequence_length(sequence) + rows > engine.context_length() {
                    continue;
                }
                let start = Instant::now();
                engine.run(&[Rows { sequence, tokens: &tokens[..rows], outputs: rows }], Want::Ids)?;
                seconds = Some(start.elapsed().as_secs_f64());
                let back = (rows - 1).min(engine.can_roll_back(sequence));
                engine.roll_back(sequence, back)?;
            }
            if time > 0 {
                samples.extend(seconds);
            }
        }
    }
    let medians: Vec<(u32, f64)> =
        (1..).zip(samples).filter_map(|(rows, samples)| Some((rows, Spread::of(samples)?.median))).collect();
    Ok(VerifyCost::table(&medians))
}

/// Median over the arms of the seconds that a round's run took, by its number of rows.
pub fn in_rounds(lanes: &[Lane]) -> Vec<Option<f64>> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); MOST_ROWS + 1];
    for (guesses, seconds) in lanes.iter().flat_map(|lane| lane.engine.verify_seconds()) {
        if let Some(samples) = samples.get_mut(guesses + 1) {
            samples.push(seconds);
        }
    }
    samples.into_iter().map(|samples| Spread::of(samples).map(|spread| spread.median)).collect()
}
