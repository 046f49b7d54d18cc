//! `rows_store/1` and `rows_load/1`: rows of a state by cell, in the order of the nodes.

use super::compare::compare_results;
use super::samples::{ROWS, Rows};
use super::states::{check_launch_refused, export, fill};
use super::tolerance::EXACT;
use super::{CaseError, Context, wrong};
use crate::block::ParameterBlock;
use crate::harness::Loaded;
use crate::random::Random;
use crate::reference::ReferenceExecutor;
use paceline_plugin_api::graph::{DType, Graph, StateKind, ValueId};

/// Entries of the states here.
const ENTRIES: u32 = 9;
/// What states hold before a case.
const DIRT: u8 = 0x3E;
/// Widths of an entry, and row maxima.
const SHAPES: [(u32, u32); 4] = [(1, 1), (37, 5), (64, 17), (2600, 3)];

type Case = fn(&Context<'_>) -> Result<(), CaseError>;
/// A case of a width and a row maximum.
type SizedCase = fn(&Context<'_>, u32, u32) -> Result<(), CaseError>;

/// Runs all cases.
pub(super) fn run(context: &mut Context<'_>) {
    for (width, max_rows) in SHAPES {
        let cases: [(&str, SizedCase); 2] = [("rows_store", store), ("rows_load", load)];
        for (group, case) in cases {
            if context.wants(group) {
                let result = case(context, width, max_rows).map(|()| 0.0);
                context.record(group, &format!("{width} wide, up to {max_rows} rows"), result);
            }
        }
    }
    let cases: [(&str, &str, Case); 5] = [
        ("rows_store", "two rows of one cell", one_cell_twice),
        ("rows_store", "cells out of range", bad_stores),
        ("rows_load", "loads before and after a store", around_a_store),
        ("rows_load", "cells that a node made", cells_of_a_node),
        ("rows_load", "cells out of range", bad_loads),
    ];
    for (group, name, case) in cases {
        if context.wants(group) {
            let result = case(context).map(|()| 0.0);
            context.record(group, name, result);
        }
    }
}

fn state(g: &mut Rows, width: u32) -> ValueId {
    g.builder.state("entries", StateKind::PerSlot, DType::F32, &[ENTRIES, width])
}

/// A graph that stores rows.
fn storing(width: u32, max_rows: u32) -> Graph {
    let mut g = Rows::new(max_rows);
    let (x, cells, state) = (g.floats("x", &[width]), g.integers("cells"), state(&mut g, width));
    g.builder.rows_store(x, state, cells);
    g.builder.finish()
}

/// A graph that loads `wanted` before and after it stores `x` at `cells`.
fn storing_and_loading(width: u32, max_rows: u32) -> Graph {
    let mut g = Rows::new(max_rows);
    let (x, cells, state) = (g.floats("x", &[width]), g.integers("cells"), state(&mut g, width));
    let count = g.builder.parameter("wanted_count", DType::I32, &[1], None);
    let wanted = g.builder.parameter("wanted", DType::I32, &[max_rows + 2], Some(count));
    let before = g.builder.rows_load(state, wanted);
    g.builder.rows_store(x, state, cells);
    let after = g.builder.rows_load(state, wanted);
    // Work on whole rows between them, which may be joined with its neighbours but not move over the store.
    let sum = g.builder.add(before, after);
    for (name, value) in [("before", before), ("after", after), ("sum", sum)] {
        g.builder.result(name, value);
    }
    g.builder.finish()
}

/// The graph on the backend and on the reference, with the same dirty states.
fn load_both(context: &Context<'_>, graph: &Graph) -> Result<(Loaded, ReferenceExecutor), CaseError> {
    let mut loaded = context.bench.load(graph, &[])?;
    fill(&mut loaded, DIRT)?;
    let mut reference = ReferenceExecutor::new(graph, Vec::new())?;
    for (index, id) in graph.states().enumerate() {
        reference.set_state(index, &vec![DIRT; graph.value(id).bytes().unwrap_or(0) as usize])?;
    }
    Ok((loaded, reference))
}

/// Runs on both and compares results and states, which must be the same bytes.
fn compare_run(
    (loaded, reference): &mut (Loaded, ReferenceExecutor),
    parameters: &[u8],
    what: &str,
) -> Result<(), CaseError> {
    let expected = reference.run(parameters)?;
    let given = loaded.run(parameters)?;
    compare_results(loaded.graph(), parameters, &expected, &given, EXACT)
        .or_else(|error| wrong(format!("{what}: {error}")))?;
    if export(loaded, 0)? != reference.state(0) {
        return wrong(format!("{what}: the state is another"));
    }
    Ok(())
}

/// Cells of which some are negative; none twice.
fn some_cells(random: &mut Random, count: u32) -> Vec<i32> {
    let shuffled = random.shuffled(ENTRIES.max(count));
    let cell = |(row, cell): (usize, u32)| match (cell < ENTRIES, row % 4) {
        (true, 0..=2) => cell as i32,
        (_, 1) => i32::MIN,
        _ => -1,
    };
    shuffled.into_iter().take(count as usize).enumerate().map(cell).collect()
}

fn set_rows(block: &mut ParameterBlock<'_>, random: &mut Random, cells: &[i32], width: u32) {
    block.set_integers(ROWS, &[cells.len() as i32]).set_integers("cells", cells);
    block.set_floats("x", 0, &random.floats(cells.len() * width as usize, 1.0));
}

fn store(context: &Context<'_>, width: u32, max_rows: u32) -> Result<(), CaseError> {
    let graph = storing(width, max_rows);
    let mut both = load_both(context, &graph)?;
    let mut random = Random::named(context.options.seed, &format!("rows_store {width} {max_rows}"));
    for rows in [max_rows, 1, max_rows.div_ceil(2), 0, max_rows] {
        let mut block = ParameterBlock::new(&graph);
        let cells = some_cells(&mut random, rows);
        set_rows(&mut block, &mut random, &cells, width);
        compare_run(&mut both, block.bytes(), &format!("cells {cells:?}"))?;
    }
    Ok(())
}

fn load(context: &Context<'_>, width: u32, max_rows: u32) -> Result<(), CaseError> {
    let graph = storing_and_loading(width, max_rows);
    let mut both = load_both(context, &graph)?;
    let mut random = Random::named(context.options.seed, &format!("rows_load {width} {max_rows}"));
    for (rows, wanted) in [(max_rows, 1), (1, max_rows + 2), (max_rows, 0), (0, 2), (max_rows, max_rows)] {
        let mut block = ParameterBlock::new(&graph);
        let cells = some_cells(&mut random, rows);
        set_rows(&mut block, &mut random, &cells, width);
        // Any order, entries more than once, some negative.
        let list: Vec<i32> = (0..wanted).map(|_| random.below(ENTRIES + 2) as i32 - 2).collect();
        block.set_integers("wanted_count", &[wanted as i32]).set_integers("wanted", &list);
        compare_run(&mut both, block.bytes(), &format!("cells {cells:?}, wanted {list:?}"))?;
    }
    Ok(())
}

fn one_cell_twice(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = storing(300, 6);
    let mut both = load_both(context, &graph)?;
    let mut block = ParameterBlock::new(&graph);
    let mut random = Random::named(context.options.seed, "one cell twice");
    set_rows(&mut block, &mut random, &[4, 2, 4, 4, -1, 2], 300);
    compare_run(&mut both, block.bytes(), "rows of one cell")
}

fn around_a_store(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = storing_and_loading(40, 3);
    let mut both = load_both(context, &graph)?;
    let mut random = Random::named(context.options.seed, "around a store");
    for cells in [[0, 8, 3], [3, 0, 8], [-1, 3, 1]] {
        let mut block = ParameterBlock::new(&graph);
        set_rows(&mut block, &mut random, &cells, 40);
        block.set_integers("wanted_count", &[5]).set_integers("wanted", &[3, 0, 8, 0, 5]);
        compare_run(&mut both, block.bytes(), &format!("cells {cells:?}"))?;
    }
    Ok(())
}

/// What a node makes cannot be checked at a launch: beyond the state it gives zeros.
fn cells_of_a_node(context: &Context<'_>) -> Result<(), CaseError> {
    let mut g = Rows::new(8);
    let logits = g.floats("logits", &[ENTRIES + 5]);
    let state = state(&mut g, 24);
    let (cells, _) = g.builder.argmax(logits);
    let out = g.builder.rows_load(state, cells);
    g.out(out);
    let graph = g.builder.finish();
    let mut both = load_both(context, &graph)?;
    let mut random = Random::named(context.options.seed, "cells of a node");
    for rows in [8, 3] {
        let mut block = ParameterBlock::new(&graph);
        block.set_integers(ROWS, &[rows]);
        block.set_floats("logits", 0, &random.floats((rows * 14) as usize, 1.0));
        compare_run(&mut both, block.bytes(), &format!("{rows} rows"))?;
    }
    Ok(())
}

fn bad_stores(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = storing(16, 3);
    let (mut loaded, _) = load_both(context, &graph)?;
    for bad in [ENTRIES as i32, i32::MAX] {
        let mut block = ParameterBlock::new(&graph);
        set_rows(&mut block, &mut Random::new(1), &[1, bad, 2], 16);
        check_launch_refused(&mut loaded, block.bytes(), &format!("cell {bad} of {ENTRIES}"))?;
    }
    Ok(())
}

fn bad_loads(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = storing_and_loading(16, 3);
    let (mut loaded, _) = load_both(context, &graph)?;
    for bad in [ENTRIES as i32, i32::MAX] {
        let mut block = ParameterBlock::new(&graph);
        set_rows(&mut block, &mut Random::new(1), &[1, 0, 2], 16);
        block.set_integers("wanted_count", &[2]).set_integers("wanted", &[0, bad]);
        check_launch_refused(&mut loaded, block.bytes(), &format!("cell {bad} of {ENTRIES}"))?;
    }
    Ok(())
}
