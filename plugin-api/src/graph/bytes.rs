//! Canonical bytes of a graph: little-endian records of fixed size, a pool of integers and a string table.
//!
//! ```text
//! header   magic "PLGR", format version, counts of values, nodes, attributes, results, pool entries, string bytes
//! values   12 u32: kind, dtype, rank, 4 dims, live, offset, state kind, name (offset, length)
//! nodes    10 u32: operation (offset, length), version, first and count of attributes, inputs, outputs; zero
//! attributes 6 u32: key (offset, length), kind, zero, 64-bit value: integer, float bits, or offset and length
//! results  4 u32: value, offset, name (offset, length)
//! pool     i64 entries: operand ids and integer lists
//! strings  UTF-8
//! ```
//!
//! Strings and pool entries are written in the order of their first use, and equal strings once.

use super::{
    Attribute, DType, Graph, GraphError, Node, ResultSlot, Shape, StateKind, Value, ValueId, ValueKind,
};
use crate::abi;

const MAGIC: u32 = u32::from_le_bytes(*b"PLGR");
const FORMAT: u32 = 1;
const HEADER_WORDS: usize = 8;
const VALUE_WORDS: usize = 12;
const NODE_WORDS: usize = 10;
const ATTRIBUTE_WORDS: usize = 6;
const RESULT_WORDS: usize = 4;
/// No live count.
const NONE: u32 = u32::MAX;

#[derive(Default)]
struct Encoder {
    pool: Vec<i64>,
    strings: String,
}

impl Encoder {
    fn text(&mut self, text: &str) -> [u32; 2] {
        let offset = self.strings.find(text).unwrap_or_else(|| {
            let end = self.strings.len();
            self.strings.push_str(text);
            end
        });
        [offset as u32, text.len() as u32]
    }

    fn list(&mut self, entries: impl IntoIterator<Item = i64>) -> [u32; 2] {
        let first = self.pool.len();
        self.pool.extend(entries);
        [first as u32, (self.pool.len() - first) as u32]
    }
}

impl Graph {
    /// The canonical bytes: equal graphs give equal bytes, so a hash of them identifies the graph.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        let (mut values, mut nodes, mut attributes, mut results) = (vec![], vec![], vec![], vec![]);
        for value in &self.values {
            let (kind, offset, state) = encode_kind(value.kind);
            values.extend([kind, value.dtype.0, value.shape.rank() as u32]);
            values.extend(value.shape.raw());
            values.extend([value.live.map_or(NONE, |id| id.0), offset, state]);
            values.extend(e.text(&value.name));
        }
        for node in &self.nodes {
            nodes.extend(e.text(&node.operation));
            nodes.extend([
                node.version,
                (attributes.len() / ATTRIBUTE_WORDS) as u32,
                node.attributes.len() as u32,
            ]);
            nodes.extend(e.list(node.inputs.iter().map(|id| i64::from(id.0))));
            nodes.extend(e.list(node.outputs.iter().map(|id| i64::from(id.0))));
            nodes.push(0);
            for (key, value) in &node.attributes {
                attributes.extend(e.text(key));
                let (kind, bits) = match value {
                    Attribute::Integer(v) => (abi::ATTRIBUTE_INTEGER, *v as u64),
                    Attribute::Float(v) => (abi::ATTRIBUTE_FLOAT, v.to_bits()),
                    Attribute::Text(v) => (abi::ATTRIBUTE_TEXT, pair(e.text(v))),
                    Attribute::Integers(v) => (abi::ATTRIBUTE_INTEGERS, pair(e.list(v.iter().copied()))),
                };
                attributes.extend([kind, 0, bits as u32, (bits >> 32) as u32]);
            }
        }
        for result in &self.results {
            results.extend([result.value.0, result.offset]);
            results.extend(e.text(&result.name));
        }
        let header: [u32; HEADER_WORDS] = [
            MAGIC,
            FORMAT,
            self.values.len() as u32,
            self.nodes.len() as u32,
            (attributes.len() / ATTRIBUTE_WORDS) as u32,
            self.results.len() as u32,
            e.pool.len() as u32,
            e.strings.len() as u32,
        ];
        let words = [&header[..], &values, &nodes, &attributes, &results].concat();
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend(e.pool.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend_from_slice(e.strings.as_bytes());
        bytes
    }

    /// Reads canonical bytes and checks the graph ([`Graph::validate`]).
    ///
    /// # Errors
    /// Where the bytes are malformed, or which rule the graph breaks.
    pub fn from_bytes(bytes: &[u8]) -> Result<Graph, GraphError> {
        let graph = Decoder::new(bytes)?.graph()?;
        graph.validate()?;
        if graph.to_bytes() != bytes {
            return Err(malformed(0, "the bytes are not in canonical form"));
        }
        Ok(graph)
    }
}

fn pair([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

fn encode_kind(kind: ValueKind) -> (u32, u32, u32) {
    match kind {
        ValueKind::Weight => (abi::VALUE_WEIGHT, 0, 0),
        ValueKind::State(state) => (abi::VALUE_STATE, 0, state_kind_to_code(state)),
        ValueKind::Parameter { offset } => (abi::VALUE_PARAMETER, offset, 0),
        ValueKind::Node => (abi::VALUE_NODE, 0, 0),
    }
}

pub(super) fn state_kind_to_code(kind: StateKind) -> u32 {
    match kind {
        StateKind::PerPosition => abi::STATE_PER_POSITION,
        StateKind::PerSlot => abi::STATE_PER_SLOT,
        StateKind::Ring => abi::STATE_RING,
        StateKind::Scratch => abi::STATE_SCRATCH,
        StateKind::Table => abi::STATE_TABLE,
    }
}

pub(super) fn value_kind_to_code(kind: ValueKind) -> u32 {
    encode_kind(kind).0
}

pub(super) fn decode_kind(kind: u32, offset: u32, state: u32) -> Option<ValueKind> {
    let state_kind = match state {
        abi::STATE_PER_POSITION => StateKind::PerPosition,
        abi::STATE_PER_SLOT => StateKind::PerSlot,
        abi::STATE_RING => StateKind::Ring,
        abi::STATE_SCRATCH => StateKind::Scratch,
        abi::STATE_TABLE => StateKind::Table,
        _ => return None,
    };
    match kind {
        abi::VALUE_WEIGHT => Some(ValueKind::Weight),
        abi::VALUE_STATE => Some(ValueKind::State(state_kind)),
        abi::VALUE_PARAMETER => Some(ValueKind::Parameter { offset }),
        abi::VALUE_NODE => Some(ValueKind::Node),
        _ => None,
    }
}

fn malformed(offset: usize, what: impl Into<String>) -> GraphError {
    GraphError::Malformed { offset, what: what.into() }
}

struct Decoder<'a> {
    bytes: &'a [u8],
    /// Byte offset and record count of values, nodes, attributes, results, pool.
    sections: [(usize, usize); 5],
    strings: &'a str,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, GraphError> {
        let word = |index: usize| {
            bytes
                .get(index * 4..index * 4 + 4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .ok_or_else(|| malformed(bytes.len(), "the header is cut short"))
        };
        if word(0)? != MAGIC || word(1)? != FORMAT {
            return Err(malformed(0, "not a graph, or of another format version"));
        }
        let record_bytes = [VALUE_WORDS * 4, NODE_WORDS * 4, ATTRIBUTE_WORDS * 4, RESULT_WORDS * 4, 8];
        let mut sections = [(0, 0); 5];
        let mut at = HEADER_WORDS * 4;
        for (index, size) in record_bytes.into_iter().enumerate() {
            let count = word(2 + index)? as usize;
            sections[index] = (at, count);
            at = count
                .checked_mul(size)
                .and_then(|length| at.checked_add(length))
                .filter(|&end| end <= bytes.len())
                .ok_or_else(|| malformed(at, "a section reaches beyond the end"))?;
        }
        let strings = bytes.get(at..).unwrap_or(&[]);
        if strings.len() != word(7)? as usize {
            return Err(malformed(at, "the string table has another length"));
        }
        let strings = std::str::from_utf8(strings).map_err(|_| malformed(at, "strings are not UTF-8"))?;
        Ok(Self { bytes, sections, strings })
    }

    /// The words of record `index` in section `section`, and its offset.
    fn record<const N: usize>(&self, section: usize, index: usize) -> Result<([u32; N], usize), GraphError> {
        let (start, count) = self.sections[section];
        let at = start + index * N * 4;
        if index >= count {
            return Err(malformed(start, "an index is outside of its section"));
        }
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(self.bytes[at..].chunks_exact(4)) {
            *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        Ok((words, at))
    }

    fn text(&self, at: usize, offset: u32, length: u32) -> Result<String, GraphError> {
        let start = offset as usize;
        self.strings
            .get(start..start.saturating_add(length as usize))
            .map(str::to_owned)
            .ok_or_else(|| malformed(at, "a string is outside of the string table"))
    }

    fn list(&self, at: usize, first: u32, count: u32) -> Result<Vec<i64>, GraphError> {
        let (start, entries) = self.sections[4];
        let (first, count) = (first as usize, count as usize);
        if first > entries || count > entries - first {
            return Err(malformed(at, "a list is outside of the pool"));
        }
        let bytes = &self.bytes[start + first * 8..start + (first + count) * 8];
        Ok(bytes
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect())
    }

    fn ids(&self, at: usize, first: u32, count: u32) -> Result<Vec<ValueId>, GraphError> {
        self.list(at, first, count)?
            .into_iter()
            .map(|v| u32::try_from(v).map(ValueId).map_err(|_| malformed(at, "an operand is not an id")))
            .collect()
    }

    fn graph(&self) -> Result<Graph, GraphError> {
        let counts = self.sections.map(|(_, count)| count);
        Ok(Graph {
            values: (0..counts[0]).map(|i| self.value(i)).collect::<Result<_, _>>()?,
            nodes: (0..counts[1]).map(|i| self.node(i)).collect::<Result<_, _>>()?,
            results: (0..counts[3]).map(|i| self.result(i)).collect::<Result<_, _>>()?,
        })
    }

    fn value(&self, index: usize) -> Result<Value, GraphError> {
        let (w, at) = self.record::<VALUE_WORDS>(0, index)?;
        let shape = w[3..7]
            .get(..w[2] as usize)
            .and_then(Shape::new)
            .ok_or_else(|| malformed(at, "more than 4 dimensions"))?;
        let kind =
            decode_kind(w[0], w[8], w[9]).ok_or_else(|| malformed(at, "the kind of a value is unknown"))?;
        let live = (w[7] != NONE).then_some(ValueId(w[7]));
        Ok(Value { kind, dtype: DType(w[1]), shape, live, name: self.text(at, w[10], w[11])? })
    }

    fn node(&self, index: usize) -> Result<Node, GraphError> {
        let (w, at) = self.record::<NODE_WORDS>(1, index)?;
        let attributes = (w[3]..)
            .take(w[4] as usize)
            .map(|i| self.attribute(i as usize))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Node {
            operation: self.text(at, w[0], w[1])?,
            version: w[2],
            attributes,
            inputs: self.ids(at, w[5], w[6])?,
            outputs: self.ids(at, w[7], w[8])?,
        })
    }

    fn attribute(&self, index: usize) -> Result<(String, Attribute), GraphError> {
        let (w, at) = self.record::<ATTRIBUTE_WORDS>(2, index)?;
        let bits = pair([w[4], w[5]]);
        let value = match w[2] {
            abi::ATTRIBUTE_INTEGER => Attribute::Integer(bits as i64),
            abi::ATTRIBUTE_FLOAT => Attribute::Float(f64::from_bits(bits)),
            abi::ATTRIBUTE_TEXT => Attribute::Text(self.text(at, w[4], w[5])?),
            abi::ATTRIBUTE_INTEGERS => Attribute::Integers(self.list(at, w[4], w[5])?),
            _ => return Err(malformed(at, "the kind of an attribute is unknown")),
        };
        Ok((self.text(at, w[0], w[1])?, value))
    }

    fn result(&self, index: usize) -> Result<ResultSlot, GraphError> {
        let (w, at) = self.record::<RESULT_WORDS>(3, index)?;
        Ok(ResultSlot { value: ValueId(w[0]), offset: w[1], name: self.text(at, w[2], w[3])? })
    }
}
