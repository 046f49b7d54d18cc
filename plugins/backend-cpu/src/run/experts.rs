//! Mixtures of experts: groups of rows, and a product for each group.

use super::{CHUNKS_PER_THREAD, LEAST_ROW_EFFORT, Run};
use crate::kernels::SharedSlice;
use crate::kernels::elementwise::glu;
use crate::kernels::experts::add_weighted;
use crate::linear::{Activations, Output, linear};
use crate::program::{ExpertMatrix, ExpertStage, ExpertsWork, Id};
use crate::quantized::{QuantizedRows, quantize_row, row_bytes};
use crate::weights::{PANEL_ROWS, PackedMatrix, panel_count};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Assignments that whoever groups them also gathers: fewer are not worth a stage of their own.
const FEW_ASSIGNMENTS: usize = 64;

impl Run<'_> {
    pub(super) fn expert_chunks(&self, stage: ExpertStage, work: &ExpertsWork) -> usize {
        let rows = self.live(work.rows);
        if rows == 0 {
            return 0;
        }
        match stage {
            ExpertStage::Group => 1,
            ExpertStage::Gather if rows * work.chosen <= FEW_ASSIGNMENTS => 0,
            ExpertStage::Gather => {
                self.positions(work).div_ceil(self.share(self.positions(work), work.gate.k))
            }
            ExpertStage::Inner => self.groups(work) * self.pieces(work, work.gate),
            ExpertStage::Quantize => {
                self.positions(work).div_ceil(self.share(self.positions(work), work.gate.n))
            }
            ExpertStage::Outer => self.groups(work) * self.pieces(work, work.down),
            ExpertStage::Combine => rows.div_ceil(self.share(rows, work.chosen * work.down.n)),
        }
    }

    pub(super) fn experts(&self, stage: ExpertStage, work: &ExpertsWork, chunk: usize) {
        let part = |count: usize, elements: usize| {
            let size = self.share(count, elements);
            chunk * size..((chunk + 1) * size).min(count)
        };
        match stage {
            ExpertStage::Group => {
                let assignments = self.live(work.rows) * work.chosen;
                let list = self.write::<i32>(work.list, work.grouping.len());
                // SAFETY: this kernel is one chunk, and no other kernel of the phase touches the list.
                let list = unsafe { list.part(0..work.grouping.len()) };
                work.grouping.group(self.read(work.ids, assignments), list);
                if assignments <= FEW_ASSIGNMENTS {
                    self.gather(work, 0..self.positions(work));
                }
            }
            ExpertStage::Gather => self.gather(work, part(self.positions(work), work.gate.k)),
            ExpertStage::Inner => self.inner(work, chunk),
            ExpertStage::Quantize => self.quantize_inner(work, part(self.positions(work), work.gate.n)),
            ExpertStage::Outer => {
                let (expert, positions, panels) = self.piece(work, work.down, chunk);
                let source = work.inner_quantized.unwrap_or(work.inner);
                self.expert_product(&work.down, expert, source, positions, work.outer, panels);
            }
            ExpertStage::Combine => {
                self.combine_experts(work, part(self.live(work.rows), work.chosen * work.down.n));
            }
        }
    }

    fn list(&self, work: &ExpertsWork) -> &[i32] {
        self.read(work.list, work.grouping.len())
    }

    fn positions(&self, work: &ExpertsWork) -> usize {
        work.grouping.positions(self.list(work))
    }

    fn groups(&self, work: &ExpertsWork) -> usize {
        work.grouping.groups(self.list(work))
    }

    /// Of `count` rows of so many elements, those of a chunk.
    fn share(&self, count: usize, elements: usize) -> usize {
        let shared = count.div_ceil(self.bound.threads * CHUNKS_PER_THREAD);
        shared.max(LEAST_ROW_EFFORT.div_ceil(elements.max(1))).max(1)
    }

    /// Chunks that the product of a group is cut into.
    fn pieces(&self, work: &ExpertsWork, matrix: ExpertMatrix) -> usize {
        let wanted = (self.bound.threads * CHUNKS_PER_THREAD).div_ceil(self.groups(work).max(1));
        wanted.min(panel_count(matrix.n)).max(1)
    }

    /// Expert, positions and panels of a chunk.
    fn piece(
        &self,
        work: &ExpertsWork,
        matrix: ExpertMatrix,
        chunk: usize,
    ) -> (usize, Range<usize>, Range<usize>) {
        let pieces = self.pieces(work, matrix);
        let (expert, positions) = work.grouping.of(self.list(work), chunk / pieces);
        let panels = panel_count(matrix.n);
        let cut = |piece: usize| panels * piece / pieces;
        (expert, positions, cut(chunk % pieces)..cut(chunk % pieces + 1))
    }

    /// Copies the rows of the assignments at these positions.
    fn gather(&self, work: &ExpertsWork, positions: Range<usize>) {
        let list = self.list(work);
        let row_bytes_of = |quantized: bool| match quantized {
            true => row_bytes(work.gate.k),
            false => work.gate.k * size_of::<f32>(),
        };
        for (pair, quantized) in [(work.plain, false), (work.quantized, true)] {
            let Some([source, target]) = pair else { continue };
            let bytes = row_bytes_of(quantized);
            let source = self.read::<u8>(source, self.live(work.rows) * bytes);
            let target = self.write::<u8>(target, positions.end * bytes);
            for position in positions.clone() {
                let row = work.grouping.assignment(list, position) / work.chosen;
                // SAFETY: the position is this chunk's.
                let to = unsafe { target.part(position * bytes..(position + 1) * bytes) };
                to.copy_from_slice(&source[row * bytes..(row + 1) * bytes]);
            }
        }
    }

    fn inner(&self, work: &ExpertsWork, chunk: usize) {
        let (expert, positions, panels) = self.piece(work, work.gate, chunk);
        for (matrix, out) in [(&work.gate, work.gate_out), (&work.up, work.up_out)] {
            let pair = if matrix.kind.is_quantized() { work.quantized } else { work.plain };
            let Some([_, source]) = pair else { panic!("the plan lacks the rows of an expert") };
            self.expert_product(matrix, expert, source, positions.clone(), out, panels.clone());
        }
        let n = work.gate.n;
        let [gate, up, out] =
            [work.gate_out, work.up_out, work.inner].map(|id| self.write::<f32>(id, positions.end * n));
        let columns = panels.start * PANEL_ROWS..(panels.end * PANEL_ROWS).min(n);
        for position in positions {
            let span = position * n + columns.start..position * n + columns.end;
            // SAFETY: these columns of the position are this chunk's.
            unsafe {
                let out = SharedSlice::from_raw(out.pointer(span.start), columns.len());
                let (gate, up) = (gate.part(span.clone()), up.part(span));
                glu(self.bound.level, work.activation, gate, up, out, 0..columns.len());
            }
        }
    }

    fn quantize_inner(&self, work: &ExpertsWork, positions: Range<usize>) {
        let Some(target) = work.inner_quantized else { return };
        let (n, bytes) = (work.gate.n, row_bytes(work.gate.n));
        let source = self.read::<f32>(work.inner, positions.end * n);
        let target = self.write::<u8>(target, positions.end * bytes);
        for position in positions.clone() {
            // SAFETY: the position is this chunk's.
            let to = unsafe { target.part(position * bytes..(position + 1) * bytes) };
            if let Err(error) = quantize_row(self.bound.level, &source[position * n..(position + 1) * n], to)
            {
                panic!("a row does not fit its plan: {error}");
            }
        }
        self.bound.quantized_rows.fetch_add(positions.len() as u64, Ordering::Relaxed);
    }

    /// The panels of an expert's matrix times the rows at these positions.
    fn expert_product(
        &self,
        matrix: &ExpertMatrix,
        expert: usize,
        source: Id,
        positions: Range<usize>,
        out: Id,
        panels: Range<usize>,
    ) {
        let (n, k, kind) = (matrix.n, matrix.k, matrix.kind);
        let region = self.region(matrix.weight);
        // SAFETY: the span of the weight was checked at load, and weights do not change.
        let bytes = unsafe { std::slice::from_raw_parts(region.start, region.bytes) };
        let result = crate::weights::packed_bytes(kind, n, k).map_err(|e| e.to_string()).and_then(|size| {
            let bytes = &bytes[expert * size..(expert + 1) * size];
            let weights = PackedMatrix::new(kind, n, k, bytes).map_err(|e| e.to_string())?;
            let activations = if kind.is_quantized() {
                let size = row_bytes(k);
                let rows = &self.read::<u8>(source, positions.end * size)[positions.start * size..];
                let rows = QuantizedRows::new(rows, positions.len(), k).map_err(|e| e.to_string())?;
                Activations::Quantized(rows)
            } else {
                let values = &self.read::<f32>(source, positions.end * k)[positions.start * k..];
                Activations::F32 { values, rows: positions.len() }
            };
            let out = self.write::<f32>(out, positions.end * n);
            let out = Output { start: out.pointer(positions.start * n), stride: n };
            // SAFETY: the output holds these positions, and the panels of the group are this chunk's alone.
            unsafe { linear(self.bound.level, &weights, activations, None, out, panels) }
                .map_err(|e| e.to_string())
        });
        if let Err(error) = result {
            panic!("a product of an expert does not fit its plan: {error}");
        }
    }

    /// The weighted sums of rows, in the order in which each chose its experts.
    fn combine_experts(&self, work: &ExpertsWork, rows: Range<usize>) {
        let (list, n) = (self.list(work), work.down.n);
        let outer = self.read::<f32>(work.outer, self.positions(work) * n);
        let weights = self.read::<f32>(work.weights, rows.end * work.chosen);
        let out = self.write::<f32>(work.out, rows.end * n);
        for row in rows {
            // SAFETY: the row is this chunk's.
            let sum = unsafe { out.part(row * n..(row + 1) * n) };
            sum.fill(0.0);
            let first = row * work.chosen;
            for (place, &weight) in weights[first..first + work.chosen].iter().enumerate() {
                let Some(position) = work.grouping.position(list, first + place) else { continue };
                let x = &outer[position * n..(position + 1) * n];
                // SAFETY: nothing shared is touched.
                unsafe { add_weighted(self.bound.level, sum, weight, x) };
            }
        }
    }
}
