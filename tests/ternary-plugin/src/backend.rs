//! The reference backend, with weights and nodes turned into what it knows.

use paceline_conformance::reference_backend::{
    ReferenceArena, ReferenceBackend, ReferenceDevice, ReferenceExecutable, ReferencePlan, ReferenceSemaphore,
};
use paceline_plugin_api::backend::{
    ArenaClass, Backend, Counters, Device, DeviceInfo, Load, MemoryInfo, Point, WeightImport, WeightLayout,
    WeightUse,
};
use paceline_plugin_api::graph::{Attribute, DType, Graph, Node, Shape};
use paceline_plugin_api::weight_types::ReferenceFormat;
use paceline_plugin_api::{Error, Result};

use crate::format::{BYTES, ELEMENTS, TERNARY, TernaryFormat};

/// The backend.
pub struct TernaryBackend {
    inner: ReferenceBackend,
}

impl TernaryBackend {
    /// The backend.
    pub fn new() -> Self {
        Self { inner: ReferenceBackend::new() }
    }
}

/// The weight as f32, if it is ternary; rows must be whole blocks.
fn in_floats(weight: &WeightUse) -> Result<WeightUse> {
    if weight.dtype == TERNARY && !(weight.shape.last() as usize).is_multiple_of(ELEMENTS) {
        return Err(Error::unsupported(format!(
            "weight `{}` is {}: rows of T1_58 are multiples of {ELEMENTS}",
            weight.name, weight.shape
        )));
    }
    Ok(WeightUse { dtype: float_for(weight.dtype), ..weight.clone() })
}

fn float_for(dtype: DType) -> DType {
    if dtype == TERNARY { DType::F32 } else { dtype }
}

/// `acme.negate/1` takes one value and gives another like it. What has another form stays, and is refused.
fn is_negation(graph: &Graph, node: &Node) -> bool {
    let alike = |[x, y]: [usize; 2]| {
        let (x, y) = (&graph.values()[x], &graph.values()[y]);
        (x.shape, x.dtype, x.live) == (y.shape, DType::F32, y.live)
    };
    (node.operation.as_str(), node.version) == ("acme.negate", 1)
        && node.attributes.is_empty()
        && matches!((&node.inputs[..], &node.outputs[..]), (&[x], &[y]) if alike([x.index(), y.index()]))
}

impl Backend for TernaryBackend {
    type Plan = ReferencePlan;
    type Device = TernaryDevice;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.inner.devices()
    }

    fn layout_weights(&self, capabilities: &str, weights: &[WeightUse]) -> Result<Vec<WeightLayout>> {
        let weights = weights.iter().map(in_floats).collect::<Result<Vec<_>>>()?;
        self.inner.layout_weights(capabilities, &weights)
    }

    fn plan(&self, graph: Graph, capabilities: &str, layouts: &[WeightLayout]) -> Result<ReferencePlan> {
        let rewritten = graph.rewritten(
            |value| value.dtype = float_for(value.dtype),
            |node| {
                if is_negation(&graph, node) {
                    node.operation = "scale".into();
                    node.attributes = vec![("factor".into(), Attribute::Float(-1.0))];
                }
            },
        );
        rewritten.validate().map_err(|error| Error::invalid(error.to_string()))?;
        self.inner.plan(rewritten, capabilities, layouts)
    }

    fn open(&self, index: u32, settings: &[(String, String)]) -> Result<TernaryDevice> {
        Ok(TernaryDevice { inner: self.inner.open(index, settings)? })
    }
}

/// An opened device.
pub struct TernaryDevice {
    inner: ReferenceDevice,
}

/// The values of a ternary weight as canonical bytes of f32.
fn float_bytes(name: &str, shape: &Shape, source: &[u8]) -> Result<Vec<u8>> {
    let mut values = vec![0.0; source.len() / BYTES * ELEMENTS];
    if shape.elements() != Some(values.len() as u64) {
        return Err(Error::invalid(format!("weight `{name}`: {} bytes do not fit {shape}", source.len())));
    }
    TernaryFormat::dequantize(TERNARY, source, &mut values)
        .map_err(|error| Error::invalid(format!("weight `{name}`: {error}")))?;
    Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

impl Device for TernaryDevice {
    type Arena = ReferenceArena;
    type Plan = ReferencePlan;
    type Executable = ReferenceExecutable;
    type Semaphore = ReferenceSemaphore;

    fn memory(&self) -> Result<MemoryInfo> {
        self.inner.memory()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<ReferenceArena> {
        self.inner.create_arena(class, bytes)
    }

    fn import_weights(
        &self,
        imports: &[WeightImport<'_, ReferenceArena>],
        signal: Point<'_, ReferenceSemaphore>,
    ) -> Result<()> {
        let read = |import: &WeightImport<'_, ReferenceArena>| match import.weight.dtype {
            TERNARY => float_bytes(&import.weight.name, &import.weight.shape, import.source),
            _ => Ok(import.source.to_vec()),
        };
        let sources = imports.iter().map(read).collect::<Result<Vec<_>>>()?;
        let imports: Vec<_> = imports
            .iter()
            .zip(&sources)
            .map(|(import, source)| {
                let weight = in_floats(&import.weight)?;
                Ok(WeightImport { weight, layout: import.layout, target: import.target, source })
            })
            .collect::<Result<_>>()?;
        self.inner.import_weights(&imports, signal)
    }

    fn load(&self, plan: &ReferencePlan, load: &Load<'_, ReferenceArena>) -> Result<ReferenceExecutable> {
        self.inner.load(plan, load)
    }

    fn create_semaphore(&self, initial: u64) -> Result<ReferenceSemaphore> {
        self.inner.create_semaphore(initial)
    }
}
