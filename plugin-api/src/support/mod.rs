//! Parts that most backends need and that are easily got wrong. A backend may use any of them or none: nothing here
//! is known to the host, and nothing of it crosses the ABI.
//!
//! - [`Timeline`] is the state of a timeline semaphore;
//! - [`Layout`] chooses between plain elements and a packed form for each weight;
//! - [`place_intermediates`] gives the values of a plan places in its workspace;
//! - [`ParameterCheck`] finds what a launch cannot use as an index before kernels do;
//! - [`Numerics`] makes the ids by which the host knows that two nodes give the same bits.

mod checks;
mod layout;
mod numerics;
mod timeline;
mod workspace;

pub use checks::{Live, ParameterBlock, ParameterCheck};
pub use layout::{Layout, WeightFormats};
pub use numerics::Numerics;
pub use timeline::Timeline;
pub use workspace::{Intermediate, place_intermediates};
