//! Data types and shapes.

use crate::abi;
use std::fmt;

/// A data type by its GGUF id. The set is open: an id without a name here is carried and refused by whoever
/// cannot use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DType(pub u32);

/// (id, name, elements per block, bytes per block)
const KNOWN: &[(DType, &str, u32, u32)] = &[
    (DType::F32, "f32", 1, 4),
    (DType::F16, "f16", 1, 2),
    (DType::Q4_0, "q4_0", 32, 18),
    (DType::Q4_1, "q4_1", 32, 20),
    (DType::Q5_0, "q5_0", 32, 22),
    (DType::Q5_1, "q5_1", 32, 24),
    (DType::Q8_0, "q8_0", 32, 34),
    (DType::Q4_K, "q4_K", 256, 144),
    (DType::Q5_K, "q5_K", 256, 176),
    (DType::Q6_K, "q6_K", 256, 210),
    (DType::IQ4_NL, "iq4_nl", 32, 18),
    (DType::I32, "i32", 1, 4),
    (DType::I64, "i64", 1, 8),
    (DType::BF16, "bf16", 1, 2),
    (DType::MXFP4, "mxfp4", 32, 17),
];

#[allow(missing_docs, non_upper_case_globals)]
impl DType {
    pub const F32: DType = DType(abi::TYPE_F32);
    pub const F16: DType = DType(abi::TYPE_F16);
    pub const Q4_0: DType = DType(abi::TYPE_Q4_0);
    pub const Q4_1: DType = DType(abi::TYPE_Q4_1);
    pub const Q5_0: DType = DType(abi::TYPE_Q5_0);
    pub const Q5_1: DType = DType(abi::TYPE_Q5_1);
    pub const Q8_0: DType = DType(abi::TYPE_Q8_0);
    pub const Q4_K: DType = DType(abi::TYPE_Q4_K);
    pub const Q5_K: DType = DType(abi::TYPE_Q5_K);
    pub const Q6_K: DType = DType(abi::TYPE_Q6_K);
    pub const IQ4_NL: DType = DType(abi::TYPE_IQ4_NL);
    pub const I32: DType = DType(abi::TYPE_I32);
    pub const I64: DType = DType(abi::TYPE_I64);
    pub const BF16: DType = DType(abi::TYPE_BF16);
    pub const MXFP4: DType = DType(abi::TYPE_MXFP4);
}

impl DType {
    fn known(self) -> Option<&'static (DType, &'static str, u32, u32)> {
        KNOWN.iter().find(|entry| entry.0 == self)
    }

    /// Elements and bytes per block, `None` for a type that is not known here.
    pub fn block(self) -> Option<(u32, u32)> {
        self.known().map(|&(_, _, elements, bytes)| (elements, bytes))
    }

    /// True if this crate knows the size of the type's blocks.
    pub fn is_known(self) -> bool {
        self.known().is_some()
    }

    /// True for types whose elements can be read one by one.
    pub fn is_plain(self) -> bool {
        self.block().is_some_and(|(elements, _)| elements == 1)
    }

    /// Finds a type by its name.
    pub fn from_name(name: &str) -> Option<DType> {
        KNOWN.iter().find(|entry| entry.1.eq_ignore_ascii_case(name)).map(|entry| entry.0)
    }

    /// Bytes of a whole tensor in canonical form, `None` if the type is not known, the last dimension is not
    /// whole blocks, or the size overflows.
    pub fn bytes(self, shape: &Shape) -> Option<u64> {
        let (elements, bytes) = self.block()?;
        let row = shape.dims().last().copied().unwrap_or(1);
        if row % elements != 0 {
            return None;
        }
        let blocks = shape.elements()? / u64::from(elements);
        blocks.checked_mul(u64::from(bytes))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(entry) => f.write_str(entry.1),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// Up to four dimensions, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u32; 4],
    rank: u8,
}

impl Shape {
    /// A shape of at most four dimensions; `None` for more.
    pub fn new(dims: &[u32]) -> Option<Shape> {
        let mut shape = Shape { dims: [1; 4], rank: u8::try_from(dims.len()).ok()? };
        shape.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(shape)
    }

    /// The dimensions.
    pub fn dims(&self) -> &[u32] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Number of elements, `None` on overflow.
    pub fn elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)))
    }

    /// Elements of one entry of axis 0.
    pub fn row_elements(&self) -> u64 {
        self.dims().iter().skip(1).map(|&d| u64::from(d)).product()
    }

    /// The outermost dimension, 1 for a scalar.
    pub fn first(&self) -> u32 {
        self.dims().first().copied().unwrap_or(1)
    }

    /// The innermost dimension, 1 for a scalar.
    pub fn last(&self) -> u32 {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The same shape with another innermost dimension.
    pub fn with_last(mut self, last: u32) -> Shape {
        if let Some(rank) = self.rank().checked_sub(1) {
            self.dims[rank] = last;
        }
        self
    }

    /// The same shape with another outermost dimension.
    pub fn with_first(mut self, first: u32) -> Shape {
        if self.rank > 0 {
            self.dims[0] = first;
        }
        self
    }

    pub(crate) fn raw(&self) -> [u32; 4] {
        self.dims
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.dims().iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}
