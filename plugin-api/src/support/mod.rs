//! Parts that most backends need and that are easily got wrong. A backend may use any of them or none: nothing here
//! is known to the host, and nothing of it crosses the ABI.
//!
//! - [`Timeline`] is the state of a timeline semaphore;
//! - [`Layout`] chooses between plain elements and a packed form for each weight.

mod layout;
mod timeline;

pub use layout::{Layout, WeightFormats};
pub use timeline::Timeline;
