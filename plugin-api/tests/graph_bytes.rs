//! Graph bytes: canonical, readable back, and safe against anything.

use paceline_plugin_api::graph::{Attribute, Builder, DType, Graph, StateKind};
use proptest::prelude::*;

/// One node of most kinds.
fn sample(rows: u32, width: u32) -> Graph {
    let mut b = Builder::new();
    let count = b.parameter("row_count", DType::I32, &[1], None);
    let ids = b.parameter("ids", DType::I32, &[rows], Some(count));
    let positions = b.parameter("positions", DType::I32, &[rows], Some(count));
    let cells = b.parameter("cells", DType::I32, &[rows], Some(count));
    let sequences = b.parameter("sequences", DType::I32, &[2, 4], None);
    let table = b.weight("token_embd.weight", DType::Q8_0, &[100, width]);
    let (x, faults) = b.embed(ids, table);
    let norm = b.weight("norm.weight", DType::F32, &[width]);
    let x = b.rms_norm(x, norm, 1e-6);
    let heads = b.reshape(x, &[rows, width / 32, 32]);
    let heads = b.rope(heads, positions, 16, 10_000.0);
    let caches = [
        b.state("k", StateKind::PerPosition, DType::F16, &[4, 256, width / 32, 32]),
        b.state("v", StateKind::PerPosition, DType::F16, &[4, 256, width / 32, 32]),
    ];
    b.kv_append(heads, heads, caches, cells);
    let blocks = b.state("blocks", StateKind::Table, DType::I32, &[2, 4]);
    let o = b.attention(heads, caches, blocks, sequences, 0.25);
    let o = b.reshape(o, &[rows, width]);
    let logits = b.linear(o, table);
    let (ids, _) = b.argmax(logits);
    b.result("ids", ids);
    b.result("faults", faults);
    b.finish()
}

#[test]
fn a_graph_reads_back() {
    let graph = sample(7, 64);
    let bytes = graph.to_bytes();
    assert_eq!(Graph::from_bytes(&bytes).unwrap(), graph);
    assert_eq!(sample(7, 64).to_bytes(), bytes, "equal graphs have equal bytes");
    assert_ne!(sample(8, 64).to_bytes(), bytes);
}

#[test]
fn attributes_at_their_default_are_left_out() {
    let build = |softcap: Vec<(String, Attribute)>| {
        let mut b = Builder::new();
        let w = b.weight("w", DType::F32, &[3, 4]);
        let ids = b.parameter("ids", DType::I32, &[1], None);
        let (x, _) = b.embed(ids, w);
        let kind = ("kind".to_owned(), Attribute::Text("tanh".into()));
        b.node("activation", 1, &[x], [vec![kind], softcap].concat()).unwrap();
        b.finish().to_bytes()
    };
    assert_eq!(build(vec![]), build(vec![("softcap".into(), Attribute::Float(0.0))]));
    assert_ne!(build(vec![]), build(vec![("softcap".into(), Attribute::Float(30.0))]));
}

#[test]
fn wrong_nodes_are_refused_with_a_reason() {
    let mut b = Builder::new();
    let w = b.weight("w", DType::F32, &[3, 4]);
    let ids = b.parameter("ids", DType::I32, &[2], None);
    let (x, _) = b.embed(ids, w);
    let message = |b: &mut Builder, op: &str, inputs: &[_], attributes: &[(&str, Attribute)]| {
        let attributes = attributes.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        b.node(op, 1, inputs, attributes).unwrap_err().to_string()
    };
    insta::assert_snapshot!(message(&mut b, "lineal", &[x, w], &[]), @"node 1 (lineal/1): operation lineal/1 is not known");
    insta::assert_snapshot!(message(&mut b, "linear", &[x], &[]), @"node 1 (linear/1): it takes 2 inputs, not 1");
    insta::assert_snapshot!(message(&mut b, "l2_norm", &[x], &[]), @"node 1 (l2_norm/1): attribute `eps` is missing");
    insta::assert_snapshot!(
        message(&mut b, "l2_norm", &[x], &[("eps", Attribute::Integer(1))]),
        @"node 1 (l2_norm/1): attribute `eps` has the wrong type"
    );
    insta::assert_snapshot!(
        message(&mut b, "slice", &[x], &[("offset", Attribute::Integer(3)), ("length", Attribute::Integer(2))]),
        @"node 1 (slice/1): 3+2 is outside of [2,4]"
    );
}

#[test]
fn states_of_other_sizes_are_refused_with_a_reason() {
    let mut b = Builder::new();
    let count = b.parameter("count", DType::I32, &[1], None);
    let [cells, wanted] = ["cells", "wanted"].map(|name| b.parameter(name, DType::I32, &[2], None));
    let x = b.parameter("x", DType::F32, &[2, 4], None);
    let entries = b.state("entries", StateKind::Ring, DType::F32, &[9, 4]);
    let narrow = b.state("narrow", StateKind::Ring, DType::F32, &[9, 3]);
    let table = b.state("table", StateKind::Table, DType::I32, &[9, 4]);
    let sequences = b.parameter("sequences", DType::I32, &[3, 4], Some(count));
    let rollback = b.parameter("rollback", DType::I32, &[3, 3], Some(count));
    let short = b.parameter("short", DType::I32, &[2, 3], Some(count));
    let base = b.state("base", StateKind::PerSlot, DType::F32, &[2, 4, 8, 5]);
    // Of deltas 4·5, decays 4, and keys of 2 heads.
    let records = b.state("records", StateKind::PerSlot, DType::F32, &[4, 3, 40]);
    let odd = b.state("odd", StateKind::PerSlot, DType::F32, &[4, 3, 41]);
    let few = b.state("few", StateKind::PerSlot, DType::F32, &[2, 3, 40]);
    let message =
        |b: &mut Builder, op: &str, inputs: &[_]| b.node(op, 1, inputs, vec![]).unwrap_err().to_string();
    insta::assert_snapshot!(message(&mut b, "rows_store", &[x, narrow, cells]), @"node 0 (rows_store/1): x [2,4] does not fit a state of [9,3]");
    insta::assert_snapshot!(message(&mut b, "rows_store", &[x, entries, count]), @"node 0 (rows_store/1): cells and rows differ in number");
    insta::assert_snapshot!(message(&mut b, "rows_load", &[table, wanted]), @"node 0 (rows_load/1): input 0 must be a state f32 [N,D], not i32 [9,4]");
    let loaded = b.rows_load(entries, wanted);
    assert_eq!(b.dims(loaded), [2, 4]);
    for (records, rollback, reason) in [
        (odd, rollback, "does not fit the records"),
        (few, rollback, "records f32 [2,3,40] do not fit 2 slots"),
        (records, short, "input 3 must be a rollback [S,3] live with the sequences"),
        (records, sequences, "input 3 must be a rollback [S,3] live with the sequences"),
    ] {
        let error = message(&mut b, "gated_delta_net_replay", &[base, records, sequences, rollback]);
        assert!(error.contains(reason), "{error}");
    }
    b.gated_delta_net_replay(base, records, sequences, rollback);

    let w = b.weight("w", DType::F32, &[4, 3]);
    let windows = b.state("windows", StateKind::PerSlot, DType::F32, &[6, 2, 4]);
    let mut conv = |planes: i64, inputs: &[_]| {
        b.node("conv_causal", 1, inputs, vec![("planes".into(), Attribute::Integer(planes))]).map(drop)
    };
    let with = [x, w, windows, sequences, rollback];
    assert!(conv(1, &with[..4]).is_ok() && conv(3, &with).is_ok());
    for (planes, inputs) in [(1, &with[..]), (3, &with[..4]), (4, &with), (0, &with), (-1, &with)] {
        assert!(conv(planes, inputs).is_err(), "{planes} planes, {} inputs", inputs.len());
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(index in 0usize..10_000, value: u8, cut in 0usize..10_000) {
        let mut bytes = sample(3, 32).to_bytes();
        let length = bytes.len();
        bytes[index % length] = value;
        let _ = Graph::from_bytes(&bytes);
        let _ = Graph::from_bytes(&bytes[..cut % length]);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Graph::from_bytes(&bytes);
        let magic = b"PLGR\x01\0\0\0";
        if bytes.len() >= magic.len() {
            bytes[..magic.len()].copy_from_slice(magic);
            let _ = Graph::from_bytes(&bytes);
        }
    }
}
