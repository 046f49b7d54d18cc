//! Kernels with a state: against f64, a prompt at once or piece by piece, split or not, in place or over planes, and
//! replayed.

mod kernels_support;

use kernels_support::{Random, assert_close, bits, filled, halves};
use paceline_backend_cpu::kernels::SharedSlice;
use paceline_backend_cpu::kernels::conv::{CausalConv, ConvWindows, causal_conv};
use paceline_backend_cpu::kernels::gdn::{
    GatedDeltaNet, GatedDeltaNetOut, KeptDeltas, Replay, StatePath, gated_delta_net, replay, scratch_floats,
};
use paceline_backend_cpu::level::Level;

const ROWS: usize = 9;

/// Cuts of the rows into calls.
const PIECES: [&[usize]; 4] = [&[9], &[1; 9], &[2, 1, 6], &[5, 4]];

/// One sequence's inputs.
struct Sequence {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    log_decay: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
    heads: (usize, usize),
    widths: (usize, usize),
}

impl Sequence {
    fn random(heads: (usize, usize), widths: (usize, usize)) -> Self {
        let mut random = Random(11);
        let norm = (widths.0 as f32).sqrt();
        Self {
            query: random.floats(ROWS * heads.0 * widths.0, 1.7 / norm),
            key: random.floats(ROWS * heads.0 * widths.0, 1.7 / norm),
            value: random.floats(ROWS * heads.1 * widths.1, 1.0),
            log_decay: (0..ROWS * heads.1).map(|_| -random.unit().abs()).collect(),
            beta: (0..ROWS * heads.1).map(|_| random.unit().abs()).collect(),
            state: random.floats(heads.1 * widths.0 * widths.1, 1.0),
            heads,
            widths,
        }
    }

    fn rows(&self, first: usize, count: usize) -> GatedDeltaNet<'_> {
        let cut = |x: &[f32]| first * (x.len() / ROWS)..(first + count) * (x.len() / ROWS);
        GatedDeltaNet {
            query: &self.query[cut(&self.query)],
            key: &self.key[cut(&self.key)],
            value: &self.value[cut(&self.value)],
            log_decay: &self.log_decay[cut(&self.log_decay)],
            beta: &self.beta[cut(&self.beta)],
            key_heads: self.heads.0,
            value_heads: self.heads.1,
            key_width: self.widths.0,
            value_width: self.widths.1,
            scale: 0.25,
        }
    }

    /// Outputs, deltas and final state.
    fn run(&self, level: Level, pieces: &[usize], split: bool) -> [Vec<f32>; 3] {
        let mut state = self.state.clone();
        let mut scratch = self.scratch();
        let scratch = SharedSlice::new(&mut scratch);
        let (mut outs, mut all_deltas) = (Vec::new(), Vec::new());
        let mut first = 0;
        for &count in pieces {
            let work = self.rows(first, count);
            let mut out_of_rows = vec![f32::NAN; work.value.len()];
            let mut deltas_of_rows = out_of_rows.clone();
            let stride = self.heads.1 * self.widths.1;
            let deltas = KeptDeltas { to: SharedSlice::new(&mut deltas_of_rows), stride, first: 0 };
            let out = SharedSlice::new(&mut out_of_rows);
            let heads = state.chunks_exact_mut(self.widths.0 * self.widths.1);
            for (head, state) in heads.enumerate() {
                let state = StatePath::in_place(SharedSlice::new(state));
                let to = GatedDeltaNetOut { state, replayed: None, out, deltas: Some(deltas), scratch };
                let whole = [0..self.widths.1, 0..0];
                for columns in if split { halves(self.widths.1) } else { whole } {
                    // SAFETY: one thread.
                    unsafe { gated_delta_net(level, &work, &to, head, columns) };
                }
            }
            outs.extend(out_of_rows);
            all_deltas.extend(deltas_of_rows);
            first += count;
        }
        [outs, all_deltas, state]
    }

    fn scratch(&self) -> Vec<f32> {
        vec![f32::NAN; scratch_floats(self.widths.0)]
    }

    /// Records of `count` rows from `first` on, with these deltas of the rows from `first` on.
    fn records(&self, deltas: &[f32], first: usize, count: usize) -> Vec<f32> {
        let part = |x: &[f32], row: usize| x[row * (x.len() / ROWS)..(row + 1) * (x.len() / ROWS)].to_vec();
        (0..count)
            .flat_map(|row| {
                [part(deltas, row), part(&self.key, first + row), part(&self.log_decay, first + row)].concat()
            })
            .collect()
    }

    fn replay<'a>(&self, records: &'a [f32]) -> Replay<'a> {
        Replay {
            records,
            key_heads: self.heads.0,
            value_heads: self.heads.1,
            key_width: self.widths.0,
            value_width: self.widths.1,
        }
    }

    fn exact(&self) -> [Vec<f64>; 3] {
        let ((key_heads, value_heads), (key_width, value_width)) = (self.heads, self.widths);
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        let (query, key, value) = (wide(&self.query), wide(&self.key), wide(&self.value));
        let mut state = wide(&self.state);
        let (mut outs, mut deltas) = (Vec::new(), Vec::new());
        for row in 0..ROWS {
            for head in 0..value_heads {
                let state = &mut state[head * key_width * value_width..][..key_width * value_width];
                let scalar = row * value_heads + head;
                let k = &key[(row * key_heads + head % key_heads) * key_width..][..key_width];
                let q = &query[(row * key_heads + head % key_heads) * key_width..][..key_width];
                for s in state.iter_mut() {
                    *s *= f64::from(self.log_decay[scalar]).exp();
                }
                for j in 0..value_width {
                    let column = |state: &[f64], x: &[f64]| -> f64 {
                        x.iter().enumerate().map(|(i, x)| x * state[i * value_width + j]).sum()
                    };
                    let delta =
                        f64::from(self.beta[scalar]) * (value[scalar * value_width + j] - column(state, k));
                    for i in 0..key_width {
                        state[i * value_width + j] += k[i] * delta;
                    }
                    outs.push(0.25 * column(state, q));
                    deltas.push(delta);
                }
            }
        }
        [outs, deltas, state]
    }
}

#[test]
fn gated_delta_net_in_pieces_and_splits() {
    for (heads, widths) in
        [((1, 1), (1, 1)), ((2, 4), (7, 16)), ((2, 4), (33, 80)), ((3, 3), (128, 128)), ((1, 2), (64, 7))]
    {
        let sequence = Sequence::random(heads, widths);
        let reference = sequence.run(Level::Scalar, PIECES[0], false);
        for (result, exact) in reference.iter().zip(&sequence.exact()) {
            assert_close(result, exact, 2e-6);
        }
        for level in Level::available() {
            for pieces in PIECES {
                for split in [false, true] {
                    let result = sequence.run(level, pieces, split);
                    for (result, reference) in result.iter().zip(&reference) {
                        assert_eq!(bits(result), bits(reference), "{level} {pieces:?} {split}");
                    }
                }
            }
        }
    }
}

/// Outputs of all rows, deltas of those from `kept_from` on, on one head whose states are `path`.
fn run_head(
    sequence: &Sequence,
    level: Level,
    head: usize,
    columns: [std::ops::Range<usize>; 2],
    path: StatePath<'_>,
    kept_from: usize,
) -> [Vec<f32>; 2] {
    let work = sequence.rows(0, ROWS);
    let (mut out, mut deltas) = (vec![0.0; work.value.len()], vec![0.0; work.value.len()]);
    let stride = sequence.heads.1 * sequence.widths.1;
    let mut scratch = sequence.scratch();
    let to = GatedDeltaNetOut {
        state: path,
        replayed: None,
        out: SharedSlice::new(&mut out),
        deltas: Some(KeptDeltas { to: SharedSlice::new(&mut deltas), stride, first: kept_from }),
        scratch: SharedSlice::new(&mut scratch),
    };
    for columns in columns {
        // SAFETY: one thread.
        unsafe { gated_delta_net(level, &work, &to, head, columns) };
    }
    [out, deltas]
}

#[test]
fn gated_delta_net_over_planes_and_with_a_replay() {
    const PLANES: usize = 4;
    const RECORDS: usize = PLANES - 1;
    for (heads, widths) in [((1, 2), (7, 16)), ((2, 4), (33, 81)), ((1, 3), (128, 128))] {
        let sequence = Sequence::random(heads, widths);
        let size = widths.0 * widths.1;
        for (head, fresh) in (0..heads.1).flat_map(|head| [(head, false), (head, true)]) {
            let zeros = vec![0.0; size];
            let start = if fresh { &zeros } else { &sequence.state[head * size..(head + 1) * size] };
            // The state after each number of rows, and all outputs and deltas, in place.
            let mut states = vec![start.to_vec()];
            let mut expected = [Vec::new(), Vec::new()];
            for rows in 1..=ROWS {
                let whole = sequence.rows(0, rows);
                let mut state = start.to_vec();
                let (mut out, mut deltas) = (vec![0.0; whole.value.len()], vec![0.0; whole.value.len()]);
                let stride = heads.1 * widths.1;
                let mut scratch = sequence.scratch();
                let to = GatedDeltaNetOut {
                    state: StatePath::in_place(SharedSlice::new(&mut state)),
                    replayed: None,
                    out: SharedSlice::new(&mut out),
                    deltas: Some(KeptDeltas { to: SharedSlice::new(&mut deltas), stride, first: 0 }),
                    scratch: SharedSlice::new(&mut scratch),
                };
                // SAFETY: one thread.
                unsafe { gated_delta_net(Level::Scalar, &whole, &to, head, 0..widths.1) };
                states.push(state);
                expected = [out, deltas];
            }
            for (level, split) in
                Level::available().into_iter().flat_map(|level| [(level, false), (level, true)])
            {
                let columns = if split { halves(widths.1) } else { [0..widths.1, 0..0] };
                let case = format!("{level} {heads:?} {widths:?} head {head} {fresh} {split}");
                for first in 0..PLANES {
                    let mut planes = vec![f32::NAN; PLANES * size];
                    planes[first * size..(first + 1) * size]
                        .copy_from_slice(&sequence.state[head * size..][..size]);
                    let all = SharedSlice::new(&mut planes);
                    // SAFETY: inside the planes; one thread.
                    let plane =
                        |index: usize| unsafe { SharedSlice::from_raw(all.pointer(index * size), size) };
                    let path = StatePath {
                        before: (!fresh).then(|| plane(first)),
                        kept: all,
                        stride: size,
                        count: PLANES,
                        first: first + 1,
                        dropped: 0,
                    };
                    let [out, _] = run_head(&sequence, level, head, columns.clone(), path, ROWS);
                    assert_eq!(bits(&out), bits(&expected[0]), "{case}");
                    for rows in ROWS + 1 - PLANES..=ROWS {
                        let given = &planes[(first + rows) % PLANES * size..][..size];
                        assert_eq!(bits(given), bits(&states[rows]), "{case}, {rows} rows");
                    }
                }
                let mut base = start.to_vec();
                let kept = SharedSlice::new(&mut base);
                let path = StatePath {
                    before: (!fresh).then_some(kept),
                    dropped: RECORDS,
                    ..StatePath::in_place(kept)
                };
                let [out, deltas] = run_head(&sequence, level, head, columns.clone(), path, ROWS - RECORDS);
                assert_eq!(bits(&out), bits(&expected[0]), "{case}");
                assert_eq!(bits(&base), bits(&states[ROWS - RECORDS]), "{case}");
                for keep in 0..=RECORDS {
                    let mut state = base.clone();
                    let records = sequence.records(&deltas, ROWS - RECORDS, keep);
                    let work = sequence.replay(&records);
                    for columns in columns.clone() {
                        // SAFETY: one thread.
                        unsafe { replay(level, &work, SharedSlice::new(&mut state), head, columns) };
                    }
                    assert_eq!(bits(&state), bits(&states[ROWS - RECORDS + keep]), "{case}, {keep} records");

                    // The same in one pass with the rows that follow.
                    let mut state = base.clone();
                    let mut scratch = sequence.scratch();
                    let next = sequence.rows(ROWS - RECORDS + keep, RECORDS - keep);
                    let mut out = vec![0.0; next.value.len()];
                    let to = GatedDeltaNetOut {
                        state: StatePath {
                            dropped: RECORDS,
                            ..StatePath::in_place(SharedSlice::new(&mut state))
                        },
                        replayed: Some(work),
                        out: SharedSlice::new(&mut out),
                        deltas: None,
                        scratch: SharedSlice::new(&mut scratch),
                    };
                    for columns in columns.clone() {
                        // SAFETY: one thread.
                        unsafe { gated_delta_net(level, &next, &to, head, columns) };
                    }
                    assert_eq!(bits(&state), bits(&states[ROWS - RECORDS + keep]), "{case}, {keep} records");
                    let width = widths.1;
                    for row in 0..RECORDS - keep {
                        let given = &out[(row * heads.1 + head) * width..][..width];
                        let row = ROWS - RECORDS + keep + row;
                        let expected = &expected[0][(row * heads.1 + head) * width..][..width];
                        assert_eq!(bits(given), bits(expected), "{case}, {keep} records, row {row}");
                    }
                }
            }
        }
    }
}

/// Outputs and final window.
fn convolve(
    level: Level,
    whole: &CausalConv<'_>,
    window: &[f32],
    pieces: &[usize],
    split: bool,
) -> [Vec<f32>; 2] {
    let mut window = window.to_vec();
    let mut outs = Vec::new();
    let mut first = 0;
    for &count in pieces {
        let x = &whole.x[first * whole.channels..(first + count) * whole.channels];
        let work = CausalConv { x, ..*whole };
        outs.extend(filled(x.len(), |out| {
            let planes = SharedSlice::new(&mut window);
            let windows = ConvWindows { planes, count: 1, before: 0, fresh: false };
            for channels in if split { halves(whole.channels) } else { [0..whole.channels, 0..0] } {
                // SAFETY: one thread.
                unsafe { causal_conv(level, &work, &windows, out, channels) };
            }
        }));
        first += count;
    }
    [outs, window]
}

#[test]
fn causal_conv_in_pieces_and_splits() {
    let mut random = Random(12);
    for channels in [1, 7, 33, 80, 256] {
        for taps in [1, 2, 4, 8] {
            for silu in [false, true] {
                let x = random.floats(ROWS * channels, 2.0);
                let weight = random.floats(channels * taps, 1.0);
                let window = random.floats((taps - 1) * channels, 2.0);
                let work = CausalConv { x: &x, weight: &weight, channels, taps, silu };
                let reference = convolve(Level::Scalar, &work, &window, PIECES[0], false);

                let all: Vec<f32> = window.iter().chain(&x).copied().collect();
                let expected: Vec<f64> = (0..x.len())
                    .map(|i| {
                        let (row, channel) = (i / channels, i % channels);
                        let product = |tap: usize| {
                            f64::from(weight[channel * taps + tap])
                                * f64::from(all[(row + tap) * channels + channel])
                        };
                        let sum: f64 = (0..taps).map(product).sum();
                        if silu { sum / (1.0 + (-sum).exp()) } else { sum }
                    })
                    .collect();
                assert_close(&reference[0], &expected, 2e-6);
                assert_eq!(reference[1], all[ROWS * channels..]);

                for level in Level::available() {
                    for pieces in PIECES {
                        for split in [false, true] {
                            let result = convolve(level, &work, &window, pieces, split);
                            assert_eq!(bits(&result[0]), bits(&reference[0]), "{level} {pieces:?}");
                            assert_eq!(bits(&result[1]), bits(&reference[1]), "{level} {pieces:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn causal_conv_over_planes() {
    let mut random = Random(13);
    for (channels, taps) in [(80, 4), (7, 8), (33, 2)] {
        let x = random.floats(ROWS * channels, 2.0);
        let weight = random.floats(channels * taps, 1.0);
        let start = random.floats((taps - 1) * channels, 2.0);
        for (planes, rows, fresh) in [
            (1, 9, false),
            (2, 9, false),
            (2, 3, true),
            (4, 9, true),
            (4, 3, false),
            (5, 5, false),
            (12, 9, false),
        ] {
            let x = &x[..rows * channels];
            let work = CausalConv { x, weight: &weight, channels, taps, silu: true };
            let before = if fresh { vec![0.0; start.len()] } else { start.clone() };
            let [expected, _] = convolve(Level::Scalar, &work, &before, &[rows], false);
            let inputs = [&before[..], x].concat();
            for (level, first) in
                Level::available().into_iter().flat_map(|l| (0..planes).map(move |p| (l, p)))
            {
                let mut windows = vec![f32::NAN; planes * start.len()];
                windows[first * start.len()..(first + 1) * start.len()].copy_from_slice(&start);
                let all = ConvWindows {
                    planes: SharedSlice::new(&mut windows),
                    count: planes,
                    before: first,
                    fresh,
                };
                let out = filled(x.len(), |out| {
                    for channels in halves(channels) {
                        // SAFETY: one thread.
                        unsafe { causal_conv(level, &work, &all, out, channels) };
                    }
                });
                assert_eq!(bits(&out), bits(&expected), "{level}, {planes} planes");
                for kept in (rows + 1).saturating_sub(planes).max(1)..=rows {
                    let window = &windows[(first + kept) % planes * start.len()..][..start.len()];
                    let case = format!("{level}, plane {first} of {planes}, {kept} of {rows} rows");
                    assert_eq!(window, &inputs[kept * channels..][..start.len()], "{case}");
                }
            }
        }
    }
}
