//! The C functions build and read the same graphs as the Rust types.

use paceline_plugin_api::abi::{Bytes, GraphAttribute, GraphNode, GraphValue, Status, Str};
use paceline_plugin_api::graph::{Builder, DType, GRAPH_TABLE, Graph};
use std::ptr::{null, null_mut};

/// The status's text, or nothing on success.
fn take(status: *mut Status) -> Option<String> {
    // SAFETY: the status comes from the table and was not released.
    unsafe { paceline_plugin_api::Error::take(status) }.err().map(|e| e.message)
}

fn value(kind: u32, dtype: DType, dims: &[u32], live: u32, name: &str) -> GraphValue {
    let mut four = [1; 4];
    four[..dims.len()].copy_from_slice(dims);
    GraphValue {
        size: size_of::<GraphValue>(),
        kind,
        dtype: dtype.0,
        rank: dims.len() as u32,
        dims: four,
        live,
        offset: 0,
        state_kind: 0,
        name: Str::new(name),
    }
}

fn float(key: &str, value: f64) -> GraphAttribute {
    GraphAttribute {
        size: size_of::<GraphAttribute>(),
        key: Str::new(key),
        kind: 1,
        reserved: 0,
        integer: 0,
        float: value,
        text: Str::EMPTY,
        list: null(),
        list_count: 0,
    }
}

/// The same small graph twice: with the Rust builder, and with the C functions.
fn with_rust() -> Vec<u8> {
    let mut b = Builder::new();
    let count = b.parameter("count", DType::I32, &[1], None);
    let ids = b.parameter("ids", DType::I32, &[5], Some(count));
    let table = b.weight("table", DType::Q8_0, &[10, 32]);
    let (x, faults) = b.embed(ids, table);
    let x = b.l2_norm(x, 0.5);
    b.result("x", x);
    b.result("faults", faults);
    b.finish().to_bytes()
}

fn with_c() -> Vec<u8> {
    let t = &GRAPH_TABLE;
    // SAFETY: handles are live, arrays are as long as stated, texts outlive the calls.
    unsafe {
        let b = t.builder_new.unwrap()();
        let add = |v: GraphValue| {
            let mut id = 0;
            assert_eq!(take(t.builder_value.unwrap()(b, &raw const v, &raw mut id)), None);
            id
        };
        let node = |operation: &str, inputs: &[u32], attributes: &[GraphAttribute]| {
            let (mut outputs, mut count) = ([0; 4], 0);
            let status = t.builder_node.unwrap()(
                b,
                Str::new(operation),
                1,
                inputs.as_ptr(),
                inputs.len(),
                attributes.as_ptr(),
                attributes.len(),
                outputs.as_mut_ptr(),
                outputs.len(),
                &raw mut count,
            );
            assert_eq!(take(status), None);
            outputs[..count].to_vec()
        };
        let count = add(value(2, DType::I32, &[1], u32::MAX, "count"));
        let ids = add(value(2, DType::I32, &[5], count, "ids"));
        let table = add(value(0, DType::Q8_0, &[10, 32], u32::MAX, "table"));
        let embedded = node("embed", &[ids, table], &[]);
        let normed = node("l2_norm", &[embedded[0]], &[float("eps", 0.5)]);
        assert_eq!(take(t.builder_result.unwrap()(b, Str::new("x"), normed[0])), None);
        assert_eq!(take(t.builder_result.unwrap()(b, Str::new("faults"), embedded[1])), None);
        let mut bytes = Bytes { ptr: null(), len: 0 };
        assert_eq!(take(t.builder_bytes.unwrap()(b, &raw mut bytes)), None);
        let bytes = bytes.get().to_vec();
        t.builder_free.unwrap()(b);
        bytes
    }
}

#[test]
fn the_c_builder_gives_the_same_bytes() {
    assert_eq!(with_c(), with_rust());
}

#[test]
fn an_attribute_of_another_size_is_refused() {
    let t = &GRAPH_TABLE;
    // SAFETY: as above; the attribute whose size is wrong is never read beyond it.
    unsafe {
        let b = t.builder_new.unwrap()();
        let x = value(2, DType::F32, &[2, 4], u32::MAX, "x");
        let (mut id, mut output, mut count) = (0, 0, 0);
        assert_eq!(take(t.builder_value.unwrap()(b, &raw const x, &raw mut id)), None);
        let mut scale = |attributes: *const GraphAttribute, attribute_count: usize| {
            take(t.builder_node.unwrap()(
                b,
                Str::new("scale"),
                1,
                &raw const id,
                1,
                attributes,
                attribute_count,
                &raw mut output,
                1,
                &raw mut count,
            ))
        };
        for size in [0, 8, size_of::<GraphAttribute>() - 8, size_of::<GraphAttribute>() + 8, usize::MAX] {
            let other = [float("factor", 2.0), GraphAttribute { size, ..float("factor", 2.0) }];
            let message = scale(other.as_ptr(), 2).unwrap();
            let has = size_of::<GraphAttribute>();
            assert_eq!(message, format!("attribute 1 states a size of {size} bytes, it has {has}"));
        }
        assert_eq!(scale(null(), 1).unwrap(), "the pointer to the attributes is null or not aligned");
        assert_eq!(scale([float("factor", 2.0)].as_ptr(), 1), None);
        t.builder_free.unwrap()(b);
    }
}

#[test]
fn the_c_reader_tells_what_is_in_a_graph() {
    let bytes = with_rust();
    let graph = Graph::from_bytes(&bytes).unwrap();
    let t = &GRAPH_TABLE;
    // SAFETY: as above.
    unsafe {
        let mut reader = null_mut();
        assert_eq!(take(t.reader_open.unwrap()(Bytes::new(&bytes), &raw mut reader)), None);
        assert_eq!(t.value_count.unwrap()(reader) as usize, graph.values().len());
        assert_eq!(t.node_count.unwrap()(reader), 2);
        for (index, expected) in graph.values().iter().enumerate() {
            let mut v = value(9, DType::F32, &[], 0, "");
            assert_eq!(take(t.value.unwrap()(reader, index as u32, &raw mut v)), None);
            assert_eq!(v.name.to_text(), expected.name);
            assert_eq!(&v.dims[..v.rank as usize], expected.shape.dims());
            assert_eq!(v.live, expected.live.map_or(u32::MAX, |id| id.0));
        }
        let mut n: GraphNode = std::mem::zeroed();
        n.size = size_of::<GraphNode>();
        assert_eq!(take(t.node.unwrap()(reader, 1, &raw mut n)), None);
        assert_eq!((n.operation.to_text().as_str(), n.version, n.input_count), ("l2_norm", 1, 1));
        let mut a = float("", 0.0);
        assert_eq!(take(t.attribute.unwrap()(reader, 1, 0, &raw mut a)), None);
        assert_eq!((a.key.to_text().as_str(), a.float), ("eps", 0.5));
        let (mut id, mut offset) = (0, 0);
        assert_eq!(take(t.result.unwrap()(reader, 1, &raw mut id, &raw mut offset)), None);
        assert_eq!((id, offset), (graph.results()[1].value.0, graph.results()[1].offset));
        assert_eq!(take(t.node.unwrap()(reader, 2, &raw mut n)).unwrap(), "there is no node 2");
        t.reader_free.unwrap()(reader);
    }
}

#[test]
fn a_shorter_struct_of_an_older_caller_is_respected() {
    let bytes = with_rust();
    let t = &GRAPH_TABLE;
    // SAFETY: as above; the caller's struct ends after `dtype`.
    unsafe {
        let mut reader = null_mut();
        assert_eq!(take(t.reader_open.unwrap()(Bytes::new(&bytes), &raw mut reader)), None);
        let mut v = value(7, DType(99), &[3], 3, "kept");
        v.size = std::mem::offset_of!(GraphValue, rank);
        assert_eq!(take(t.value.unwrap()(reader, 2, &raw mut v)), None);
        assert_eq!((v.kind, v.dtype), (0, DType::Q8_0.0));
        assert_eq!((v.rank, v.live, v.name.to_text().as_str()), (1, 3, "kept"), "beyond the stated size");
        t.reader_free.unwrap()(reader);
    }
}

#[test]
fn wrong_calls_are_errors() {
    let t = &GRAPH_TABLE;
    // SAFETY: as above.
    unsafe {
        let mut reader = null_mut();
        let error = take(t.reader_open.unwrap()(Bytes::new(b"PLGR"), &raw mut reader)).unwrap();
        assert!(error.contains("cut short"), "{error}");
        let b = t.builder_new.unwrap()();
        let (mut outputs, mut count) = ([0; 1], 0);
        let status = t.builder_node.unwrap()(
            b,
            Str::new("l2_norm"),
            1,
            [7].as_ptr(),
            1,
            [float("eps", 0.5)].as_ptr(),
            1,
            outputs.as_mut_ptr(),
            1,
            &raw mut count,
        );
        assert_eq!(take(status).unwrap(), "node 0 (l2_norm/1): input 0 is unknown");
        assert_eq!(take(t.builder_result.unwrap()(b, Str::new("x"), 5)).unwrap(), "there is no value 5");
        t.builder_free.unwrap()(b);
    }
}
