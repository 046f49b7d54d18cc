//! What a backend is measured with.
//!
//! - [`quant`] reads and writes the canonical bytes of every weight and cache type;
//! - [`mod@reference`] computes graphs in the plainest way there is: it defines what the operations of
//!   [`paceline_plugin_api::graph::ops`] mean;
//! - [`suite`] runs every operation and the whole contract against a backend;
//! - [`reference_backend`] is a backend around the reference executor, on which the suite itself is tested;
//! - [`block`] fills parameter blocks and reads result blocks;
//! - [`harness`] runs any graph on any backend.
#![deny(unsafe_code)]

pub mod block;
pub mod harness;
mod io;
pub mod quant;
pub mod random;
pub mod reference;
pub mod reference_backend;
pub mod suite;

pub use reference::ReferenceExecutor;
