//! Safe reading and writing of GGUF files.
//!
//! A GGUF file is a table of metadata (keys and values), a table of tensors, and the tensors'
//! bytes. Such files come from strangers, so every count, length and range in them is checked
//! before it is used: a bad file gives an [`Error`] that says what is wrong, where, and what to
//! do about it. It never panics and never makes the reader allocate more than the file's own
//! tables account for.
//!
//! ```no_run
//! # fn main() -> Result<(), paceline_gguf::Error> {
//! use paceline_gguf::{Gguf, OpenOptions};
//!
//! let model = Gguf::open("model.gguf", &OpenOptions::default())?;
//! let layers = model.require_u32(&format!("{}.block_count", model.architecture()?))?;
//! for tensor in model.tensors() {
//!     println!("{} {:?} {}", tensor.name, tensor.dims, tensor.tensor_type);
//! }
//! let embeddings = model.tensor_bytes(&model.require_tensor("token_embd.weight")?)?;
//! # let _ = (layers, embeddings);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Gguf`] reads one model, whole or split over several files, and stops at the first fault.
//! - [`verify()`] walks the same checks and lists every fault it can reach.
//! - [`Writer`] writes files.
//!
//! GGUF versions 2 and 3 are read, little-endian only.

#![deny(unsafe_code)]

mod access;
mod array;
mod cursor;
mod error;
mod fault;
mod fault_log;
mod gguf;
mod header;
mod layout;
mod limits;
mod map;
mod metadata;
mod model_checks;
mod shard;
mod shard_name;
mod source;
mod split;
mod tensor;
mod tensor_type;
mod value;
mod verify;
mod write_value;
mod writer;

pub use access::FromValue;
pub use array::{Array, ByteStrings, Numbers, Strings};
pub use error::{Error, Origin, Result};
pub use fault::Fault;
pub use fault_log::MAX_LISTED_FAULTS;
pub use gguf::{Gguf, OpenOptions};
pub use limits::{Limits, MAX_DIMS};
pub use shard_name::ShardName;
pub use source::Load;
pub use tensor::TensorInfo;
pub use tensor_type::{TensorType, TypeLayout};
pub use value::{ValueRef, ValueType};
pub use verify::{Report, verify, verify_bytes, verify_with};
pub use write_value::{ArrayValue, NotText, Value};
pub use writer::Writer;
