//! What the backends for GPUs share: everything but the driver.
//!
//! A backend is a [`Platform`], which names its driver, targets, images and words, and a [`Driver`], which makes its calls.
//! [`GpuBackend`] does the rest:
//!
//! - `backend`, [`capabilities`]: the entry of the plugin, settings, and the text that plans depend on;
//! - `layout`: weights in the layouts of the kernels;
//! - `program`: a graph lowered to launches with places in the workspace, without any device;
//! - `device`, `memory`, `import`: an opened device, its arenas, weights that go up;
//! - `bind`, `executable`: a program with addresses, captured and launched; states that go out and in;
//! - `queue`, `semaphore`: launches in order, and who learns that they are done.
//!
//! A row's bits do not depend on how many rows a run has; see `README.md`.

mod backend;
mod bind;
pub mod capabilities;
mod device;
pub mod driver;
mod executable;
mod import;
mod layout;
mod memory;
mod opened;
mod platform;
mod program;
mod queue;
mod semaphore;
#[cfg(any(test, feature = "double"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use backend::GpuBackend;
pub use device::GpuDevice;
pub use driver::Driver;
pub use executable::GpuExecutable;
pub use memory::GpuArena;
pub use platform::{Images, NoDriver, Platform};
pub use program::GpuPlan;
pub use semaphore::GpuSemaphore;
