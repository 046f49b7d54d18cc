//! A small program on a device, for tests of what goes on around it.

use crate::{GpuArena, GpuBackend, GpuDevice, GpuExecutable, GpuSemaphore};
use paceline_plugin_api::backend::{
    Arena, ArenaClass, Backend, Device, Executable, Load, Plan, Point, Semaphore, Span,
};
use paceline_plugin_api::graph::{Builder, DType, Graph};
use paceline_plugin_api::{Error, Result};

/// Bytes of a parameter or result block.
const BLOCK: u64 = 4096;
const SLOTS: u32 = 2;
/// Nanoseconds after which a wait is given up.
pub const LONG_NS: u64 = 60_000_000_000;

/// y = 2 x, of three rows of four.
pub fn doubling() -> Graph {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[3, 4], None);
    let y = b.scale(x, 2.0);
    b.result("y", y);
    b.finish()
}

/// A program with two slots, and the memory that it has; its first parameter and its first result are floats.
pub struct Running {
    /// The program.
    pub executable: GpuExecutable,
    /// What launches signal.
    pub semaphore: GpuSemaphore,
    /// Parameter blocks, then result blocks.
    pub io: GpuArena,
    /// Where it computes.
    pub workspace: GpuArena,
    /// What it runs on.
    pub device: GpuDevice,
}

impl Running {
    /// [`doubling`] on the first device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn new(backend: &GpuBackend, settings: &[(&str, &str)]) -> Result<Self> {
        Self::of(backend, 0, doubling(), settings)
    }

    /// A graph without weights and states on a device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn of(backend: &GpuBackend, index: u32, graph: Graph, settings: &[(&str, &str)]) -> Result<Self> {
        let settings: Vec<_> =
            settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let info = backend.devices()?.into_iter().nth(index as usize);
        let capabilities = info.ok_or_else(|| Error::invalid("there is no such device"))?.capabilities;
        let plan = backend.plan(graph, &capabilities, &[])?;
        let device = backend.open(index, &settings)?;
        let blocks = u64::from(SLOTS) * BLOCK;
        let io = device.create_arena(ArenaClass::Io, 2 * blocks)?;
        let bytes = plan.summary().workspace_bytes;
        let workspace = device.create_arena(ArenaClass::Workspace, bytes)?;
        let executable = device.load(
            &plan,
            &Load {
                weights: Vec::new(),
                states: Vec::new(),
                workspace: Span { arena: &workspace, offset: 0, bytes },
                parameters: Span { arena: &io, offset: 0, bytes: blocks },
                parameter_stride: BLOCK,
                results: Span { arena: &io, offset: blocks, bytes: blocks },
                result_stride: BLOCK,
                slots: SLOTS,
            },
        )?;
        let semaphore = device.create_semaphore(0)?;
        Ok(Self { executable, semaphore, io, workspace, device })
    }

    fn float(&self, block: u32) -> *mut f32 {
        assert!(block < 2 * SLOTS, "there is no block {block}");
        let start = self.io.host_address().expect("blocks are in memory of the host");
        start.wrapping_add(block as usize * BLOCK as usize).cast()
    }

    /// Sets the first parameter of a slot, of which no launch is pending.
    pub fn set(&self, slot: u32, x: f32) {
        // SAFETY: the block lies in the arena; tests leave blocks of pending launches alone.
        unsafe { self.float(slot).write(x) };
    }

    /// The first result of a slot, as it is at this moment.
    pub fn result(&self, slot: u32) -> f32 {
        // SAFETY: as above.
        unsafe { self.float(SLOTS + slot).read() }
    }

    /// Launches the first slot.
    ///
    /// # Errors
    /// What the backend says.
    pub fn launch(&self, value: u64) -> Result<()> {
        self.launch_slot(0, value)
    }

    /// Launches a slot, which signals `value`.
    ///
    /// # Errors
    /// What the backend says.
    pub fn launch_slot(&self, slot: u32, value: u64) -> Result<()> {
        self.executable.launch(slot, &[], &[Point { semaphore: &self.semaphore, value }])
    }

    /// Runs the first slot with `value` as its first parameter, waits for it, and returns its first result.
    ///
    /// # Errors
    /// What the backend says.
    pub fn run(&self, value: u64) -> Result<f32> {
        self.set(0, value as f32);
        self.launch(value)?;
        self.semaphore.wait(value, LONG_NS)?;
        Ok(self.result(0))
    }
}
