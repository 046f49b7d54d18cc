//! The traits of a backend, and the data types that they speak.
//!
//! A backend is asked in this order: [`Backend::devices`]; [`Backend::layout_weights`] and [`Backend::plan`], both
//! pure, which say what a placement would cost before anything is allocated; then [`Backend::open`], and on the
//! [`Device`] the arenas, the import of weights and the executables. Nothing after that allocates: an
//! [`Executable`] is launched any number of times.

use crate::abi;
use crate::error::{Error, Result};
use crate::graph::{DType, Graph, Shape, ValueId, ValueKind};
use std::collections::HashMap;

pub use crate::abi::{Counters, StatePlan, WeightLayout};

/// Rows up to which a row's bits do not depend on its company: no limit.
pub const UNLIMITED_ROWS: u32 = u32::MAX;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor that runs the host.
    Cpu,
    /// An accelerator with its own memory.
    Discrete,
    /// An accelerator that shares the host's memory.
    Integrated,
    /// A software implementation of an accelerator.
    Software,
}

impl DeviceKind {
    /// The number that crosses the ABI.
    pub fn code(self) -> u32 {
        match self {
            Self::Cpu => abi::device_kind::CPU,
            Self::Discrete => abi::device_kind::DISCRETE,
            Self::Integrated => abi::device_kind::INTEGRATED,
            Self::Software => abi::device_kind::SOFTWARE,
        }
    }

    /// The kind of a code; `None` for one that is not known.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Cpu, Self::Discrete, Self::Integrated, Self::Software].into_iter().find(|k| k.code() == code)
    }
}

/// One device, as a backend describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What it is.
    pub kind: DeviceKind,
    /// Threads or compute units that work on a launch.
    pub units: u32,
    /// Name for people.
    pub name: String,
    /// PCI address or UUID of the hardware, or `cpu`.
    pub physical_id: String,
    /// Architecture, such as `x86_64`, `gfx906`, `sm_90`.
    pub arch: String,
    /// What `layout_weights` and `plan` need to know, in the backend's own words.
    pub capabilities: String,
    /// Total memory in bytes.
    pub memory_total: u64,
}

/// Memory of a device now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Total bytes.
    pub total: u64,
    /// Bytes that can still be allocated.
    pub free: u64,
    /// Arenas are rounded up to multiples of this.
    pub granularity: u64,
}

/// Uses of a weight, a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Uses(pub u32);

impl Uses {
    /// Rows are gathered.
    pub const GATHER: Uses = Uses(abi::weight_use::GATHER);
    /// Multiplied with activations.
    pub const PRODUCT: Uses = Uses(abi::weight_use::PRODUCT);
    /// Read element by element.
    pub const ELEMENTS: Uses = Uses(abi::weight_use::ELEMENTS);

    /// True if all of `other` is in the set.
    pub fn contains(self, other: Uses) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    pub fn union(self, other: Uses) -> Uses {
        Uses(self.0 | other.0)
    }
}

/// A weight and all its uses in the graphs of one placement.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightUse {
    /// Tensor name.
    pub name: String,
    /// Canonical type.
    pub dtype: DType,
    /// Rows, then columns.
    pub shape: Shape,
    /// How it is used.
    pub uses: Uses,
    /// Weights of one group, if not 0, read the same activations and may be fused.
    pub group: u32,
}

/// All weights of some graphs, each once, with all its uses, in the order in which they first stand in a graph.
/// Weights that are multiplied with the same activations form a group.
pub fn weight_uses<'a>(graphs: impl IntoIterator<Item = &'a Graph>) -> Vec<WeightUse> {
    let mut list: Vec<WeightUse> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups_before = 0;
    for graph in graphs {
        for id in graph.weights() {
            let value = graph.value(id);
            places.entry(value.name.clone()).or_insert_with(|| {
                list.push(WeightUse {
                    name: value.name.clone(),
                    dtype: value.dtype,
                    shape: value.shape,
                    uses: Uses::default(),
                    group: 0,
                });
                list.len() - 1
            });
        }
        let mut groups: HashMap<ValueId, u32> = HashMap::new();
        for node in graph.nodes() {
            for (position, &input) in node.inputs.iter().enumerate() {
                let value = graph.value(input);
                if value.kind != ValueKind::Weight {
                    continue;
                }
                let uses = match (node.operation.as_str(), position) {
                    ("linear", 1) | ("experts", 1..=3) => Uses::PRODUCT,
                    ("embed", 1) => Uses::GATHER,
                    _ => Uses::ELEMENTS,
                };
                let weight = &mut list[places[&value.name]];
                weight.uses = weight.uses.union(uses);
                // The last matrix of experts reads what the first two made.
                let reads_first = (node.operation.as_str(), position) != ("experts", 3);
                if uses == Uses::PRODUCT && weight.group == 0 && reads_first {
                    weight.group = *groups.entry(node.inputs[0]).or_insert_with(|| {
                        groups_before += 1;
                        groups_before
                    });
                }
            }
        }
    }
    list
}

/// Classes of arenas, by what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArenaClass {
    /// Weights in the backend's layout.
    Weights,
    /// KV caches and tables.
    Kv,
    /// Recurrent and convolution state.
    State,
    /// Activations of executables.
    Workspace,
    /// Parameter and result blocks; the host reads and writes it.
    Io,
}

impl ArenaClass {
    /// All classes.
    pub const ALL: [ArenaClass; 5] = [Self::Weights, Self::Kv, Self::State, Self::Workspace, Self::Io];

    /// The number that crosses the ABI.
    pub fn code(self) -> u32 {
        match self {
            Self::Weights => abi::arena_class::WEIGHTS,
            Self::Kv => abi::arena_class::KV,
            Self::State => abi::arena_class::STATE,
            Self::Workspace => abi::arena_class::WORKSPACE,
            Self::Io => abi::arena_class::IO,
        }
    }

    /// The class of a code; `None` for one that is not known.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

/// What a plan says about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// The node can run.
    Kernel {
        /// Name of the kernel.
        kernel: String,
        /// Rows up to which a row's bits do not depend on its company; [`UNLIMITED_ROWS`] for no limit. Graphs of more rows
        /// may have other bits, and other numerics ids, among themselves the same: the host decodes and verifies in
        /// runs of no more, and processes prompts in wider ones.
        row_invariance: u32,
        /// Id of everything that affects the bits.
        numerics: u64,
        /// Bytes of weights and state read, an estimate.
        bytes_read: u64,
        /// Multiply-adds at the largest row count, an estimate.
        operations: u64,
    },
    /// The node cannot run here.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A whole plan, as a backend states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSummary {
    /// Bytes of workspace.
    pub workspace_bytes: u64,
    /// Alignment of the workspace.
    pub workspace_alignment: u64,
    /// Bytes of one parameter block.
    pub parameter_bytes: u64,
    /// Bytes of one result block.
    pub result_bytes: u64,
    /// One entry per node.
    pub nodes: Vec<NodePlan>,
    /// One entry per state, in the order of the values.
    pub states: Vec<StatePlan>,
}

impl PlanSummary {
    /// The first node that was refused, with its reason.
    pub fn refusal(&self) -> Option<(usize, &str)> {
        self.nodes.iter().enumerate().find_map(|(index, node)| match node {
            NodePlan::Refused { reason } => Some((index, reason.as_str())),
            NodePlan::Kernel { .. } => None,
        })
    }
}

/// A range in an arena of type `A`.
pub struct Span<'a, A> {
    /// The arena.
    pub arena: &'a A,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl<A> Clone for Span<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Span<'_, A> {}

/// One weight to import.
pub struct WeightImport<'a, A> {
    /// The weight, as given to `layout_weights`.
    pub weight: WeightUse,
    /// The layout that was chosen for it.
    pub layout: WeightLayout,
    /// Where it goes.
    pub target: Span<'a, A>,
    /// Canonical GGUF bytes.
    pub source: &'a [u8],
}

/// Everything that a plan is bound to.
pub struct Load<'a, A> {
    /// One span per weight of the graph, in the order of the values.
    pub weights: Vec<Span<'a, A>>,
    /// One span per state of the graph, in the order of the values.
    pub states: Vec<Span<'a, A>>,
    /// Workspace. Executables may share it: launches of one device run one after the other.
    pub workspace: Span<'a, A>,
    /// Parameter blocks, one per slot.
    pub parameters: Span<'a, A>,
    /// Distance of parameter blocks in bytes.
    pub parameter_stride: u64,
    /// Result blocks, one per slot.
    pub results: Span<'a, A>,
    /// Distance of result blocks in bytes.
    pub result_stride: u64,
    /// Number of slots.
    pub slots: u32,
}

/// A semaphore of type `S` and a value on its timeline.
pub struct Point<'a, S> {
    /// The semaphore.
    pub semaphore: &'a S,
    /// The value.
    pub value: u64,
}

/// A plugin that computes graphs.
pub trait Backend: Send + Sync + 'static {
    /// What [`Backend::plan`] makes.
    type Plan: Plan;
    /// What [`Backend::open`] makes.
    type Device: Device<Plan = Self::Plan>;

    /// The devices now. May touch a driver; no device is an empty list, not an error.
    ///
    /// # Errors
    /// When a driver is there and fails.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Chooses a layout for every weight of a placement. Pure: works with no device present.
    ///
    /// # Errors
    /// A weight whose type or shape the backend cannot take, by name.
    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>>;

    /// Plans a graph. Pure and total: a node that cannot run is refused in the plan. `layouts` has one entry per
    /// weight of the graph, in the order of the values. The graph was validated.
    ///
    /// # Errors
    /// Capabilities or layouts that are not this backend's.
    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<Self::Plan>;

    /// Opens a device. `settings` are keys without the plugin's name, and values as text.
    ///
    /// # Errors
    /// A setting that is unknown or wrong, by name; a device that cannot be used.
    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<Self::Device>;

    /// How copies from device `from` to device `to` would go, which need not be open.
    ///
    /// # Errors
    /// A device that does not exist; a driver that fails.
    fn peer_route(&self, to: u32, from: u32) -> Result<PeerRoute> {
        let _ = (to, from);
        Ok(PeerRoute::None)
    }
}

/// How bytes come from one device of a backend to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerRoute {
    /// Not by the backend: the host has to copy.
    None,
    /// One device reads or writes the memory of the other.
    Direct,
    /// The backend or its driver takes them through memory of the host.
    Staged,
}

impl PeerRoute {
    /// All routes.
    pub const ALL: [PeerRoute; 3] = [Self::None, Self::Direct, Self::Staged];

    /// The number that crosses the ABI.
    pub fn code(self) -> u32 {
        match self {
            Self::None => abi::peer_route::NONE,
            Self::Direct => abi::peer_route::DIRECT,
            Self::Staged => abi::peer_route::STAGED,
        }
    }

    /// The route of a code; `None` for one that is not known.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.code() == code)
    }
}

/// What was captured: recorded once, to be launched with one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// Launches replay captured steps.
    pub is_captured: bool,
    /// Steps that were captured, one for each slot of an executable.
    pub captures: u64,
    /// Launches that replayed one.
    pub replays: u64,
    /// Captured steps that had to be made again.
    pub rebuilds: u64,
    /// Why steps are not captured, or why the last one was made again; empty if there is nothing to say.
    pub reason: &'static str,
}

impl Captures {
    /// What a backend says that has no such thing.
    pub fn none() -> Self {
        Self { reason: "this backend does not capture steps", ..Self::default() }
    }
}

/// A planned graph.
pub trait Plan: Send + Sync + 'static {
    /// What the host may know of it.
    fn summary(&self) -> &PlanSummary;
}

/// An opened device.
pub trait Device: Send + Sync + 'static {
    /// Contiguous memory.
    type Arena: Arena;
    /// The backend's plans.
    type Plan: Plan;
    /// A plan bound to arenas.
    type Executable: Executable<Semaphore = Self::Semaphore>;
    /// A timeline semaphore.
    type Semaphore: Semaphore;

    /// Memory now.
    ///
    /// # Errors
    /// When the device is lost.
    fn memory(&self) -> Result<MemoryInfo>;

    /// What the device did since it was opened.
    fn counters(&self) -> Counters;

    /// Allocates and commits memory.
    ///
    /// # Errors
    /// When there is not enough, saying how much was asked for.
    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<Self::Arena>;

    /// Imports weights. When all are in place the point is signalled; a failure after the return travels with it.
    ///
    /// # Errors
    /// A weight whose bytes or target do not fit, by name.
    fn import_weights(
        &self,
        imports: &[WeightImport<'_, Self::Arena>],
        signal: Point<'_, Self::Semaphore>,
    ) -> Result<()>;

    /// Binds a plan to arenas. Spans were checked for number and bounds.
    ///
    /// # Errors
    /// Spans that are too small or not aligned.
    fn load(&self, plan: &Self::Plan, load: &Load<'_, Self::Arena>) -> Result<Self::Executable>;

    /// Makes a timeline semaphore.
    ///
    /// # Errors
    /// When the device cannot.
    fn create_semaphore(&self, initial: u64) -> Result<Self::Semaphore>;

    /// Queues a copy to an arena of this device, of as many bytes as `to` has, among its launches, and returns how it goes. The
    /// ranges are of one length and inside of their arenas, of which `from` may be another device's.
    ///
    /// # Errors
    /// Devices between which the backend does not copy, IO arenas, a device that is lost. Nothing was queued then.
    fn peer_copy(
        &self,
        to: Span<'_, Self::Arena>,
        from: Span<'_, Self::Arena>,
        waits: &[Point<'_, Self::Semaphore>],
        signals: &[Point<'_, Self::Semaphore>],
    ) -> Result<PeerRoute> {
        let _ = (to, from, waits, signals);
        Err(Error::unsupported("this backend does not copy between devices"))
    }

    /// All that was captured since the device was opened.
    fn captures(&self) -> Captures {
        Captures::none()
    }
}

/// Contiguous memory of a device.
pub trait Arena: Send + Sync + 'static {
    /// Length in bytes.
    fn bytes(&self) -> u64;

    /// The address in host memory, for arenas of class [`ArenaClass::Io`].
    fn host_address(&self) -> Option<*mut u8>;
}

/// A plan bound to arenas.
pub trait Executable: Send + Sync + 'static {
    /// The device's semaphores.
    type Semaphore: Semaphore;

    /// Queues a launch and returns; neither allocates nor waits.
    ///
    /// # Errors
    /// A slot that does not exist, parameters that are out of range, a device that is lost.
    fn launch(
        &self,
        slot: u32,
        waits: &[Point<'_, Self::Semaphore>],
        signals: &[Point<'_, Self::Semaphore>],
    ) -> Result<()>;

    /// Copies slots or blocks of a state out in canonical form: row-major elements of the declared type.
    ///
    /// # Errors
    /// A range outside of the state, or a buffer of another size.
    fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        let _ = (state, first, count, out);
        Err(Error::unsupported("this backend does not export state"))
    }

    /// The reverse of [`Executable::export_state`].
    ///
    /// # Errors
    /// As there.
    fn import_state(&self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        let _ = (state, first, count, source);
        Err(Error::unsupported("this backend does not import state"))
    }

    /// What of it was captured.
    fn captures(&self) -> Captures {
        Captures::none()
    }

    /// Does ahead of use what the first launch of each slot would do besides running.
    ///
    /// # Errors
    /// A device that fails.
    fn warm_up(&self) -> Result<()> {
        Ok(())
    }
}

/// A timeline semaphore. It can carry a failure, since what fails on a worker never reaches the call that queued it.
pub trait Semaphore: Send + Sync + 'static {
    /// Waits until the value is reached.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Timeout`] after `timeout_ns`, or the failure that the semaphore carries.
    fn wait(&self, value: u64, timeout_ns: u64) -> Result<()>;

    /// The value reached so far.
    fn value(&self) -> u64;

    /// Sets the value from the host.
    fn signal(&self, value: u64);

    /// The failure that the semaphore carries.
    fn failure(&self) -> Option<Error>;
}
