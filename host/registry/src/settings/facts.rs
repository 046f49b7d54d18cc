//! What is true of one context. Rules can test this and nothing else, so no rule can ask what else the machine has.
//!
//! Facts come from a placement that was committed: which device of which backend runs which layers. Whoever only
//! knows devices cannot make any. Target and drafter have facts of their own.

use std::collections::BTreeSet;
use std::ops::Range;

use semver::Version;

/// What a context is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Decides what is said.
    #[default]
    Target,
    /// Guesses.
    Drafter,
}

/// What a layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerKind {
    /// Keys and values.
    Attention,
    /// A recurrent state.
    Recurrent,
}

/// What is known before anything is placed.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// What the context is for.
    pub role: Role,
    /// Family, such as `qwen35`.
    pub arch: String,
    /// The kind of each layer.
    pub layers: Vec<LayerKind>,
    /// Names of the types that weights have, such as `q8_0`.
    pub weight_types: BTreeSet<String>,
    /// Whether the file has a prediction block.
    pub has_mtp: bool,
    /// Whether the prediction block has a trimmed head.
    pub has_trimmed_head: bool,
    /// Id of the strategy that drafts with a model, or with a block of this one; `None` if none does.
    pub drafter_kind: Option<String>,
    /// Id of the rollback strategy that the context may use; `None` if there is none.
    pub rollback_kind: Option<String>,
}

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

/// A device that a backend offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Id of the backend plugin.
    pub plugin: String,
    /// Its version.
    pub version: Version,
    /// Name for people, such as `cpu:0`, by which this device differs from others of the context. No rule can test it.
    pub label: String,
    /// Architecture, such as `gfx906`.
    pub arch: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Total memory in bytes.
    pub memory: u64,
    /// What it can do, in words.
    pub capabilities: BTreeSet<String>,
}

/// How the devices of a context reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// There is one device, or no way but through the host.
    #[default]
    None,
    /// Through the host's bus.
    Pcie,
    /// Directly.
    Peer,
    /// One memory for all.
    Coherent,
}

/// How a model is spread over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// It is not.
    None,
    /// Whole layers.
    Layer,
    /// Parts of each layer.
    Tensor,
}

/// Where the drafter runs, as seen from the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrafterPlace {
    /// There is none.
    #[default]
    None,
    /// Where the target runs.
    SameDevice,
    /// Elsewhere.
    OtherDevice,
}

/// A placement in the making; [`Placement::commit`] gives the facts.
#[derive(Clone, Debug)]
pub struct Placement {
    facts: ContextFacts,
    layers: Vec<Vec<Offer>>,
    outside: Option<Range<usize>>,
}

/// Why a placement cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementFault {
    /// A layer has no device.
    #[error("layer {0} is placed nowhere")]
    Unplaced(usize),
    /// Layers that the model does not have.
    #[error("layers {} to {} were placed, and the model has {layers}", range.start, range.end.saturating_sub(1))]
    Outside {
        /// What was placed.
        range: Range<usize>,
        /// How many there are.
        layers: usize,
    },
    /// A layer is on several devices, and the model is not split by tensors.
    #[error("layer {0} is placed twice, and the split is not by tensors")]
    Twice(usize),
    /// One name stands for two devices.
    #[error("two devices have the name `{0}`")]
    SameLabel(String),
}

/// What is true of one context. Made by [`Placement::commit`] only.
#[derive(Clone, Debug)]
pub struct ContextFacts {
    pub(super) model: ModelFacts,
    /// Devices, in the order in which layers reach them.
    pub(super) devices: Vec<Offer>,
    /// Indices of the devices of each layer.
    pub(super) layers: Vec<Vec<usize>>,
    pub(super) link: Link,
    pub(super) split: Split,
    pub(super) group_size: u64,
    pub(super) stages: u64,
    pub(super) sequences: u64,
    pub(super) context: u64,
    pub(super) kv_types: [String; 2],
    pub(super) drafter_place: DrafterPlace,
}

impl Placement {
    /// Nothing is placed yet. One sequence, an empty context with `f16` for keys and values.
    pub fn new(model: ModelFacts) -> Self {
        let layers = vec![Vec::new(); model.layers.len()];
        let facts = ContextFacts {
            model,
            devices: Vec::new(),
            layers: Vec::new(),
            link: Link::None,
            split: Split::None,
            group_size: 1,
            stages: 1,
            sequences: 1,
            context: 0,
            kv_types: ["f16".to_owned(), "f16".to_owned()],
            drafter_place: DrafterPlace::None,
        };
        Self { facts, layers, outside: None }
    }

    /// Puts layers on a device. Layers that are split by tensors are put on each device of theirs.
    pub fn layers(mut self, range: Range<usize>, on: &Offer) -> Self {
        match self.layers.get_mut(range.clone()) {
            Some(layers) => layers.iter_mut().for_each(|layer| layer.push(on.clone())),
            None => self.outside = Some(range),
        }
        self
    }

    /// The slowest link between the devices.
    pub fn link(mut self, link: Link) -> Self {
        self.facts.link = link;
        self
    }

    /// Layers are split by tensors, over groups of so many devices.
    pub fn tensor_groups(mut self, group_size: u64) -> Self {
        self.facts.split = Split::Tensor;
        self.facts.group_size = group_size;
        self
    }

    /// Stages of the pipeline.
    pub fn stages(mut self, stages: u64) -> Self {
        self.facts.stages = stages;
        self
    }

    /// Sequences at a time.
    pub fn sequences(mut self, sequences: u64) -> Self {
        self.facts.sequences = sequences;
        self
    }

    /// Positions of a sequence.
    pub fn context(mut self, context: u64) -> Self {
        self.facts.context = context;
        self
    }

    /// Types of keys and of values.
    pub fn kv_types(mut self, keys: &str, values: &str) -> Self {
        self.facts.kv_types = [keys.to_owned(), values.to_owned()];
        self
    }

    /// Where the drafter runs.
    pub fn drafter_place(mut self, place: DrafterPlace) -> Self {
        self.facts.drafter_place = place;
        self
    }

    /// The facts of this placement.
    ///
    /// # Errors
    /// Layers that are nowhere, or twice, or that the model does not have; devices that cannot be told apart.
    pub fn commit(self) -> Result<ContextFacts, PlacementFault> {
        let Self { mut facts, layers, outside } = self;
        if let Some(range) = outside {
            return Err(PlacementFault::Outside { range, layers: layers.len() });
        }
        for (index, offers) in layers.into_iter().enumerate() {
            match offers.len() {
                0 => return Err(PlacementFault::Unplaced(index)),
                1 => {}
                _ if facts.split == Split::Tensor => {}
                _ => return Err(PlacementFault::Twice(index)),
            }
            let mut on = Vec::new();
            for offer in offers {
                on.push(facts.device(offer)?);
            }
            facts.layers.push(on);
        }
        if facts.split == Split::None && facts.devices.len() > 1 {
            facts.split = Split::Layer;
        }
        Ok(facts)
    }
}

impl ContextFacts {
    /// The index of a device, which is new or known.
    fn device(&mut self, offer: Offer) -> Result<usize, PlacementFault> {
        match self.devices.iter().position(|known| known.label == offer.label) {
            Some(index) if self.devices[index] == offer => Ok(index),
            Some(_) => Err(PlacementFault::SameLabel(offer.label)),
            None => {
                self.devices.push(offer);
                Ok(self.devices.len() - 1)
            }
        }
    }

    /// What was known before.
    pub fn model(&self) -> &ModelFacts {
        &self.model
    }

    /// Ids of the backends that run layers, each once.
    pub fn backends(&self) -> BTreeSet<&str> {
        self.devices.iter().map(|device| device.plugin.as_str()).collect()
    }

    /// The devices that run layers of a kind, or any; of one backend, or any.
    pub(super) fn devices_of(&self, kind: Option<LayerKind>, plugin: Option<&str>) -> Vec<&Offer> {
        let used = |index: usize| {
            let layers = self.layers.iter().zip(&self.model.layers);
            layers.clone().any(|(on, of)| kind.is_none_or(|kind| kind == *of) && on.contains(&index))
        };
        let devices = self.devices.iter().enumerate();
        devices
            .filter(|(index, device)| used(*index) && plugin.is_none_or(|plugin| plugin == device.plugin))
            .map(|(_, device)| device)
            .collect()
    }

    /// Layers from first to last with the devices that run them, in order.
    pub(super) fn spans(&self) -> Vec<(Range<usize>, Vec<&Offer>)> {
        let mut spans: Vec<(Range<usize>, &Vec<usize>)> = Vec::new();
        for (index, on) in self.layers.iter().enumerate() {
            match spans.last_mut() {
                Some((range, last)) if *last == on => range.end = index + 1,
                _ => spans.push((index..index + 1, on)),
            }
        }
        let offers = |on: &Vec<usize>| on.iter().map(|&index| &self.devices[index]).collect();
        spans.into_iter().map(|(range, on)| (range, offers(on))).collect()
    }
}
