//! The reference executor against examples that were computed by hand.

use paceline_conformance::ReferenceExecutor;
use paceline_conformance::block::{ParameterBlock, floats, integers};
use paceline_conformance::quant::quantize;
use paceline_conformance::reference::ReferenceError;
use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, Rotation, StateKind, ValueId};

const TWO_ROWS: u32 = 2;

/// A graph with the parameter `x` of up to two rows, whose node's first output is the result `out`.
fn unary(dims: &[u32], node: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[&[TWO_ROWS], dims].concat(), Some(rows));
    let out = node(&mut b, x);
    b.result("out", out);
    b.finish()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    quantize(DType::F32, values).unwrap()
}

/// Runs a graph of [`unary`] on `rows` rows.
fn run(graph: &Graph, weights: &[&[f32]], rows: i32, x: &[f32]) -> Vec<f32> {
    let weights = weights.iter().map(|values| bytes(values)).collect();
    let mut executor = ReferenceExecutor::new(graph, weights).unwrap();
    let mut block = ParameterBlock::new(graph);
    block.set_integers("rows", &[rows]).set_floats("x", 0, x);
    let results = executor.run(block.bytes()).unwrap();
    floats(graph, block.bytes(), &results, "out")
}

fn check(given: &[f32], expected: &[f32]) {
    assert_eq!(given.len(), expected.len(), "{given:?}");
    for (given, expected) in given.iter().zip(expected) {
        assert!((given - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{given} instead of {expected}");
    }
}

#[test]
fn norms() {
    let graph = unary(&[2], |b, x| {
        let w = b.weight("w", DType::F32, &[2]);
        b.rms_norm(x, w, 0.0)
    });
    // Mean square 12.5.
    check(&run(&graph, &[&[1.0, 2.0]], 1, &[3.0, 4.0]), &[3.0 / 12.5f32.sqrt(), 8.0 / 12.5f32.sqrt()]);
    let graph = unary(&[2], |b, x| b.l2_norm(x, 11.0));
    check(&run(&graph, &[], 1, &[3.0, 4.0]), &[0.5, 4.0 / 6.0]);
    let graph = unary(&[3], |b, x| b.softmax(x));
    let (e, sum) = (std::f32::consts::E, 2.0 + std::f32::consts::E);
    check(&run(&graph, &[], 1, &[500.0, 501.0, 500.0]), &[1.0 / sum, e / sum, 1.0 / sum]);
}

#[test]
fn a_gated_norm_takes_silu_of_its_gate() {
    let graph = unary(&[1], |b, x| {
        let w = b.weight("w", DType::F32, &[1]);
        b.rms_norm_gated(x, w, x, 0.0)
    });
    // x/|x| · w · silu(x).
    check(&run(&graph, &[&[3.0]], 1, &[2.0]), &[3.0 * 2.0 / (1.0 + (-2.0f32).exp())]);
}

#[test]
fn products_add_up_and_take_a_bias() {
    let graph = unary(&[2], |b, x| {
        let (w, bias) = (b.weight("w", DType::F32, &[3, 2]), b.weight("b", DType::F32, &[3]));
        b.linear_bias(x, w, bias)
    });
    let weights: [&[f32]; 2] = [&[1.0, 0.0, 0.0, 1.0, 2.0, -1.0], &[0.0, 10.0, 100.0]];
    check(&run(&graph, &weights, 2, &[1.0, 2.0, 3.0, 4.0]), &[1.0, 12.0, 100.0, 3.0, 14.0, 102.0]);
}

#[test]
fn ids_out_of_range_are_zero_rows_and_counted() {
    let mut b = Builder::new();
    let ids = b.parameter("ids", DType::I32, &[4], None);
    let table = b.weight("table", DType::F32, &[2, 2]);
    let (out, faults) = b.embed(ids, table);
    b.result("out", out);
    b.result("faults", faults);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![bytes(&[1.0, 2.0, 3.0, 4.0])]).unwrap();
    let mut block = ParameterBlock::new(&graph);
    block.set_integers("ids", &[1, -1, 0, 2]);
    let results = executor.run(block.bytes()).unwrap();
    check(&floats(&graph, block.bytes(), &results, "out"), &[3.0, 4.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
    assert_eq!(integers(&graph, block.bytes(), &results, "faults"), [2]);
}

#[test]
fn activations_and_their_softcap() {
    let activation = |kind: &'static str, softcap: f64| {
        unary(&[2], move |b, x| {
            let attributes = vec![
                ("kind".into(), Attribute::Text(kind.into())),
                ("softcap".into(), Attribute::Float(softcap)),
            ];
            b.node("activation", 1, &[x], attributes).unwrap()[0]
        })
    };
    let at = |kind, softcap| run(&activation(kind, softcap), &[], 1, &[0.0, 2.0]);
    check(&at("sigmoid", 0.0), &[0.5, 0.880_797]);
    check(&at("silu", 0.0), &[0.0, 1.761_594]);
    check(&at("gelu", 0.0), &[0.0, 1.954_499_7]);
    check(&at("gelu_tanh", 0.0), &[0.0, 1.954_597_7]);
    check(&at("softplus", 0.0), &[std::f32::consts::LN_2, 2.126_928]);
    check(&at("exp", 0.0), &[1.0, 7.389_056]);
    check(&at("tanh", 4.0), &[0.0, 4.0 * 0.5f32.tanh()]);
    let glu = unary(&[2], |b, x| b.glu(x, x, "sigmoid"));
    check(&run(&glu, &[], 1, &[0.0, 2.0]), &[0.0, 2.0 * 0.880_797]);
}

#[test]
fn broadcasts_and_views() {
    let graph = unary(&[2, 2], |b, x| {
        let w = b.weight("w", DType::F32, &[2]);
        let sum = b.add(x, w);
        let product = b.mul(sum, sum);
        let scaled = b.scale(product, 0.5);
        let flat = b.reshape(scaled, &[TWO_ROWS, 4]);
        let (left, right) = (b.slice(flat, 0, 1), b.slice(flat, 2, 2));
        b.concat(&[right, left])
    });
    // (x + w)² / 2 of the elements 2, 3 and 0.
    check(&run(&graph, &[&[1.0, -1.0]], 1, &[1.0, 9.0, 3.0, 5.0]), &[8.0, 8.0, 2.0]);
}

#[test]
fn rope_turns_pairs_and_leaves_the_rest() {
    let rope = |pairing: &'static str| {
        let mut b = Builder::new();
        let x = b.parameter("x", DType::F32, &[1, 1, 5], None);
        let positions = b.parameter("positions", DType::I32, &[1], None);
        let attributes = vec![
            ("base".into(), Attribute::Float(100.0)),
            ("pairing".into(), Attribute::Text(pairing.into())),
            ("rotary".into(), Attribute::Integer(4)),
        ];
        let out = b.node("rope", 1, &[x, positions], attributes).unwrap()[0];
        b.result("out", out);
        b.finish()
    };
    let at = |pairing, x: [f32; 5]| {
        let graph = rope(pairing);
        let mut block = ParameterBlock::new(&graph);
        block.set_floats("x", 0, &x).set_integers("positions", &[3]);
        let results = ReferenceExecutor::new(&graph, vec![]).unwrap().run(block.bytes()).unwrap();
        floats(&graph, block.bytes(), &results, "out")
    };
    // Angles 3 and 3/10.
    let ((s, c), (s2, c2)) = (3.0f32.sin_cos(), 0.3f32.sin_cos());
    check(&at("half", [1.0, 0.0, 0.0, 1.0, 7.0]), &[c, -s2, s, c2, 7.0]);
    check(&at("adjacent", [1.0, 0.0, 0.0, 1.0, 7.0]), &[c, s, -s2, c2, 7.0]);
}

#[test]
fn rope_may_turn_more_slowly() {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[1, 1, 4], None);
    let positions = b.parameter("positions", DType::I32, &[1], None);
    let factors = Some(b.weight("factors", DType::F32, &[2]));
    let rotation = Rotation { rotary: 4, base: 100.0, adjacent: false, divisor: 2.0, factors };
    let out = b.rope_with(x, positions, &rotation);
    b.result("out", out);
    let graph = b.finish();
    let mut block = ParameterBlock::new(&graph);
    block.set_floats("x", 0, &[1.0, 1.0, 0.0, 0.0]).set_integers("positions", &[6]);
    let weights: Vec<u8> = [1.0f32, 4.0].iter().flat_map(|f| f.to_le_bytes()).collect();
    let results = ReferenceExecutor::new(&graph, vec![weights]).unwrap().run(block.bytes()).unwrap();
    // Angles 6/2 and 6/10/2/4.
    let ((s, c), (s2, c2)) = (3.0f32.sin_cos(), 0.075f32.sin_cos());
    check(&floats(&graph, block.bytes(), &results, "out"), &[c, c2, s, s2]);
}

#[test]
fn choices_and_their_ties() {
    let graph = unary(&[4], |b, x| {
        let (ids, faults) = b.argmax(x);
        let (top, values) = b.top_k(x, 3);
        for (name, value) in [("ids", ids), ("faults", faults), ("top", top)] {
            b.result(name, value);
        }
        values
    });
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    let mut block = ParameterBlock::new(&graph);
    let x = [1.0, 5.0, 5.0, -1.0, 9.0, f32::NAN, 2.0, 9.0];
    block.set_integers("rows", &[2]).set_floats("x", 0, &x);
    let results = executor.run(block.bytes()).unwrap();
    let list = |name| integers(&graph, block.bytes(), &results, name);
    assert_eq!((list("ids"), list("faults")), (vec![1, -1], vec![1]));
    assert_eq!(list("top"), [1, 2, 0, 0, 3, 2]);
    check(&floats(&graph, block.bytes(), &results, "out"), &[5.0, 5.0, 1.0, 9.0, 9.0, 2.0]);
}

/// One KV head of width 2, a table of two blocks for each of two slots, f32 caches of three blocks.
fn attention(attributes: &[(&str, Attribute)], dtype: DType) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let updates = b.parameter("updates", DType::I32, &[1, 3], None);
    let cells = b.parameter("cells", DType::I32, &[3], Some(rows));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], None);
    let [q, k, v] = ["q", "k", "v"].map(|name| b.parameter(name, DType::F32, &[3, 1, 2], Some(rows)));
    let table = b.state("table", StateKind::Table, DType::I32, &[2, 2]);
    let [keys, values] =
        ["keys", "values"].map(|name| b.state(name, StateKind::PerPosition, dtype, &[3, 256, 1, 2]));
    b.table_update(table, updates);
    b.kv_append(k, v, [keys, values], cells);
    let attributes = attributes
        .iter()
        .cloned()
        .chain([("scale", Attribute::Float(1.0))])
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let out = b.node("attention", 1, &[q, keys, values, table, sequences], attributes).unwrap()[0];
    b.result("out", out);
    b.finish()
}

/// Three positions of a sequence in slot 1 whose first block is block 2, with equal keys.
fn attend(
    attributes: &[(&str, Attribute)],
    sequence: [i32; 4],
    rows: i32,
) -> Result<Vec<f32>, ReferenceError> {
    let graph = attention(attributes, DType::F16);
    let mut executor = ReferenceExecutor::new(&graph, vec![])?;
    let mut block = ParameterBlock::new(&graph);
    block.set_integers("rows", &[rows]).set_integers("updates", &[1, 0, 2]);
    block.set_integers("cells", &[512, 513, 514]).set_integers("sequences", &sequence);
    let ones = [1.0; 6];
    block.set_floats("q", 0, &ones).set_floats("k", 0, &ones);
    block.set_floats("v", 0, &[1.0, 10.0, 2.0, 20.0, 6.0, 60.0]);
    let results = executor.run(block.bytes())?;
    Ok(floats(&graph, block.bytes(), &results, "out"))
}

#[test]
fn attention_averages_what_it_sees() {
    let whole = [0, 3, 0, 1];
    let see = |attributes: &[(&str, Attribute)]| attend(attributes, whole, 3).unwrap();
    check(&see(&[]), &[1.0, 10.0, 1.5, 15.0, 3.0, 30.0]);
    check(&see(&[("window", Attribute::Integer(2))]), &[1.0, 10.0, 1.5, 15.0, 4.0, 40.0]);
    check(&see(&[("causal", Attribute::Integer(0))]), &[3.0, 30.0, 3.0, 30.0, 3.0, 30.0]);
}

#[test]
fn what_is_stored_is_rounded_to_the_type_of_the_cache() {
    let graph = attention(&[], DType::F16);
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    let mut block = ParameterBlock::new(&graph);
    block.set_integers("rows", &[1]).set_integers("updates", &[0, 0, 1]).set_integers("cells", &[256]);
    block.set_integers("sequences", &[0, 1, 0, 0]);
    block.set_floats("q", 0, &[1.0, 0.0]).set_floats("k", 0, &[1.0, 0.0]).set_floats(
        "v",
        0,
        &[0.1, 70_000.0],
    );
    let results = executor.run(block.bytes()).unwrap();
    let out = floats(&graph, block.bytes(), &results, "out");
    assert_eq!(out, [half::f16::from_f32(0.1).to_f32(), f32::INFINITY]);
    let table: Vec<u8> = [1i32, 0, 0, 0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(executor.state(0), table);
}

#[test]
fn rows_are_stored_and_loaded_in_the_order_of_the_nodes() {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[3, 1], None);
    let cells = b.parameter("cells", DType::I32, &[3], None);
    let wanted = b.parameter("wanted", DType::I32, &[3], None);
    let state = b.state("entries", StateKind::PerSlot, DType::F32, &[4, 1]);
    let before = b.rows_load(state, wanted);
    b.rows_store(x, state, cells);
    let after = b.rows_load(state, wanted);
    b.result("before", before);
    b.result("after", after);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    executor.set_state(0, &bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let mut block = ParameterBlock::new(&graph);
    block.set_floats("x", 0, &[10.0, 20.0, 30.0]).set_integers("wanted", &[3, -1, 0]);
    block.set_integers("cells", &[3, -1, 3]);
    let results = executor.run(block.bytes()).unwrap();
    check(&floats(&graph, block.bytes(), &results, "before"), &[4.0, 0.0, 1.0]);
    check(&floats(&graph, block.bytes(), &results, "after"), &[30.0, 0.0, 1.0]);
    block.set_integers("cells", &[0, 4, 1]);
    assert!(executor.run(block.bytes()).is_err());
}

#[test]
fn records_are_deltas_keys_and_gates_and_go_to_the_other_bank() {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], None);
    let rollback = b.parameter("rollback", DType::I32, &[1, 3], None);
    let [q, k, v] = ["q", "k", "v"].map(|name| b.parameter(name, DType::F32, &[3, 1, 1], Some(rows)));
    let [g, beta] = ["g", "beta"].map(|name| b.parameter(name, DType::F32, &[3, 1], Some(rows)));
    let state = b.state("base", StateKind::PerSlot, DType::F32, &[1, 1, 1, 1]);
    let records = b.state("records", StateKind::PerSlot, DType::F32, &[2, 2, 3]);
    b.gated_delta_net_replay(state, records, sequences, rollback);
    let out = b.gated_delta_net_records([q, k, v, g, beta], state, sequences, records, rollback, 1.0);
    b.result("out", out);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    let mut run = |sequence: [i32; 4], rollback: [i32; 3], v: &[f32]| {
        let mut block = ParameterBlock::new(&graph);
        let ones = vec![1.0; v.len()];
        block.set_integers("rows", &[sequence[1]]).set_integers("sequences", &sequence);
        block.set_integers("rollback", &rollback).set_floats("q", 0, &ones).set_floats("k", 0, &ones);
        block.set_floats("v", 0, v).set_floats("g", 0, &vec![0.0; v.len()]).set_floats("beta", 0, &ones);
        let results = executor.run(block.bytes()).unwrap();
        let out = floats(&graph, block.bytes(), &results, "out");
        (out, executor.state(0).to_vec(), executor.state(1).to_vec())
    };
    // A state of one number that takes on each value; the last two rows can be taken back.
    let (out, base, records) = run([0, 3, 0, 0], [0, 1, 0], &[2.0, 3.0, 7.0]);
    check(&out, &[2.0, 3.0, 7.0]);
    assert_eq!(base, bytes(&[2.0]));
    assert_eq!(records[..24], bytes(&[1.0, 1.0, 0.0, 4.0, 1.0, 0.0]));
    // One of them is kept, so the state is 3 before the next row.
    let (out, base, records) = run([0, 1, 2, 0], [0, 0, 1], &[5.0]);
    check(&out, &[5.0]);
    assert_eq!(base, bytes(&[3.0]));
    assert_eq!(records[24..36], bytes(&[2.0, 1.0, 0.0]));
}

#[test]
fn a_convolution_goes_on_over_runs_and_begins_with_zeros() {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[4, 1], Some(rows));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], None);
    let w = b.weight("w", DType::F32, &[1, 3]);
    let state = b.state("window", StateKind::PerSlot, DType::F32, &[2, 2, 1]);
    let out = b.node("conv_causal", 1, &[x, w, state, sequences], vec![]).unwrap()[0];
    b.result("out", out);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![bytes(&[100.0, 10.0, 1.0])]).unwrap();
    executor.set_state(0, &bytes(&[7.0; 4])).unwrap();
    let mut run = |sequence: [i32; 4], x: &[f32]| {
        let mut block = ParameterBlock::new(&graph);
        block.set_integers("rows", &[x.len() as i32]).set_integers("sequences", &sequence);
        block.set_floats("x", 0, x);
        let results = executor.run(block.bytes()).unwrap();
        floats(&graph, block.bytes(), &results, "out")
    };
    check(&run([0, 3, 0, 1], &[1.0, 2.0, 3.0]), &[1.0, 12.0, 123.0]);
    check(&run([0, 1, 3, 1], &[4.0]), &[234.0]);
    // Slot 0 kept what it was given.
    check(&run([0, 1, 5, 0], &[1.0]), &[771.0]);
    assert_eq!(executor.state(0), bytes(&[7.0, 1.0, 3.0, 4.0]));
}

#[test]
fn the_delta_rule_replaces_what_a_key_holds() {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let [q, k] = ["q", "k"].map(|name| b.parameter(name, DType::F32, &[2, 1, 2], Some(rows)));
    let v = b.parameter("v", DType::F32, &[2, 1, 1], Some(rows));
    let [g, beta] = ["g", "beta"].map(|name| b.parameter(name, DType::F32, &[2, 1], Some(rows)));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], None);
    let state = b.state("state", StateKind::PerSlot, DType::F32, &[1, 1, 2, 1]);
    let out = b.gated_delta_net([q, k, v, g, beta], state, sequences, 2.0);
    b.result("out", out);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    let mut block = ParameterBlock::new(&graph);
    block.set_integers("rows", &[2]).set_integers("sequences", &[0, 2, 0, 0]);
    block.set_floats("q", 0, &[1.0, 0.0, 1.0, 0.0]).set_floats("k", 0, &[1.0, 0.0, 1.0, 0.0]);
    block.set_floats("v", 0, &[8.0, 3.0]).set_floats("g", 0, &[0.0, 0.5f32.ln()]);
    block.set_floats("beta", 0, &[1.0, 0.5]);
    let results = executor.run(block.bytes()).unwrap();
    // 8; decayed to 4, half the way to 3: 3.5. Both times the scale 2.
    check(&floats(&graph, block.bytes(), &results, "out"), &[16.0, 7.0]);
    assert_eq!(executor.state(0), bytes(&[3.5, 0.0]));
}

#[test]
fn what_is_out_of_range_is_an_error() {
    assert!(attend(&[], [0, 3, 0, 1], 3).is_ok());
    for (sequence, rows) in [
        ([0, 3, 0, 1], 4),
        ([0, 3, 0, 1], -1),
        ([0, 4, 0, 1], 3),
        ([1, 3, 0, 1], 3),
        ([-1, 3, 0, 1], 3),
        ([0, -3, 0, 1], 3),
        ([0, 3, -1, 1], 3),
        ([0, 3, 0, 2], 3),
        ([0, 3, 0, -1], 3),
        ([0, 3, 510, 1], 3),
        ([i32::MAX, i32::MAX, i32::MAX, i32::MAX], 3),
    ] {
        assert!(attend(&[], sequence, rows).is_err(), "{sequence:?}, {rows} rows");
    }
}

#[test]
fn malformed_blocks_weights_and_states_are_refused() {
    let graph = unary(&[2], |b, x| {
        let w = b.weight("w", DType::F32, &[2]);
        b.rms_norm(x, w, 0.0)
    });
    let count = |error: Option<ReferenceError>| matches!(error, Some(ReferenceError::Count { .. }));
    assert!(count(ReferenceExecutor::new(&graph, vec![]).err()));
    assert!(ReferenceExecutor::new(&graph, vec![vec![0; 7]]).is_err());
    let mut executor = ReferenceExecutor::new(&graph, vec![bytes(&[1.0, 1.0])]).unwrap();
    let length = graph.parameter_bytes() as usize;
    for wrong in [0, length - 1, length + 1] {
        assert!(count(executor.run(&vec![0; wrong]).err()), "{wrong} bytes");
    }
    assert!(count(executor.set_state(0, &[]).err()));
}

#[test]
fn rows_that_are_not_live_and_unknown_types_are_refused() {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[2, 1], Some(rows));
    let wanted = b.parameter("wanted", DType::I32, &[1], None);
    let out = b.select_rows(x, wanted);
    b.result("out", out);
    let graph = b.finish();
    let mut executor = ReferenceExecutor::new(&graph, vec![]).unwrap();
    let mut run = |wanted| {
        let mut block = ParameterBlock::new(&graph);
        block.set_integers("rows", &[1]).set_integers("wanted", &[wanted]).set_floats("x", 0, &[5.0]);
        executor.run(block.bytes())
    };
    assert!(run(0).is_ok());
    assert!([1, 2, -1].into_iter().all(|row| run(row).is_err()));
    let mut b = Builder::new();
    let ids = b.parameter("ids", DType::I32, &[1], None);
    let table = b.weight("odd", DType(9999), &[2, 2]);
    let (out, _) = b.embed(ids, table);
    b.result("out", out);
    let error = ReferenceExecutor::new(&b.finish(), vec![vec![]]).err().unwrap();
    assert!(error.to_string().contains("odd"), "{error}");
}
