//! The bits of a sequence do not depend on how it is cut, on who runs with it, or on what its slot held before.

use super::player::Player;
use super::scripts::{Piece, alone, piece};
use crate::block::floats;
use crate::harness::Loaded;
use crate::suite::compare::{compare_values, first_difference};
use crate::suite::rows::{numerics, row_invariance};
use crate::suite::samples::SequenceSample;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::graph::{StateKind, ValueKind};
use std::collections::BTreeMap;
use std::slice::from_mut;

/// One check.
pub(super) struct Check {
    pub name: &'static str,
    /// True if it cuts sequences, which only works where rows do not see later ones.
    pub cuts: bool,
    pub run: fn(&Context<'_>, &SequenceSample) -> Result<f64, CaseError>,
}

/// All checks.
pub(super) const CHECKS: [Check; 5] = [
    Check { name: "two plays of one script", cuts: false, run: twice },
    Check { name: "a prompt at once and token by token", cuts: true, run: at_once },
    Check { name: "two sequences together and alone", cuts: false, run: together },
    Check { name: "a slot that was used before", cuts: false, run: dirty_slot },
    Check { name: "two executables by turns", cuts: false, run: by_turns },
];

/// Row maximum of the graphs here.
const MAX_ROWS: u32 = 40;

/// Results of every sequence, row after row.
type Streams = BTreeMap<u32, Vec<f32>>;

fn load(context: &Context<'_>, sample: &SequenceSample, max_rows: u32) -> Result<Loaded, CaseError> {
    let graph = sample.graph(max_rows);
    Ok(context.bench.load(&graph, &sample.weights(&graph, context.options.seed))?)
}

/// Rows that may run together without a change of bits, at most those of the graphs here.
fn promised_rows(loaded: &Loaded) -> Result<u32, CaseError> {
    match row_invariance(loaded.summary()).min(MAX_ROWS) {
        0 | 1 => Err(CaseError::NotOffered("the plan promises no row invariance".into())),
        rows => Ok(rows),
    }
}

/// Runs steps, each on the executable that `choose` names.
fn play_on(
    player: &mut Player<'_>,
    loaded: &mut [Loaded],
    steps: &[Vec<Piece>],
    choose: impl Fn(&[Piece]) -> usize,
) -> Result<Streams, CaseError> {
    let mut streams = Streams::new();
    for step in steps {
        let loaded = &mut loaded[choose(step)];
        let parameters = player.parameters(loaded.graph(), step);
        let results = loaded.run(&parameters)?;
        let values = floats(loaded.graph(), &parameters, &results, "out");
        let rows: u32 = step.iter().map(|p| p.rows).sum();
        let width = values.len() / rows as usize;
        let mut values = values.as_slice();
        for piece in step {
            let (own, rest) = values.split_at(piece.rows as usize * width);
            streams.entry(piece.stream).or_default().extend_from_slice(own);
            values = rest;
        }
    }
    Ok(streams)
}

/// Runs steps on one executable, beginning without any sequence.
fn play(
    context: &Context<'_>,
    sample: &SequenceSample,
    loaded: &mut Loaded,
    steps: &[Vec<Piece>],
) -> Result<Streams, CaseError> {
    play_on(&mut Player::new(sample, context.options.seed), from_mut(loaded), steps, |_| 0)
}

/// Checks that a sequence has the same bits in two plays.
fn check_equal(stream: u32, left: &Streams, right: &Streams, how: &str) -> Result<(), CaseError> {
    let difference = match (left.get(&stream), right.get(&stream)) {
        (Some(left), Some(right)) => first_difference(left, right),
        _ => Some("it did not run".into()),
    };
    match difference {
        None => Ok(()),
        Some(what) => wrong(format!("sequence {stream}, {how}: {what}")),
    }
}

fn twice(context: &Context<'_>, sample: &SequenceSample) -> Result<f64, CaseError> {
    let mut loaded = load(context, sample, MAX_ROWS)?;
    let steps = [vec![piece(0, 1, 9), piece(1, 2, 5)], vec![piece(1, 2, 1), piece(0, 1, 1)]];
    let first = play(context, sample, &mut loaded, &steps)?;
    let second = play(context, sample, &mut loaded, &steps)?;
    for stream in [0, 1] {
        check_equal(stream, &first, &second, "the first and the second time")?;
    }
    Ok(0.0)
}

/// Lengths of runs that add up to `total`, none above `most`.
fn cut(total: u32, most: u32, lengths: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut left = total;
    lengths
        .map_while(|length| {
            let length = length.min(most).min(left);
            left -= length;
            (length > 0).then_some(length)
        })
        .collect()
}

fn at_once(context: &Context<'_>, sample: &SequenceSample) -> Result<f64, CaseError> {
    let mut loaded = load(context, sample, MAX_ROWS)?;
    let most = promised_rows(&loaded)?;
    // Over the border of a cache's block.
    let total = if sample.cache.is_some() { 270 } else { 75 };
    let mut run = |lengths: &[u32]| play(context, sample, &mut loaded, &alone(0, 1, lengths));
    let whole = run(&cut(total, most, std::iter::repeat(most)))?;
    let tokens = run(&vec![1; total as usize])?;
    check_equal(0, &whole, &tokens, "at once and token by token")?;
    let odd = run(&cut(total, most, [7, 1, 16, 2, 33, 3].into_iter().cycle()))?;
    check_equal(0, &whole, &odd, "at once and cut at odd places")?;
    let mut single = load(context, sample, 1)?;
    if numerics(single.summary()) == numerics(loaded.summary()) {
        let tokens = play(context, sample, &mut single, &alone(0, 1, &vec![1; total as usize]))?;
        check_equal(0, &whole, &tokens, "at once and on an executable for one row")?;
    }
    Ok(0.0)
}

fn together(context: &Context<'_>, sample: &SequenceSample) -> Result<f64, CaseError> {
    let mut loaded = load(context, sample, MAX_ROWS)?;
    let half = promised_rows(&loaded)? / 2;
    let pieces = [(half, half), (1, 1), (half, 1), (1, half)];
    let both: Vec<_> = pieces.iter().map(|&(a, b)| vec![piece(0, 1, a), piece(1, 0, b)]).collect();
    let both = play(context, sample, &mut loaded, &both)?;
    for (stream, slot) in [(0, 1), (1, 0)] {
        let lengths = pieces.map(|(a, b)| if stream == 0 { a } else { b });
        let single = play(context, sample, &mut loaded, &alone(stream, slot, &lengths))?;
        check_equal(stream, &both, &single, "together and alone")?;
    }
    Ok(0.0)
}

fn dirty_slot(context: &Context<'_>, sample: &SequenceSample) -> Result<f64, CaseError> {
    let steps = alone(0, 1, &[6, 1, 2]);
    let fresh = play(context, sample, &mut load(context, sample, MAX_ROWS)?, &steps)?;
    let mut loaded = load(context, sample, MAX_ROWS)?;
    let mut player = Player::new(sample, context.options.seed);
    let dirt = [vec![piece(7, 0, 11), piece(8, 1, 13), piece(9, 2, 9)], vec![piece(8, 1, 3), piece(7, 0, 3)]];
    play_on(&mut player, from_mut(&mut loaded), &dirt, |_| 0)?;
    let used = play_on(&mut player, from_mut(&mut loaded), &steps, |_| 0)?;
    check_equal(0, &fresh, &used, "in fresh memory and after others")?;
    if fill_states(&mut loaded)? {
        let after = play(context, sample, &mut loaded, &steps)?;
        check_equal(0, &fresh, &after, "in fresh memory and in memory full of NaN")?;
    }
    Ok(0.0)
}

/// Fills caches and states with ones, which read as NaN. False if the backend does not import states.
fn fill_states(loaded: &mut Loaded) -> Result<bool, CaseError> {
    let graph = loaded.graph();
    let states: Vec<(usize, usize)> = graph
        .states()
        .enumerate()
        .filter(|(_, id)| graph.value(*id).kind != ValueKind::State(StateKind::Table))
        .map(|(index, id)| (index, graph.value(id).bytes().unwrap_or(0) as usize))
        .collect();
    let mut is_filled = true;
    for (index, bytes) in states {
        is_filled &= loaded.import_state(index, &vec![0xFF; bytes])?.is_some();
    }
    Ok(is_filled)
}

/// One executable for many rows and one for a single row share states and workspace.
fn by_turns(context: &Context<'_>, sample: &SequenceSample) -> Result<f64, CaseError> {
    let (graph, single) = (sample.graph(MAX_ROWS), sample.graph(1));
    let weights = sample.weights(&graph, context.options.seed);
    let placement = context.bench.place(&[&graph, &single], &weights)?;
    let layouts = |index: usize| -> Vec<u64> {
        placement.plan(index).summary().states.iter().map(|state| state.layout).collect()
    };
    if layouts(0) != layouts(1) {
        return wrong("the layouts of states differ between graphs that share them");
    }
    let mut both = [placement.load(0, 1)?, placement.load(1, 1)?];
    let steps = alone(0, 1, &[5, 1, 1, 3, 1, 8, 1]);
    let is_single = |step: &[Piece]| usize::from(step[0].rows == 1);
    let by_turns = play_on(&mut Player::new(sample, context.options.seed), &mut both, &steps, is_single)?;
    let one = play(context, sample, &mut both[0], &steps)?;
    if numerics(both[0].summary()) == numerics(both[1].summary()) && promised_rows(&both[0]).is_ok() {
        return check_equal(0, &one, &by_turns, "on one executable and by turns").map(|()| 0.0);
    }
    let width = graph.result("out").map_or(1, |slot| graph.value(slot.value).shape.last() as usize);
    compare_values(&one[&0], &by_turns[&0], width, sample.tolerance).or_else(wrong)
}
