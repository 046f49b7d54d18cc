//! Numbers that stand in graphs: kinds of values, states and attributes, and data types. Their names carry what they
//! are the kinds of, since C has no modules.

/// A value that is imported once.
pub const VALUE_WEIGHT: u32 = 0;
/// A value that is persistent and mutable.
pub const VALUE_STATE: u32 = 1;
/// A value in the parameter block.
pub const VALUE_PARAMETER: u32 = 2;
/// A value that a node makes.
pub const VALUE_NODE: u32 = 3;

/// A state that is addressed by position, through a block table.
pub const STATE_PER_POSITION: u32 = 0;
/// A state that is addressed by sequence slot.
pub const STATE_PER_SLOT: u32 = 1;
/// A state that is addressed by position modulo a capacity.
pub const STATE_RING: u32 = 2;
/// A state without meaning between runs.
pub const STATE_SCRATCH: u32 = 3;
/// A table of indices that the host maintains.
pub const STATE_TABLE: u32 = 4;

/// An attribute that is an integer.
pub const ATTRIBUTE_INTEGER: u32 = 0;
/// An attribute that is a number.
pub const ATTRIBUTE_FLOAT: u32 = 1;
/// An attribute that is a word.
pub const ATTRIBUTE_TEXT: u32 = 2;
/// An attribute that is a list of integers.
pub const ATTRIBUTE_INTEGERS: u32 = 3;

/// 32-bit numbers; types have their GGUF ids, and the set is open.
pub const TYPE_F32: u32 = 0;
/// 16-bit numbers.
pub const TYPE_F16: u32 = 1;
/// Blocks of 32 in 18 bytes.
pub const TYPE_Q4_0: u32 = 2;
/// Blocks of 32 in 20 bytes.
pub const TYPE_Q4_1: u32 = 3;
/// Blocks of 32 in 22 bytes.
pub const TYPE_Q5_0: u32 = 6;
/// Blocks of 32 in 24 bytes.
pub const TYPE_Q5_1: u32 = 7;
/// Blocks of 32 in 34 bytes.
pub const TYPE_Q8_0: u32 = 8;
/// Blocks of 256 in 144 bytes.
pub const TYPE_Q4_K: u32 = 12;
/// Blocks of 256 in 176 bytes.
pub const TYPE_Q5_K: u32 = 13;
/// Blocks of 256 in 210 bytes.
pub const TYPE_Q6_K: u32 = 14;
/// Blocks of 32 in 18 bytes, with a table of levels.
pub const TYPE_IQ4_NL: u32 = 20;
/// 32-bit integers.
pub const TYPE_I32: u32 = 26;
/// 64-bit integers.
pub const TYPE_I64: u32 = 27;
/// The upper half of 32-bit numbers.
pub const TYPE_BF16: u32 = 30;
/// Blocks of 32 in 17 bytes: 4-bit floats with a power of two.
pub const TYPE_MXFP4: u32 = 39;
/// The first id that a plugin may declare for a weight type of its own; GGUF numbers its types below.
pub const TYPE_FIRST_DECLARED: u32 = 64;
