//! The C functions of `paceline.graph/1` over [`Graph`] and [`Builder`].

use super::bytes::{decode_kind, state_kind_to_code, value_kind_to_code};
use super::{Attribute, Builder, DType, Graph, Shape, Value, ValueId, ValueKind};
use crate::abi::{
    ATTRIBUTE_FLOAT, ATTRIBUTE_INTEGER, ATTRIBUTE_INTEGERS, ATTRIBUTE_TEXT, Bytes, GraphAttribute,
    GraphBuilderHandle, GraphNode, GraphReaderHandle, GraphTable, GraphValue, Status, Str,
};
use crate::error::{Error, guard, read_argument, write_sized};

/// The table that the host hands to plugins.
pub static GRAPH_TABLE: GraphTable = GraphTable {
    size: size_of::<GraphTable>(),
    reader_open: Some(reader_open),
    reader_free: Some(reader_free),
    value_count: Some(value_count),
    node_count: Some(node_count),
    value: Some(value),
    node: Some(node),
    attribute: Some(attribute),
    result_count: Some(result_count),
    result: Some(result),
    builder_new: Some(builder_new),
    builder_value: Some(builder_value),
    builder_node: Some(builder_node),
    builder_result: Some(builder_result),
    builder_bytes: Some(builder_bytes),
    builder_free: Some(builder_free),
};

struct Reader {
    graph: Graph,
    /// Operand ids of each node, contiguous for C.
    operands: Vec<(Vec<u32>, Vec<u32>)>,
}

#[derive(Default)]
struct BuilderState {
    builder: Builder,
    bytes: Vec<u8>,
}

unsafe extern "C" fn reader_open(bytes: Bytes, out: *mut GraphReaderHandle) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes readable bytes.
        let graph = Graph::from_bytes(unsafe { bytes.get() }).map_err(|e| Error::invalid(e.to_string()))?;
        let ids = |list: &[ValueId]| list.iter().map(|id| id.0).collect();
        let operands = graph.nodes().iter().map(|n| (ids(&n.inputs), ids(&n.outputs))).collect();
        // SAFETY: the caller passes a place for the handle.
        unsafe { out.write(Box::into_raw(Box::new(Reader { graph, operands })).cast()) };
        Ok(())
    })
}

unsafe extern "C" fn reader_free(reader: GraphReaderHandle) {
    if !reader.is_null() {
        // SAFETY: the handle came from `reader_open` and is freed once.
        drop(unsafe { Box::from_raw(reader.cast::<Reader>()) });
    }
}

/// # Safety
/// The handle must come from `reader_open` and not be freed.
unsafe fn reader<'a>(handle: GraphReaderHandle) -> &'a Reader {
    // SAFETY: by the contract of this function.
    unsafe { &*handle.cast::<Reader>() }
}

unsafe extern "C" fn value_count(handle: GraphReaderHandle) -> u32 {
    // SAFETY: the caller passes a live reader.
    unsafe { reader(handle) }.graph.values().len() as u32
}

unsafe extern "C" fn node_count(handle: GraphReaderHandle) -> u32 {
    // SAFETY: the caller passes a live reader.
    unsafe { reader(handle) }.graph.nodes().len() as u32
}

unsafe extern "C" fn result_count(handle: GraphReaderHandle) -> u32 {
    // SAFETY: the caller passes a live reader.
    unsafe { reader(handle) }.graph.results().len() as u32
}

fn entry<'a, T>(list: &'a [T], index: u32, what: &str) -> Result<&'a T, Error> {
    list.get(index as usize).ok_or_else(|| Error::invalid(format!("there is no {what} {index}")))
}

unsafe extern "C" fn value(handle: GraphReaderHandle, index: u32, out: *mut GraphValue) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live reader.
        let value = entry(unsafe { reader(handle) }.graph.values(), index, "value")?;
        let (offset, state_kind) = match value.kind {
            ValueKind::Parameter { offset } => (offset, 0),
            ValueKind::State(kind) => (0, state_kind_to_code(kind)),
            _ => (0, 0),
        };
        let described = GraphValue {
            size: 0,
            kind: value_kind_to_code(value.kind),
            dtype: value.dtype.0,
            rank: value.shape.rank() as u32,
            dims: value.shape.raw(),
            live: value.live.map_or(u32::MAX, |id| id.0),
            offset,
            state_kind,
            name: Str::new(&value.name),
        };
        // SAFETY: the caller passes a place whose size it states.
        unsafe { write_sized(out, described) }
    })
}

unsafe extern "C" fn node(handle: GraphReaderHandle, index: u32, out: *mut GraphNode) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live reader.
        let reader = unsafe { reader(handle) };
        let node = entry(reader.graph.nodes(), index, "node")?;
        let (inputs, outputs) = &reader.operands[index as usize];
        let described = GraphNode {
            size: 0,
            version: node.version,
            attribute_count: node.attributes.len() as u32,
            operation: Str::new(&node.operation),
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
        };
        // SAFETY: the caller passes a place whose size it states.
        unsafe { write_sized(out, described) }
    })
}

unsafe extern "C" fn attribute(
    handle: GraphReaderHandle,
    node: u32,
    index: u32,
    out: *mut GraphAttribute,
) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live reader.
        let node = entry(unsafe { reader(handle) }.graph.nodes(), node, "node")?;
        let (key, value) = entry(&node.attributes, index, "attribute")?;
        let mut described = GraphAttribute {
            size: 0,
            key: Str::new(key),
            kind: ATTRIBUTE_INTEGER,
            reserved: 0,
            integer: 0,
            float: 0.0,
            text: Str::EMPTY,
            list: std::ptr::null(),
            list_count: 0,
        };
        match value {
            Attribute::Integer(v) => described.integer = *v,
            Attribute::Float(v) => (described.kind, described.float) = (ATTRIBUTE_FLOAT, *v),
            Attribute::Text(v) => (described.kind, described.text) = (ATTRIBUTE_TEXT, Str::new(v)),
            Attribute::Integers(v) => {
                (described.kind, described.list, described.list_count) =
                    (ATTRIBUTE_INTEGERS, v.as_ptr(), v.len());
            }
        }
        // SAFETY: the caller passes a place whose size it states.
        unsafe { write_sized(out, described) }
    })
}

unsafe extern "C" fn result(
    handle: GraphReaderHandle,
    index: u32,
    value: *mut u32,
    offset: *mut u32,
) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live reader.
        let slot = entry(unsafe { reader(handle) }.graph.results(), index, "result")?;
        // SAFETY: the caller passes two places.
        unsafe {
            value.write(slot.value.0);
            offset.write(slot.offset);
        }
        Ok(())
    })
}

unsafe extern "C" fn builder_new() -> GraphBuilderHandle {
    Box::into_raw(Box::<BuilderState>::default()).cast()
}

unsafe extern "C" fn builder_free(builder: GraphBuilderHandle) {
    if !builder.is_null() {
        // SAFETY: the handle came from `builder_new` and is freed once.
        drop(unsafe { Box::from_raw(builder.cast::<BuilderState>()) });
    }
}

/// # Safety
/// The handle must come from `builder_new`, not be freed, and be used by one thread.
unsafe fn builder<'a>(handle: GraphBuilderHandle) -> &'a mut BuilderState {
    // SAFETY: by the contract of this function.
    unsafe { &mut *handle.cast::<BuilderState>() }
}

unsafe extern "C" fn builder_value(
    handle: GraphBuilderHandle,
    value: *const GraphValue,
    out: *mut u32,
) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live builder and a value that begins with its size; all zeros are a value.
        let (state, value) = unsafe { (builder(handle), read_argument(value)?) };
        let dims = value.dims.get(..value.rank as usize).and_then(Shape::new);
        let shape = dims.ok_or_else(|| Error::invalid("more than 4 dimensions"))?;
        // SAFETY: the caller passes a readable name.
        let name = unsafe { value.name.to_text() };
        let dtype = DType(value.dtype);
        let live = (value.live != u32::MAX).then_some(ValueId(value.live));
        let id = match decode_kind(value.kind, 0, value.state_kind) {
            Some(ValueKind::Parameter { .. }) => state.builder.parameter(&name, dtype, shape.dims(), live),
            Some(kind @ (ValueKind::Weight | ValueKind::State(_))) => {
                state.builder.push_value(Value { kind, dtype, shape, live: None, name })
            }
            _ => return Err(Error::invalid("only weights, states and parameters are added as values")),
        };
        // SAFETY: the caller passes a place for the id.
        unsafe { out.write(id.0) };
        Ok(())
    })
}

/// # Safety
/// `attribute` must hold readable strings and lists.
unsafe fn read_attribute(attribute: &GraphAttribute) -> Result<(String, Attribute), Error> {
    // SAFETY: by the contract of this function.
    let key = unsafe { attribute.key.to_text() };
    let value = match attribute.kind {
        ATTRIBUTE_INTEGER => Attribute::Integer(attribute.integer),
        ATTRIBUTE_FLOAT => Attribute::Float(attribute.float),
        // SAFETY: by the contract of this function.
        ATTRIBUTE_TEXT => Attribute::Text(unsafe { attribute.text.to_text() }),
        ATTRIBUTE_INTEGERS => Attribute::Integers(if attribute.list.is_null() {
            Vec::new()
        } else {
            // SAFETY: by the contract of this function.
            unsafe { std::slice::from_raw_parts(attribute.list, attribute.list_count) }.to_vec()
        }),
        kind => return Err(Error::invalid(format!("attribute kind {kind} is not known"))),
    };
    Ok((key, value))
}

/// Attributes cross in an array, so they keep their size: one that states another would put all others out of place.
///
/// # Safety
/// `attributes` must be null, with `count` 0, or point to `count` attributes with readable strings and lists.
unsafe fn read_attributes(
    attributes: *const GraphAttribute,
    count: usize,
) -> Result<Vec<(String, Attribute)>, Error> {
    if count > 0 && (attributes.is_null() || !attributes.is_aligned()) {
        return Err(Error::invalid("the pointer to the attributes is null or not aligned"));
    }
    (0..count)
        .map(|index| {
            // SAFETY: by the contract of this function; the size is read first.
            let stated = unsafe { (&raw const (*attributes.add(index)).size).read() };
            if stated != size_of::<GraphAttribute>() {
                return Err(Error::invalid(format!(
                    "attribute {index} states a size of {stated} bytes, it has {}",
                    size_of::<GraphAttribute>()
                )));
            }
            // SAFETY: as above, and the attribute has the size that it should.
            unsafe { read_attribute(&*attributes.add(index)) }
        })
        .collect()
}

unsafe extern "C" fn builder_node(
    handle: GraphBuilderHandle,
    operation: Str,
    version: u32,
    inputs: *const u32,
    input_count: usize,
    attributes: *const GraphAttribute,
    attribute_count: usize,
    outputs: *mut u32,
    output_capacity: usize,
    output_count: *mut usize,
) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live builder and readable arrays of the stated lengths.
        let (state, operation, inputs) = unsafe {
            let inputs = (0..input_count).map(|i| ValueId(*inputs.add(i))).collect::<Vec<_>>();
            (builder(handle), operation.to_text(), inputs)
        };
        // SAFETY: as above.
        let attributes = unsafe { read_attributes(attributes, attribute_count) }?;
        let made = state
            .builder
            .node(&operation, version, &inputs, attributes)
            .map_err(|e| Error::invalid(e.to_string()))?;
        // SAFETY: the caller passes `output_capacity` places and one for the count.
        unsafe {
            output_count.write(made.len());
            for (i, id) in made.iter().take(output_capacity).enumerate() {
                outputs.add(i).write(id.0);
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn builder_result(handle: GraphBuilderHandle, name: Str, value: u32) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live builder and a readable name.
        let (state, name) = unsafe { (builder(handle), name.to_text()) };
        if value as usize >= state.builder.graph().values().len() {
            return Err(Error::invalid(format!("there is no value {value}")));
        }
        state.builder.result(&name, ValueId(value));
        Ok(())
    })
}

unsafe extern "C" fn builder_bytes(handle: GraphBuilderHandle, out: *mut Bytes) -> *mut Status {
    guard(|| {
        // SAFETY: the caller passes a live builder.
        let state = unsafe { builder(handle) };
        let graph = state.builder.graph();
        graph.validate().map_err(|e| Error::invalid(e.to_string()))?;
        state.bytes = graph.to_bytes();
        // SAFETY: the caller passes a place for the range; it stays valid until the builder is used again.
        unsafe { out.write(Bytes::new(&state.bytes)) };
        Ok(())
    })
}
