//! How much a file may ask for.

/// The most dimensions a tensor can have.
pub const MAX_DIMS: usize = 4;

/// Upper bounds on what a file may hold. The defaults are far above any published model.
///
/// They are not what keeps memory in check: every count is first held against the bytes that
/// are left in the file. They keep a large hostile file from costing much time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Metadata keys per file. Default 65,536.
    pub keys: u64,
    /// Tensors in the whole model, over all shards. Default 1,000,000.
    pub tensors: u64,
    /// Bytes of one key. Default 65,535, as the format demands.
    pub key_bytes: u64,
    /// Bytes of one tensor name, at most 65,535. Default 1,024 (published names stay under 64).
    pub tensor_name_bytes: u64,
    /// Bytes of one string value, such as a chat template. Default 16 MiB.
    pub string_bytes: u64,
    /// Bytes of one string inside an array, such as a token. Default 64 KiB.
    pub array_string_bytes: u64,
    /// Largest `general.alignment`, bytes. Default 1 MiB.
    pub alignment: u64,
    /// Files of one split model, at most 65,535. Default 4,096.
    pub shards: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            keys: 65_536,
            tensors: 1_000_000,
            key_bytes: 65_535,
            tensor_name_bytes: 1_024,
            string_bytes: 16 << 20,
            array_string_bytes: 64 << 10,
            alignment: 1 << 20,
            shards: 4_096,
        }
    }
}
