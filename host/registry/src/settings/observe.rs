//! The names of facts, and what they are in one context.

use std::collections::BTreeSet;
use std::fmt;

use paceline_plugin_api::settings::Stage;
use semver::Version;

use super::facts::{ContextFacts, DeviceKind, DrafterPlace, LayerKind, Link, ModelFacts, Role, Split};

/// A fact that a rule may test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
    Backend,
    BackendVersion,
    DeviceArch,
    DeviceKind,
    DeviceMemory,
    DeviceCapability,
    Link,
    Role,
    Arch,
    Layers,
    LayerKinds,
    RecurrentLayers,
    Split,
    GroupSize,
    Stages,
    Sequences,
    Context,
    KvTypes,
    WeightTypes,
    DrafterKind,
    DrafterPlace,
    RollbackKind,
    HasMtp,
    HasTrimmedHead,
}

/// What a test of a fact looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One of some words; all that the fact is must be among them.
    Words,
    /// As before, with all words that there are.
    KnownWords(&'static [&'static str]),
    /// Words of which none may be lacking.
    Abilities,
    /// A number or a range.
    Number,
    /// As before, with units of memory.
    Bytes,
    /// True or false.
    Flag,
    /// Versions.
    Version,
}

impl Fact {
    pub(super) const ALL: [Self; 24] = [
        Self::Backend,
        Self::BackendVersion,
        Self::DeviceArch,
        Self::DeviceKind,
        Self::DeviceMemory,
        Self::DeviceCapability,
        Self::Link,
        Self::Role,
        Self::Arch,
        Self::Layers,
        Self::LayerKinds,
        Self::RecurrentLayers,
        Self::Split,
        Self::GroupSize,
        Self::Stages,
        Self::Sequences,
        Self::Context,
        Self::KvTypes,
        Self::WeightTypes,
        Self::DrafterKind,
        Self::DrafterPlace,
        Self::RollbackKind,
        Self::HasMtp,
        Self::HasTrimmedHead,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::BackendVersion => "backend_version",
            Self::DeviceArch => "device.arch",
            Self::DeviceKind => "device.kind",
            Self::DeviceMemory => "device.memory",
            Self::DeviceCapability => "device.capability",
            Self::Link => "link",
            Self::Role => "role",
            Self::Arch => "arch",
            Self::Layers => "layers.count",
            Self::LayerKinds => "layers.kinds",
            Self::RecurrentLayers => "recurrent_layers",
            Self::Split => "split",
            Self::GroupSize => "group_size",
            Self::Stages => "stages",
            Self::Sequences => "sequences",
            Self::Context => "context",
            Self::KvTypes => "kv_types",
            Self::WeightTypes => "weight_types",
            Self::DrafterKind => "drafter.kind",
            Self::DrafterPlace => "drafter.place",
            Self::RollbackKind => "rollback.kind",
            Self::HasMtp => "model.has_mtp",
            Self::HasTrimmedHead => "model.has_trimmed_head",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| fact.name() == name)
    }

    pub(super) fn shape(self) -> Shape {
        match self {
            Self::Backend | Self::DeviceArch | Self::Arch | Self::KvTypes => Shape::Words,
            Self::WeightTypes | Self::DrafterKind | Self::RollbackKind => Shape::Words,
            Self::BackendVersion => Shape::Version,
            Self::DeviceKind => Shape::KnownWords(&["cpu", "discrete", "integrated", "software"]),
            Self::DeviceMemory => Shape::Bytes,
            Self::DeviceCapability => Shape::Abilities,
            Self::Link => Shape::KnownWords(&["none", "pcie", "peer", "coherent"]),
            Self::Role => Shape::KnownWords(&["target", "drafter"]),
            Self::LayerKinds => Shape::KnownWords(&["attention", "recurrent"]),
            Self::RecurrentLayers => Shape::KnownWords(&["none", "all-on-one", "split"]),
            Self::Split => Shape::KnownWords(&["none", "layer", "tensor"]),
            Self::DrafterPlace => Shape::KnownWords(&["none", "same-device", "other-device"]),
            Self::Layers | Self::GroupSize | Self::Stages | Self::Sequences | Self::Context => Shape::Number,
            Self::HasMtp | Self::HasTrimmedHead => Shape::Flag,
        }
    }

    /// The first stage that can see the fact.
    pub(super) fn known_from(self) -> Stage {
        match self {
            Self::Role
            | Self::Arch
            | Self::Layers
            | Self::LayerKinds
            | Self::WeightTypes
            | Self::DrafterKind
            | Self::RollbackKind
            | Self::HasMtp
            | Self::HasTrimmedHead => Stage::Placement,
            _ => Stage::Context,
        }
    }

    /// Whether it is about devices, of which those count that run the layers concerned.
    pub(super) fn is_of_devices(self) -> bool {
        matches!(
            self,
            Self::Backend
                | Self::BackendVersion
                | Self::DeviceArch
                | Self::DeviceKind
                | Self::DeviceMemory
                | Self::DeviceCapability
        )
    }
}

/// The layers that a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Concern {
    /// Only layers of this kind.
    pub kind: Option<LayerKind>,
    /// Only layers on this backend.
    pub plugin: Option<String>,
}

/// What a fact is. Several entries where several devices are concerned.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    Words(BTreeSet<String>),
    Abilities(Vec<BTreeSet<String>>),
    Numbers(BTreeSet<u64>),
    Bytes(BTreeSet<u64>),
    Flag(bool),
    Versions(BTreeSet<Version>),
    /// Layers are not placed yet.
    Unknown,
}

impl Observed {
    /// Whether there is nothing that the fact could be about.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Self::Words(words) => words.is_empty(),
            Self::Abilities(devices) => devices.is_empty(),
            Self::Numbers(numbers) | Self::Bytes(numbers) => numbers.is_empty(),
            Self::Versions(versions) => versions.is_empty(),
            Self::Flag(_) | Self::Unknown => false,
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, words: Vec<String>| match words.split_last() {
            None => f.write_str("nothing"),
            Some((only, [])) => f.write_str(only),
            Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
        };
        match self {
            Self::Words(words) => list(f, words.iter().cloned().collect()),
            Self::Abilities(devices) => match devices.as_slice() {
                [] => f.write_str("nothing"),
                [first, others @ ..] => {
                    // What all of them can do is what counts.
                    let shared = first.iter().filter(|it| others.iter().all(|other| other.contains(*it)));
                    list(f, shared.cloned().collect())
                }
            },
            Self::Numbers(numbers) => list(f, numbers.iter().map(u64::to_string).collect()),
            Self::Bytes(numbers) => list(f, numbers.iter().map(|&bytes| bytes_text(bytes)).collect()),
            Self::Flag(flag) => flag.fmt(f),
            Self::Versions(versions) => list(f, versions.iter().map(Version::to_string).collect()),
            Self::Unknown => f.write_str("not known yet"),
        }
    }
}

/// Bytes in the largest unit that divides them.
pub(super) fn bytes_text(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, size)| bytes != 0 && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

/// What facts can be observed on.
pub(super) trait Observe {
    fn observe(&self, fact: Fact, concern: &Concern) -> Observed;
}

fn word(word: &str) -> Observed {
    Observed::Words([word.to_owned()].into())
}

fn number(number: u64) -> Observed {
    Observed::Numbers([number].into())
}

impl LayerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Recurrent => "recurrent",
        }
    }
}

impl Observe for ModelFacts {
    fn observe(&self, fact: Fact, _: &Concern) -> Observed {
        match fact {
            Fact::Role => word(match self.role {
                Role::Target => "target",
                Role::Drafter => "drafter",
            }),
            Fact::Arch => word(&self.arch),
            Fact::Layers => number(self.layers.len() as u64),
            Fact::LayerKinds => {
                Observed::Words(self.layers.iter().map(|kind| kind.name().to_owned()).collect())
            }
            Fact::WeightTypes => Observed::Words(self.weight_types.clone()),
            Fact::DrafterKind => word(self.drafter_kind.as_deref().unwrap_or("none")),
            Fact::RollbackKind => word(self.rollback_kind.as_deref().unwrap_or("none")),
            Fact::HasMtp => Observed::Flag(self.has_mtp),
            Fact::HasTrimmedHead => Observed::Flag(self.has_trimmed_head),
            _ => Observed::Unknown,
        }
    }
}

impl Observe for ContextFacts {
    fn observe(&self, fact: Fact, concern: &Concern) -> Observed {
        let devices = || self.devices_of(concern.kind, concern.plugin.as_deref()).into_iter();
        match fact {
            Fact::Backend => Observed::Words(devices().map(|device| device.plugin.clone()).collect()),
            Fact::BackendVersion => Observed::Versions(devices().map(|it| it.version.clone()).collect()),
            Fact::DeviceArch => Observed::Words(devices().map(|device| device.arch.clone()).collect()),
            Fact::DeviceKind => {
                Observed::Words(devices().map(|device| kind_name(device.kind).to_owned()).collect())
            }
            Fact::DeviceMemory => Observed::Bytes(devices().map(|device| device.memory).collect()),
            Fact::DeviceCapability => {
                Observed::Abilities(devices().map(|device| device.capabilities.clone()).collect())
            }
            Fact::Link => word(match self.link {
                Link::None => "none",
                Link::Pcie => "pcie",
                Link::Peer => "peer",
                Link::Coherent => "coherent",
            }),
            Fact::RecurrentLayers => {
                let devices = self.devices_of(Some(LayerKind::Recurrent), None);
                let backends: BTreeSet<&str> = devices.iter().map(|device| device.plugin.as_str()).collect();
                word(["none", "all-on-one", "split"][backends.len().min(2)])
            }
            Fact::Split => word(match self.split {
                Split::None => "none",
                Split::Layer => "layer",
                Split::Tensor => "tensor",
            }),
            Fact::GroupSize => number(self.group_size),
            Fact::Stages => number(self.stages),
            Fact::Sequences => number(self.sequences),
            Fact::Context => number(self.context),
            Fact::KvTypes => Observed::Words(self.kv_types.iter().cloned().collect()),
            Fact::DrafterPlace => word(match self.drafter_place {
                DrafterPlace::None => "none",
                DrafterPlace::SameDevice => "same-device",
                DrafterPlace::OtherDevice => "other-device",
            }),
            _ => self.model.observe(fact, concern),
        }
    }
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Software => "software",
    }
}
