//! Kernels whose rows are independent.

use super::Run;
use crate::kernels::draw::draw;
use crate::kernels::experts::route;
use crate::kernels::kv::{KvAppend, kv_append};
use crate::kernels::norm::{RmsNorm, l2_norm, rms_norm};
use crate::kernels::rope::{Rope, rope};
use crate::kernels::top_k::{TopKOut, top_k};
use crate::kernels::{SharedSlice, argmax, elementwise, rows, softmax};
use crate::program::RowKernel;
use crate::quantized::{quantize_row, row_bytes};
use crate::weights::PackedMatrix;
use paceline_plugin_api::graph::noise::Noise;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// Runs `kernel` on `range` of the rows; `width` is the number of elements of an input row, `max` the most rows.
    pub(super) fn row_kernel(&self, kernel: &RowKernel, width: usize, max: usize, range: Range<usize>) {
        let level = self.bound.level;
        // Inputs end with the last row of the chunk: rows of other chunks may not be made yet.
        let x_of = |id, width: usize| self.read::<f32>(id, range.end * width);
        let out_of = |id, width: usize| self.write::<f32>(id, range.end * width);
        let elements = range.start * width..range.end * width;
        match *kernel {
            RowKernel::Embed { ids, table, kind, vocabulary, out, faults } => {
                let region = self.region(table);
                // SAFETY: the span of the weight was checked at load, and weights do not change.
                let bytes = unsafe { std::slice::from_raw_parts(region.start, region.bytes) };
                let table = match PackedMatrix::new(kind, vocabulary, width, bytes) {
                    Ok(table) => table,
                    Err(error) => panic!("an embedding does not fit its plan: {error}"),
                };
                let ids = self.read::<i32>(ids, range.end);
                for row in range.clone() {
                    // SAFETY: the row is this chunk's.
                    let out = unsafe { out_of(out, width).part(row * width..(row + 1) * width) };
                    let id = usize::try_from(ids[row]).ok().filter(|&id| id < vocabulary);
                    if id.is_none_or(|id| table.unpack_row(id, out).is_err()) {
                        out.fill(0.0);
                        self.counter(faults).fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            RowKernel::RmsNorm { x, weight, gate, epsilon, norm, out } => {
                let work = RmsNorm {
                    x: x_of(x, width),
                    width: norm,
                    weight: weight.map(|id| self.read(id, norm)),
                    gate: gate.map(|id| x_of(id, width)),
                    epsilon,
                };
                let rows = elements.start / norm..elements.end / norm;
                // SAFETY: the rows are this chunk's; the same holds for all calls below.
                unsafe { rms_norm(level, &work, out_of(out, width), rows) };
            }
            RowKernel::L2Norm { x, epsilon, norm, out } => {
                let rows = elements.start / norm..elements.end / norm;
                // SAFETY: as above.
                unsafe { l2_norm(level, x_of(x, width), norm, epsilon, out_of(out, width), rows) };
            }
            RowKernel::Add { x, y, y_width, out } => {
                let y = if y_width == 0 { x_of(y, width) } else { self.read(y, y_width) };
                // SAFETY: as above.
                unsafe { elementwise::add(level, x_of(x, width), y, out_of(out, width), elements) };
            }
            RowKernel::Mul { x, y, y_width, out } => {
                let y = if y_width == 0 { x_of(y, width) } else { self.read(y, y_width) };
                // SAFETY: as above.
                unsafe { elementwise::mul(level, x_of(x, width), y, out_of(out, width), elements) };
            }
            RowKernel::Scale { x, factor, out } => {
                // SAFETY: as above.
                unsafe { elementwise::scale(level, x_of(x, width), factor, out_of(out, width), elements) };
            }
            RowKernel::Activation { x, kind, cap, out } => {
                let (x, out) = (x_of(x, width), out_of(out, width));
                // SAFETY: as above.
                unsafe { elementwise::activation(level, kind, cap, x, out, elements) };
            }
            RowKernel::Glu { gate, up, kind, out } => {
                let (gate, up) = (x_of(gate, width), x_of(up, width));
                // SAFETY: as above.
                unsafe { elementwise::glu(level, kind, gate, up, out_of(out, width), elements) };
            }
            RowKernel::Columns { x, from_width, from, out, to_width, to, count } => {
                let spans = width / from_width;
                let rows = range.start * spans..range.end * spans;
                let out = out_of(out, spans * to_width);
                // SAFETY: as above.
                unsafe {
                    rows::copy_columns(x_of(x, width), (from_width, from), out, (to_width, to), count, rows)
                };
            }
            RowKernel::Quantize { x, out } => {
                let x = x_of(x, width);
                let bytes = row_bytes(width);
                let out = self.write::<u8>(out, range.end * bytes);
                for row in range.clone() {
                    // SAFETY: as above.
                    let out = unsafe { out.part(row * bytes..(row + 1) * bytes) };
                    if let Err(error) = quantize_row(level, &x[row * width..(row + 1) * width], out) {
                        panic!("a row does not fit its plan: {error}");
                    }
                }
                self.bound.quantized_rows.fetch_add(range.len() as u64, Ordering::Relaxed);
            }
            RowKernel::Angles { positions, table, factors, out } => {
                let frequencies = &self.bound.frequencies[table];
                let pairs = frequencies.pairs();
                let positions = self.read::<i32>(positions, range.end);
                let factors = factors.map(|id| self.read(id, pairs));
                let out = self.write::<f32>(out, 2 * max * pairs);
                for row in range {
                    let span = row * pairs..(row + 1) * pairs;
                    // SAFETY: as above; cosines and sines are two halves.
                    unsafe {
                        let sines = out.part(max * pairs + span.start..max * pairs + span.end);
                        frequencies.angles(positions[row], factors, out.part(span), sines);
                    }
                }
            }
            RowKernel::Rope { x, angles, pairs, heads, pairing, out } => {
                let (cosines, sines) = self.read::<f32>(angles, 2 * max * pairs).split_at(max * pairs);
                let x = x_of(x, width);
                let work = Rope { x, heads, width: width / heads, pairs, cosines, sines, pairing };
                // SAFETY: as above.
                unsafe { rope(level, &work, out_of(out, width), range.start * heads..range.end * heads) };
            }
            RowKernel::SelectRows { x, x_rows, rows: list, out } => {
                let list = self.read::<i32>(list, range.end);
                let x = self.read::<f32>(x, x_rows * width);
                // SAFETY: as above.
                unsafe { rows::select_rows(x, width, list, out_of(out, width), range) };
            }
            RowKernel::RowsLoad { state, entries, cells, out } => {
                let cells = self.read::<i32>(cells, range.end);
                let state = self.read::<f32>(state, entries * width);
                // SAFETY: as above.
                unsafe { rows::select_rows(state, width, cells, out_of(out, width), range) };
            }
            RowKernel::Lookup { ids, table, entries, out } => {
                let (ids, table) = (self.read::<i32>(ids, range.end), self.read::<i32>(table, entries));
                let out = self.write::<i32>(out, range.end);
                for row in range {
                    let entry = usize::try_from(ids[row]).ok().and_then(|id| table.get(id).copied());
                    // SAFETY: this chunk's row.
                    unsafe { out.pointer(row).write(entry.unwrap_or(0)) };
                }
            }
            RowKernel::Argmax { x, ids, faults } => {
                let x = x_of(x, width);
                let ids = self.write::<i32>(ids, range.end);
                for row in range {
                    let mut nans = [0u32];
                    let row_x = &x[row * width..(row + 1) * width];
                    // SAFETY: as above.
                    let id = unsafe { SharedSlice::from_raw(ids.pointer(row), 1) };
                    // SAFETY: as above.
                    unsafe { argmax::argmax(level, row_x, width, id, SharedSlice::new(&mut nans), 0..1) };
                    if nans[0] > 0 {
                        self.counter(faults).fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            RowKernel::Draw { x, noise, tokens, ids, faults } => {
                let x = x_of(x, width);
                let noise = self.read::<i32>(noise, range.end * 4);
                let tokens = tokens.map(|tokens| self.read::<i32>(tokens, width));
                let ids = self.write::<i32>(ids, range.end);
                for row in range {
                    let noise = Noise::from_row(std::array::from_fn(|word| noise[row * 4 + word]));
                    // SAFETY: the level is the machine's.
                    let (id, nans) =
                        unsafe { draw(level, &x[row * width..(row + 1) * width], noise, tokens) };
                    // SAFETY: this chunk's row.
                    unsafe { ids.pointer(row).write(id) };
                    if nans > 0 {
                        self.counter(faults).fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            RowKernel::TopK { x, count, ids, values } => {
                let x = x_of(x, width);
                let (ids, values) = (self.write::<i32>(ids, range.end * count), out_of(values, count));
                for row in range {
                    let mut nans = [0u32];
                    let span = row * count;
                    // SAFETY: as above.
                    unsafe {
                        let to = TopKOut {
                            values: SharedSlice::from_raw(values.pointer(span), count),
                            ids: SharedSlice::from_raw(ids.pointer(span), count),
                            nans: SharedSlice::new(&mut nans),
                        };
                        top_k(level, &x[row * width..(row + 1) * width], width, count, &to, 0..1);
                    }
                }
            }
            RowKernel::Softmax { x, norm, out } => {
                let rows = elements.start / norm..elements.end / norm;
                // SAFETY: as above.
                unsafe { softmax::softmax(level, x_of(x, width), norm, out_of(out, width), rows) };
            }
            RowKernel::Route { logits, routing, ids, weights } => {
                let ids = self.write::<i32>(ids, range.end * routing.count);
                let weights = out_of(weights, routing.count);
                // SAFETY: as above.
                unsafe { route(level, x_of(logits, width), width, &routing, ids, weights, range) };
            }
            RowKernel::KvAppend { k, v, caches, cells } => {
                let heads = caches[0].heads;
                let work = KvAppend {
                    key: x_of(k, width),
                    value: x_of(v, width),
                    slots: self.read(cells, range.end),
                };
                let (keys, values) = (self.plane(caches[0]), self.plane(caches[1]));
                // SAFETY: as above; the host gives every row a cell of its own.
                unsafe { kv_append(level, &work, &keys, &values, range.start * heads..range.end * heads) };
            }
        }
    }
}
