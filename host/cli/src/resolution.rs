//! Where settings of a context get their values: the one way for all commands that run or explain a model.

use std::collections::BTreeSet;

use paceline_engine::{LayerKind, Model, ModelShape};
use paceline_gguf::Gguf;
use paceline_plugin_api::backend::{DeviceInfo, DeviceKind};
use paceline_plugin_api::graph::DType;
use paceline_registry::settings::{
    self, ConfigFile, ContextFacts, Decided, DrafterPlace, Fault, Faults, Given, ModelFacts, Offer,
    Placement, Resolution, Resolver, Role, Schema, Value,
};
use paceline_registry::{Candidates, Descriptor, Environment, Plugin, Registry, semver};

use crate::config::{Config, OTHER_VARIABLES};
use crate::exit::Exit;
use crate::failure::Failure;

/// How recurrent state is taken back.
pub const ROLLBACK: &str = "speculation.rollback";
/// Positions of a sequence.
pub const CONTEXT: &str = "context";
/// Context of a model that was trained for more, when none is set.
const DEFAULT_CONTEXT: u32 = 8192;

/// All that sets settings, but for the command line.
pub struct Sources {
    /// All settings that there are.
    pub schema: Schema,
    files: Vec<ConfigFile>,
    environment: Vec<Given>,
    notes: Vec<String>,
}

/// A context that is placed, and its settings.
#[derive(Clone)]
pub struct Resolved {
    /// What is true of the context.
    pub facts: ContextFacts,
    /// The settings, but for those of a drafter that has facts of its own.
    pub resolution: Resolution,
    /// What there is of a drafter with a model of its own.
    pub drafter: Option<ResolvedDrafter>,
    /// What has no effect although nothing is wrong with it.
    pub notes: Vec<String>,
}

/// A drafter with a model of its own: it is placed, and its settings are found, by what is true of that.
#[derive(Clone)]
pub struct ResolvedDrafter {
    /// What is true of the drafter's model.
    pub facts: ContextFacts,
    /// The strategy's own settings.
    pub resolution: Resolution,
}

/// A model, and the strategies that may guess for it.
pub struct Subject<'a> {
    /// The model.
    pub model: ModelFacts,
    /// Positions that it was trained for.
    pub trained: u32,
    /// The strategies.
    pub strategies: &'a BTreeSet<String>,
    /// The strategy that has a model of its own, and that one.
    pub drafter: Option<(String, ModelFacts)>,
}

impl Sources {
    /// The files, the environment, and the settings of all plugins that there are.
    pub fn new(config: &Config, registry: &Registry, candidates: &Candidates) -> Result<Self, Faults> {
        let schema = schema(registry, candidates)?;
        let environment = Given::environment(&schema, Environment::variables_of_process(), &OTHER_VARIABLES)?;
        Ok(Self {
            schema,
            files: config.files.clone(),
            environment: environment.given,
            notes: environment.notes,
        })
    }

    /// Checks everything together with what the command line gives.
    pub fn resolver(&self, given: &[Given]) -> Result<Resolver, Faults> {
        Resolver::new(self.schema.clone(), &self.files, &[&self.environment, given].concat())
    }

    /// Places all layers on one device, those of a drafter's model too, and finds the settings.
    pub fn resolve(
        &self,
        given: &[Given],
        subject: Subject<'_>,
        device: &Offer,
    ) -> Result<Resolved, Failure> {
        let resolver = self.resolver(given)?;
        let Subject { model, trained, strategies, drafter } = subject;
        let place = |model: ModelFacts| -> Result<(ContextFacts, Resolution), Failure> {
            let before = resolver.before_placement(&model)?;
            let place = match model.drafter_kind {
                Some(_) => DrafterPlace::SameDevice,
                None => DrafterPlace::None,
            };
            let (layers, [keys, values]) = (model.layers.len(), kv_types(&before).map(|it| it.to_string()));
            let placement = Placement::new(model)
                .layers(0..layers, device)
                .sequences(number(&before, "sequences").unwrap_or(1).into())
                .context(number(&before, CONTEXT).unwrap_or(trained.min(DEFAULT_CONTEXT)).into())
                .kv_types(&keys, &values)
                .drafter_place(place);
            let facts = placement.commit().map_err(|fault| {
                Failure::new(Exit::Failed, "the layers cannot be placed").caused_by(&fault)
            })?;
            let resolution = resolver.on_placement(&facts, strategies, &before)?;
            Ok((facts, resolution))
        };
        let (facts, mut resolution) = place(model)?;
        let drafter = match drafter {
            None => None,
            Some((plugin, model)) => {
                let (facts, mut own) = place(model)?;
                resolution.leave_to(&plugin);
                own.keep_only(&plugin);
                Some(ResolvedDrafter { facts, resolution: own })
            }
        };
        Ok(Resolved { facts, resolution, drafter, notes: self.notes(&resolver) })
    }

    /// What has no effect although nothing is wrong with it, a sentence each.
    pub fn notes(&self, resolver: &Resolver) -> Vec<String> {
        // Those about the shipped file are about builds without some plugins, which nobody asked for.
        let of_files = resolver.notes().iter().filter(|note| !note.starts_with("registry.toml:"));
        self.notes.iter().chain(of_files).cloned().collect()
    }
}

impl Resolved {
    /// What is to be told in any case: what was asked for in vain.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let overridden = self.resolutions().flat_map(Resolution::overridden);
        overridden.map(|it| it.to_string()).chain(self.notes.iter().cloned())
    }

    fn resolutions(&self) -> impl Iterator<Item = &Resolution> {
        self.drafter.iter().map(|drafter| &drafter.resolution).chain([&self.resolution])
    }

    /// What a plugin gets.
    pub fn settings_of(&self, plugin: &str) -> Vec<(String, String)> {
        self.resolutions().flat_map(|resolution| resolution.settings_of(plugin)).collect()
    }

    /// A plugin's settings whose values only rules say, and that have others.
    pub fn set_by_rules(&self, plugin: &str) -> Vec<&Decided> {
        let of_plugin = self.resolutions().flat_map(Resolution::settings);
        of_plugin.filter(|it| it.owner.plugin() == Some(plugin) && it.can_be_refused()).collect()
    }

    /// Says that the value of a setting cannot be had, so that the next one counts.
    pub fn refuse(&mut self, key: &str, because: &str) -> Result<(), Fault> {
        let own = self.drafter.as_mut().map(|drafter| &mut drafter.resolution);
        match own.filter(|resolution| resolution.get(key).is_some()) {
            Some(resolution) => resolution.refuse(key, because),
            None => self.resolution.refuse(key, because),
        }
    }

    /// Whether somebody asked for exactly the value that a setting has.
    pub fn is_explicit(&self, key: &str) -> bool {
        self.resolution.get(key).is_some_and(|decided| decided.winner.source.is_explicit())
    }

    /// A word, or nothing where the setting has no effect.
    pub fn word(&self, key: &str) -> &str {
        match self.resolution.value(key) {
            Some(Value::Text(word)) => word,
            _ => "",
        }
    }

    /// A switch; on where the setting has no effect.
    pub fn switch(&self, key: &str) -> bool {
        self.resolution.value(key) != Some(&Value::Bool(false))
    }

    /// A number that is set.
    pub fn number(&self, key: &str) -> Option<u32> {
        number(&self.resolution, key)
    }

    /// Types of cached keys and values.
    pub fn kv_types(&self) -> [DType; 2] {
        kv_types(&self.resolution)
    }
}

fn number(resolution: &Resolution, key: &str) -> Option<u32> {
    match resolution.value(key) {
        Some(&Value::Integer(number)) => number.try_into().ok(),
        _ => None,
    }
}

fn kv_types(resolution: &Resolution) -> [DType; 2] {
    let text = resolution.value("kv_types").map(ToString::to_string).unwrap_or_default();
    let (keys, values) = text.split_once('/').unwrap_or((&text, &text));
    [keys, values].map(|name| DType::from_name(name).unwrap_or(DType::F16))
}

/// The settings of the host, and of each plugin by the descriptor that is used: that of the loaded plugin, else that of
/// the file that would be loaded, else that of the built-in one.
pub fn schema(registry: &Registry, candidates: &Candidates) -> Result<Schema, Fault> {
    let built_in = Registry::new().ok();
    let built_in: Vec<&Plugin> = built_in.iter().flat_map(Registry::plugins).collect();
    let found = candidates.list().iter().filter_map(|candidate| candidate.id().map(str::to_owned));
    let known = registry.plugins().iter().chain(built_in.iter().copied()).map(Plugin::id);
    let ids: BTreeSet<String> = found.chain(known).collect();
    let mut schema = Schema::host();
    for id in &ids {
        if let Some(descriptor) = descriptor(id, registry, candidates, &built_in) {
            schema.add(descriptor)?;
        }
    }
    Ok(schema)
}

fn descriptor<'a>(
    id: &str,
    registry: &'a Registry,
    candidates: &'a Candidates,
    built_in: &[&'a Plugin],
) -> Option<&'a Descriptor> {
    let loaded = registry.find(id).ok();
    if let Some(plugin) = loaded.filter(|plugin| plugin.origin.path().is_some()) {
        return plugin.descriptor();
    }
    let built_in = built_in.iter().find(|plugin| plugin.id() == id);
    let chosen = candidates
        .choice(id)
        .ok()
        .flatten()
        .filter(|file| built_in.is_none_or(|plugin| file.wins_over(&plugin.client.version())));
    // What is refused or switched off has settings too; that they have no effect is said by name.
    let any = || candidates.list().iter().find(|candidate| candidate.id() == Some(id));
    let of_file = match (chosen, built_in) {
        (Some(file), _) => Some(file),
        (None, Some(_)) => None,
        (None, None) => any(),
    };
    of_file.and_then(|file| file.descriptor.as_ref()).or_else(|| built_in.and_then(|it| it.descriptor()))
}

/// Layers of a drafter that are believed to be there: a file may say anything.
const MOST_DRAFTER_LAYERS: u32 = 1024;

/// What is known of a drafter's own model before it is placed. Whether the strategy can work with it, that says itself.
pub fn drafter_facts(gguf: &Gguf, drafter: &str) -> ModelFacts {
    let arch = gguf.get_str("general.architecture").ok().flatten().unwrap_or_default().to_owned();
    let layers = gguf.get_u32(&format!("{arch}.block_count")).ok().flatten().unwrap_or(0);
    let types = gguf.tensors().map(|tensor| tensor.tensor_type.to_string().to_ascii_lowercase());
    ModelFacts {
        role: Role::Drafter,
        layers: vec![settings::LayerKind::Attention; layers.min(MOST_DRAFTER_LAYERS) as usize],
        weight_types: types.collect(),
        drafter_kind: Some(drafter.to_owned()),
        arch,
        ..ModelFacts::default()
    }
}

/// What is known of a model before it is placed. `drafter` is the strategy that drafts with a model or a block, and `rollback`
/// the one that takes recurrent state back.
pub fn model_facts(model: &Model, drafter: Option<&str>, rollback: Option<&str>) -> ModelFacts {
    let ModelShape { architecture, layers, has_nextn, .. } = model.shape();
    let kinds = layers.iter().map(|kind| match kind {
        LayerKind::Attention => settings::LayerKind::Attention,
        LayerKind::Recurrent => settings::LayerKind::Recurrent,
    });
    // A smaller head over the most used tokens, as `tools trim-head` writes it.
    let is_trimmed_head = |name: &str| name.ends_with(".nextn.draft_head.weight");
    let types = model.gguf().tensors().map(|tensor| tensor.tensor_type.to_string().to_ascii_lowercase());
    ModelFacts {
        arch: architecture.clone(),
        layers: kinds.collect(),
        weight_types: types.collect(),
        has_mtp: *has_nextn,
        has_trimmed_head: model.gguf().tensors().any(|tensor| is_trimmed_head(tensor.name)),
        drafter_kind: drafter.map(str::to_owned),
        rollback_kind: rollback.map(str::to_owned),
        ..ModelFacts::default()
    }
}

/// A device of a backend, as rules see it.
pub fn offer(plugin: &str, version: &str, index: u32, info: &DeviceInfo) -> Result<Offer, Failure> {
    let version: semver::Version = version.parse().map_err(|error| {
        Failure::new(Exit::Plugin, format!("plugin `{plugin}` has no version: `{version}`")).caused_by(&error)
    })?;
    // Words after the architecture say what the device can do.
    let mut words = info.arch.split_whitespace();
    let arch = words.next().unwrap_or_default().to_owned();
    let capabilities = words.chain(info.capabilities.split_whitespace()).map(str::to_owned).collect();
    Ok(Offer {
        plugin: plugin.to_owned(),
        version,
        label: format!("{plugin}:{index}"),
        arch,
        kind: match info.kind {
            DeviceKind::Cpu => settings::DeviceKind::Cpu,
            DeviceKind::Discrete => settings::DeviceKind::Discrete,
            DeviceKind::Integrated => settings::DeviceKind::Integrated,
            DeviceKind::Software => settings::DeviceKind::Software,
        },
        memory: info.memory_total,
        capabilities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_the_architecture_are_abilities() {
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            units: 2,
            name: "a processor".to_owned(),
            physical_id: "cpu".to_owned(),
            arch: "x86_64 avx512-vnni".to_owned(),
            capabilities: "level:3".to_owned(),
            memory_total: 1 << 30,
        };
        let offer = offer("cpu", "0.1.0", 0, &info).unwrap();
        assert_eq!((offer.label.as_str(), offer.arch.as_str()), ("cpu:0", "x86_64"));
        assert_eq!(offer.capabilities.into_iter().collect::<Vec<_>>(), ["avx512-vnni", "level:3"]);
        assert!(super::offer("cpu", "new", 0, &info).is_err());
    }

    #[cfg(feature = "demo-model")]
    #[test]
    fn facts_of_the_demo() {
        use std::sync::Arc;

        use crate::model_source::ModelSource;

        let model = Model::new(Arc::new(ModelSource::Demo.open().unwrap())).unwrap();
        let facts = model_facts(&model, None, None);
        assert_eq!((facts.arch.as_str(), facts.layers.len()), ("qwen35", 8));
        assert!(facts.has_mtp && !facts.has_trimmed_head);
        assert!(facts.weight_types.contains("q8_0"), "{:?}", facts.weight_types);
    }
}
