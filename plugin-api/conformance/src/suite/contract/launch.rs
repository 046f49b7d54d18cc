//! Launches: slots, order, what is refused, the same bits every time.

use super::toys::{SLOTS, layer, layer_parameters, recurrent, recurrent_parameters};
use super::{Case, check_refused};
use crate::block::ParameterBlock;
use crate::harness::{HarnessError, Loaded};
use crate::reference::ReferenceExecutor;
use crate::suite::compare::compare_results;
use crate::suite::samples::{ROWS, random_weights};
use crate::suite::tolerance::of_product;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::graph::{DType, Graph};

pub const CASES: &[Case] = &[
    ("every slot has its own blocks", slots),
    ("several launches and one wait", one_wait),
    ("a slot that does not exist", missing_slot),
    ("live counts out of range", bad_counts),
    ("sequences out of range", bad_sequences),
    ("many launches have the same bits", many),
    ("executables share a workspace", shared_workspace),
    ("threads launch one after the other", threads),
    ("a run without rows", no_rows),
];

fn weights_of(context: &Context<'_>, graph: &Graph) -> Vec<Vec<u8>> {
    random_weights(graph, context.options.seed, "launch")
}

fn load(context: &Context<'_>, graph: &Graph, slots: u32) -> Result<Loaded, CaseError> {
    Ok(context.bench.place(&[graph], &weights_of(context, graph))?.load(0, slots)?)
}

/// Compares a result block with the reference executor's.
fn check_result(
    context: &Context<'_>,
    graph: &Graph,
    parameters: &[u8],
    given: &[u8],
    what: &str,
) -> Result<(), CaseError> {
    let expected = ReferenceExecutor::new(graph, weights_of(context, graph))?.run(parameters)?;
    compare_results(graph, parameters, &expected, given, of_product(DType::F32))
        .map(drop)
        .or_else(|error| wrong(format!("{what}: {error}")))
}

fn slots(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(5);
    let mut loaded = load(context, &graph, 3)?;
    let blocks = [1, 5, 2].map(|rows| layer_parameters(&graph, rows, rows.into()));
    for (slot, block) in (0..).zip(&blocks) {
        loaded.write_parameters(slot, block);
    }
    let mut last = 0;
    for slot in [2, 0, 1] {
        last = loaded.launch(slot, &[])?;
    }
    loaded.wait(last)?;
    for (slot, block) in (0..).zip(&blocks) {
        check_result(context, &graph, block, &loaded.read_results(slot), &format!("slot {slot}"))?;
    }
    Ok(())
}

/// Launches run in the order in which they were queued: each needs the state of the one before.
fn one_wait(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = recurrent(4);
    let mut loaded = load(context, &graph, 4)?;
    let blocks: Vec<Vec<u8>> =
        (0..4).map(|i| recurrent_parameters(&graph, 4, [0, 4, i * 4, 1], i as u64)).collect();
    let mut last = 0;
    for (slot, block) in (0..).zip(&blocks) {
        loaded.write_parameters(slot, block);
        last = loaded.launch(slot, &[])?;
    }
    loaded.wait(last)?;
    let mut reference = ReferenceExecutor::new(&graph, weights_of(context, &graph))?;
    for (slot, block) in (0..).zip(&blocks) {
        let expected = reference.run(block)?;
        compare_results(&graph, block, &expected, &loaded.read_results(slot), of_product(DType::F32))
            .or_else(|error| wrong(format!("launch {slot}: {error}")))?;
    }
    Ok(())
}

fn missing_slot(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(2);
    let mut loaded = load(context, &graph, 2)?;
    let parameters = layer_parameters(&graph, 2, 1);
    loaded.write_parameters(0, &parameters);
    for slot in [2, u32::MAX] {
        check_launch_refused(&mut loaded, slot, &format!("slot {slot} of 2"))?;
    }
    // A refused launch leaves the executable usable.
    check_result(context, &graph, &parameters, &loaded.run(&parameters)?, "after a refused launch")
}

/// A launch must be refused at once, not later by its semaphore.
fn check_launch_refused(loaded: &mut Loaded, slot: u32, what: &str) -> Result<(), CaseError> {
    let launched = loaded.launch(slot, &[]);
    if let Ok(value) = launched {
        // Nothing may stay pending.
        let _ = loaded.wait(value);
    }
    let text = launched.map_err(|error| match error {
        HarnessError::Failed { error, .. } => error.message,
        HarnessError::Refused(reason) => reason,
    });
    check_refused(what, text, "")
}

fn bad_counts(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(3);
    let mut loaded = load(context, &graph, 1)?;
    let good = layer_parameters(&graph, 3, 2);
    for count in [-1, 4, i32::MAX, i32::MIN] {
        let mut block = ParameterBlock::from_bytes(&graph, &good);
        block.set_integers(ROWS, &[count]);
        loaded.write_parameters(0, block.bytes());
        check_launch_refused(&mut loaded, 0, &format!("a live count of {count} of 3"))?;
    }
    check_result(context, &graph, &good, &loaded.run(&good)?, "after refused launches")
}

fn bad_sequences(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = recurrent(4);
    let mut loaded = load(context, &graph, 1)?;
    let beyond = SLOTS as i32;
    for (what, sequence) in [
        ("a slot beyond the last", [0, 4, 0, beyond]),
        ("a negative slot", [0, 4, 0, -1]),
        ("rows beyond the live ones", [1, 4, 0, 0]),
        ("a negative first row", [-1, 4, 0, 0]),
        ("a negative number of rows", [0, -1, 0, 0]),
        ("a negative length", [0, 4, -1, 0]),
        ("a number of rows that overflows", [1, i32::MAX, 0, 0]),
    ] {
        loaded.write_parameters(0, &recurrent_parameters(&graph, 4, sequence, 3));
        check_launch_refused(&mut loaded, 0, &format!("{what}: {sequence:?}"))?;
    }
    let good = recurrent_parameters(&graph, 4, [0, 4, 0, 2], 3);
    check_result(context, &graph, &good, &loaded.run(&good)?, "after refused launches")
}

fn many(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(17);
    let mut loaded = load(context, &graph, 1)?;
    let parameters = layer_parameters(&graph, 17, 8);
    let first = loaded.run(&parameters)?;
    for launch in 1..100 {
        if loaded.run(&parameters)? != first {
            return wrong(format!("launch {launch} has other bits than the first"));
        }
    }
    Ok(())
}

fn shared_workspace(context: &Context<'_>) -> Result<(), CaseError> {
    let graphs = [layer(1), layer(16), layer(40)];
    let weights = weights_of(context, &graphs[0]);
    let placement = context.bench.place(&graphs.each_ref(), &weights)?;
    let mut loaded =
        (0..graphs.len()).map(|index| placement.load(index, 1)).collect::<Result<Vec<_>, _>>()?;
    let blocks: Vec<Vec<u8>> =
        graphs.iter().zip([1, 9, 40]).map(|(graph, rows)| layer_parameters(graph, rows, 4)).collect();
    // All queued before the first wait.
    let mut values = Vec::new();
    for (loaded, block) in loaded.iter_mut().zip(&blocks) {
        loaded.write_parameters(0, block);
        values.push(loaded.launch(0, &[])?);
    }
    for ((loaded, block), value) in loaded.iter_mut().zip(&blocks).zip(values) {
        loaded.wait(value)?;
        let graph = loaded.graph().clone();
        check_result(context, &graph, block, &loaded.read_results(0), "with a shared workspace")?;
    }
    Ok(())
}

fn threads(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(8);
    let mut loaded = load(context, &graph, 1)?;
    let parameters = layer_parameters(&graph, 8, 6);
    let expected = loaded.run(&parameters)?;
    for _ in 0..4 {
        let parameters = &parameters;
        let run = std::thread::spawn({
            let parameters = parameters.clone();
            move || {
                let result = loaded.run(&parameters);
                (loaded, result)
            }
        });
        let Ok((back, result)) = run.join() else { return wrong("a launch on another thread panicked") };
        loaded = back;
        if result? != expected {
            return wrong("a launch on another thread has other bits");
        }
    }
    Ok(())
}

fn no_rows(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(3);
    let mut loaded = load(context, &graph, 1)?;
    loaded.run(&layer_parameters(&graph, 0, 0))?;
    let parameters = layer_parameters(&graph, 3, 7);
    check_result(context, &graph, &parameters, &loaded.run(&parameters)?, "after a run without rows")
}
