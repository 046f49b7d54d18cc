//! Operations over sequences with state: right over several runs, and the same bits however a sequence is cut.

mod bits;
mod player;
mod scripts;

use super::compare::{compare_results, compare_values};
use super::samples::SequenceSample;
use super::{CaseError, Context, wrong};
use crate::harness::{HarnessError, Loaded};
use crate::reference::ReferenceExecutor;
use paceline_plugin_api::graph::{DType, StateKind, ValueKind};
use player::Player;
use scripts::{Piece, Script, accuracy_scripts};

/// Runs all cases of a sample.
pub(super) fn run(context: &mut Context<'_>, sample: &SequenceSample) {
    for script in accuracy_scripts(sample.capacity()) {
        let result = accuracy(context, sample, &script);
        let is_refused = matches!(result, Err(CaseError::Harness(HarnessError::Refused(_))));
        context.record(sample.operation, &format!("{}, {}", sample.name, script.name), result);
        if is_refused {
            return;
        }
    }
    for check in bits::CHECKS.iter().filter(|check| sample.is_causal || !check.cuts) {
        let result = (check.run)(context, sample);
        context.record(sample.operation, &format!("{}, bits: {}", sample.name, check.name), result);
    }
}

/// Runs a script step by step and compares results and, at the end, the states of the slots that are in use.
fn accuracy(context: &Context<'_>, sample: &SequenceSample, script: &Script) -> Result<f64, CaseError> {
    let graph = sample.graph(script.max_rows());
    let weights = sample.weights(&graph, context.options.seed);
    let mut loaded = context.bench.load(&graph, &weights)?;
    let mut reference = ReferenceExecutor::new(&graph, weights)?;
    let mut player = Player::new(sample, context.options.seed);
    let mut worst = 0.0f64;
    for (index, step) in script.steps.iter().enumerate() {
        let parameters = player.parameters(&graph, step);
        let expected = reference.run(&parameters)?;
        let given = loaded.run(&parameters)?;
        let error = compare_results(&graph, &parameters, &expected, &given, sample.tolerance)
            .or_else(|what| wrong(format!("run {index} ({}): {what}", describe(step))))?;
        worst = worst.max(error);
    }
    Ok(worst.max(compare_slots(&loaded, &reference, &player, sample)?))
}

fn describe(step: &[Piece]) -> String {
    let pieces: Vec<String> =
        step.iter().map(|p| format!("{} rows of sequence {} in slot {}", p.rows, p.stream, p.slot)).collect();
    pieces.join(", ")
}

/// Compares the slots that hold a sequence, where states are per slot and the backend exports them.
fn compare_slots(
    loaded: &Loaded,
    reference: &ReferenceExecutor,
    player: &Player<'_>,
    sample: &SequenceSample,
) -> Result<f64, CaseError> {
    let graph = loaded.graph();
    let mut worst = 0.0f64;
    for (index, id) in graph.states().enumerate() {
        let value = graph.value(id);
        if value.kind != ValueKind::State(StateKind::PerSlot) || value.dtype != DType::F32 {
            continue;
        }
        let Some(given) = loaded.export_state(index)? else { continue };
        let read = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        let (expected, given) = (read(reference.state(index)), read(&given));
        let elements = value.shape.row_elements() as usize;
        for slot in player.slots_in_use() {
            let range = slot as usize * elements..(slot as usize + 1) * elements;
            let width = value.shape.last() as usize;
            let error = compare_values(&expected[range.clone()], &given[range], width, sample.tolerance)
                .or_else(|what| wrong(format!("state `{}`, slot {slot}: {what}", value.name)))?;
            worst = worst.max(error);
        }
    }
    Ok(worst)
}
