//! `table_update/1`, `kv_append/1`, `select_rows/1` and `lookup/1`: what is written or picked where.

use super::compare::{compare_results, compare_values};
use super::samples::{ROWS, Rows};
use super::states::{export, fill};
use super::tolerance::{EXACT, of_stored};
use super::{CaseError, Context, wrong};
use crate::block::ParameterBlock;
use crate::harness::Loaded;
use crate::quant;
use crate::random::Random;
use crate::reference::ReferenceExecutor;
use paceline_plugin_api::graph::ops::KV_BLOCK;
use paceline_plugin_api::graph::{DType, Graph, StateKind};

/// Types of KV caches.
const CACHE_TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1];

/// Runs all cases.
pub(super) fn run(context: &mut Context<'_>) {
    if context.wants("table_update") {
        let result = table_update(context);
        context.record("table_update", "updates one after the other", result);
    }
    if context.wants("kv_append") {
        for dtype in CACHE_TYPES {
            for max_rows in [1, 5, 17] {
                let result = kv_append(context, dtype, max_rows);
                context.record("kv_append", &format!("{dtype}, up to {max_rows} rows"), result);
            }
        }
    }
    if context.wants("lookup") {
        for entries in [1, 7, 3000] {
            let result = lookup(context, entries);
            context.record("lookup", &format!("{entries} entries"), result);
        }
    }
    if context.wants("select_rows") {
        for dims in [&[37][..], &[256], &[3, 20]] {
            for max_rows in [1, 16, 33] {
                let result = select_rows(context, dims, max_rows);
                context.record("select_rows", &format!("{dims:?}, up to {max_rows} rows"), result);
            }
        }
    }
}

/// Ids of a parameter, and of the row's largest value; some of them out of range.
fn lookup(context: &Context<'_>, entries: u32) -> Result<f64, CaseError> {
    const MOST: u32 = 17;
    let mut g = Rows::new(MOST);
    let (ids, x) = (g.integers("ids"), g.floats("x", &[entries + 1]));
    let table = g.builder.weight("table", DType::I32, &[entries]);
    let (largest, _) = g.builder.argmax(x);
    for (name, ids) in [("given", ids), ("made", largest)] {
        let out = g.builder.lookup(ids, table);
        g.builder.result(name, out);
    }
    let graph = g.builder.finish();
    let mut random = Random::named(context.options.seed, &format!("lookup {entries}"));
    let bytes: Vec<u8> =
        (0..entries).flat_map(|_| (random.below(1 << 20) as i32 - 1000).to_le_bytes()).collect();
    let weights = vec![bytes];
    let mut loaded = context.bench.load(&graph, &weights)?;
    let mut reference = ReferenceExecutor::new(&graph, weights)?;
    for rows in [MOST, 1, 0] {
        let ids: Vec<i32> = (0..rows).map(|row| random.below(entries + 4) as i32 - row as i32 % 3).collect();
        let mut block = ParameterBlock::new(&graph);
        block.set_integers(ROWS, &[rows as i32]).set_integers("ids", &ids);
        block.set_floats("x", 0, &random.floats(((entries + 1) * rows) as usize, 1.0));
        let parameters = block.into_bytes();
        let expected = reference.run(&parameters)?;
        let given = loaded.run(&parameters)?;
        compare_results(&graph, &parameters, &expected, &given, EXACT)
            .or_else(|what| wrong(format!("ids {ids:?} of {entries}: {what}")))?;
    }
    Ok(0.0)
}

/// Loads a graph whose states are zeros; refused if the backend cannot import states.
fn load_zeroed(context: &Context<'_>, graph: &Graph) -> Result<Loaded, CaseError> {
    let mut loaded = context.bench.load(graph, &[])?;
    fill(&mut loaded, 0)?;
    Ok(loaded)
}

fn table_update(context: &Context<'_>) -> Result<f64, CaseError> {
    const UPDATES: u32 = 9;
    let mut g = Rows::new(1);
    let count = g.builder.parameter("update_count", DType::I32, &[1], None);
    let updates = g.builder.parameter("updates", DType::I32, &[UPDATES, 3], Some(count));
    let table = g.builder.state("table", StateKind::Table, DType::I32, &[4, 5]);
    g.builder.table_update(table, updates);
    let graph = g.builder.finish();
    let mut loaded = load_zeroed(context, &graph)?;
    let mut reference = ReferenceExecutor::new(&graph, Vec::new())?;
    // The same place twice in one run, no update, all of them, values of any size.
    let lists: [&[[i32; 3]]; 4] = [
        &[[0, 0, 7], [3, 4, 9], [0, 0, 8]],
        &[],
        &[[1, 2, 6]],
        &[
            [2, 0, 1],
            [2, 1, 2],
            [2, 2, 3],
            [2, 3, 4],
            [2, 4, 5],
            [3, 4, 0],
            [1, 2, i32::MAX],
            [0, 1, 3],
            [0, 0, 0],
        ],
    ];
    for list in lists {
        let mut block = ParameterBlock::new(&graph);
        block.set_integers(ROWS, &[1]).set_integers("update_count", &[list.len() as i32]);
        block.set_integers("updates", list.as_flattened());
        let parameters = block.into_bytes();
        reference.run(&parameters)?;
        loaded.run(&parameters)?;
        if export(&loaded, 0)? != reference.state(0) {
            return wrong(format!("after {list:?} the table is another"));
        }
    }
    Ok(0.0)
}

fn kv_append(context: &Context<'_>, dtype: DType, max_rows: u32) -> Result<f64, CaseError> {
    const BLOCKS: u32 = 3;
    let (heads, width) = (2, 64);
    let mut g = Rows::new(max_rows);
    let (k, v, cells) = (g.floats("k", &[heads, width]), g.floats("v", &[heads, width]), g.integers("cells"));
    let dims = [BLOCKS, KV_BLOCK, heads, width];
    let caches = ["keys", "values"].map(|name| g.builder.state(name, StateKind::PerPosition, dtype, &dims));
    g.builder.kv_append(k, v, caches, cells);
    let graph = g.builder.finish();
    let mut loaded = load_zeroed(context, &graph)?;
    let mut reference = ReferenceExecutor::new(&graph, Vec::new())?;
    let mut random = Random::named(context.options.seed, &format!("kv_append {dtype} {max_rows}"));
    let order: Vec<i32> = random.shuffled(BLOCKS * KV_BLOCK).into_iter().map(|cell| cell as i32).collect();
    let mut order = order.as_slice();
    for rows in [max_rows, 1, max_rows.div_ceil(2)] {
        let (cells, rest) = order.split_at(rows as usize);
        order = rest;
        let mut cells = cells.to_vec();
        if let [_, dropped, _, ..] = &mut cells[..] {
            *dropped = -1;
        }
        let mut block = ParameterBlock::new(&graph);
        block.set_integers(ROWS, &[rows as i32]).set_integers("cells", &cells);
        for name in ["k", "v"] {
            block.set_floats(name, 0, &random.floats((rows * heads * width) as usize, 2.0));
        }
        let parameters = block.into_bytes();
        reference.run(&parameters)?;
        loaded.run(&parameters)?;
    }
    let mut worst = 0.0f64;
    for (index, name) in ["keys", "values"].into_iter().enumerate() {
        let read = |bytes: &[u8]| -> Result<Vec<f32>, CaseError> {
            let mut values = vec![0.0; (BLOCKS * KV_BLOCK * heads * width) as usize];
            quant::dequantize(dtype, bytes, &mut values).or_else(|error| wrong(error.to_string()))?;
            Ok(values)
        };
        let (expected, given) = (read(reference.state(index))?, read(&export(&loaded, index)?)?);
        let error = compare_values(&expected, &given, width as usize, of_stored(dtype))
            .or_else(|what| wrong(format!("state `{name}`: {what}")))?;
        worst = worst.max(error);
    }
    Ok(worst)
}

fn select_rows(context: &Context<'_>, dims: &'static [u32], max_rows: u32) -> Result<f64, CaseError> {
    let mut g = Rows::new(max_rows);
    let x = g.floats("x", dims);
    let count = g.builder.parameter("wanted_count", DType::I32, &[1], None);
    let wanted = g.builder.parameter("wanted", DType::I32, &[max_rows + 2], Some(count));
    let out = g.builder.select_rows(x, wanted);
    g.out(out);
    let graph = g.builder.finish();
    let mut loaded = context.bench.load(&graph, &[])?;
    let mut reference = ReferenceExecutor::new(&graph, Vec::new())?;
    let mut random = Random::named(context.options.seed, &format!("select_rows {dims:?} {max_rows}"));
    for (rows, wanted) in [(max_rows, max_rows + 2), (max_rows, 1), (max_rows.div_ceil(2), 2), (1, 0)] {
        // Any order, and rows more than once.
        let list: Vec<i32> = (0..wanted).map(|_| random.below(rows) as i32).collect();
        let mut block = ParameterBlock::new(&graph);
        block.set_integers(ROWS, &[rows as i32]).set_integers("wanted_count", &[wanted as i32]);
        block.set_integers("wanted", &list);
        let elements = dims.iter().product::<u32>() * rows;
        block.set_floats("x", 0, &random.floats(elements as usize, 1.0));
        let parameters = block.into_bytes();
        let expected = reference.run(&parameters)?;
        let given = loaded.run(&parameters)?;
        compare_results(&graph, &parameters, &expected, &given, EXACT)
            .or_else(|what| wrong(format!("rows {list:?} of {rows}: {what}")))?;
    }
    Ok(0.0)
}
