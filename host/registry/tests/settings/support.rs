//! Plugins, placements and files to resolve settings with.

use std::collections::BTreeSet;

use paceline_registry::Descriptor;
use paceline_registry::semver::Version;
use paceline_registry::settings::{
    ConfigFile, ContextFacts, DeviceKind, Faults, Given, Layer, LayerKind, ModelFacts, Offer, Placement,
    Resolution, Resolver, Schema,
};

/// Descriptors that are part of the tree.
pub const SHIPPED: [&str; 5] = [
    include_str!("../../../../plugins/backend-cpu/descriptor.toml"),
    include_str!("../../../../plugins/strategy-dflash/descriptor.toml"),
    include_str!("../../../../plugins/strategy-gdn-replay/descriptor.toml"),
    include_str!("../../../../plugins/strategy-mtp-chain/descriptor.toml"),
    include_str!("../../../../plugins/strategy-ngram-adaptive/descriptor.toml"),
];

/// The shipped plugins.
pub fn shipped_plugins() -> Vec<Descriptor> {
    SHIPPED.iter().map(|text| Descriptor::parse(text).unwrap()).collect()
}

/// A backend with a switch that a rule of its own turns on wherever it runs layers for one sequence.
pub fn backend(id: &str) -> Descriptor {
    plugin(
        id,
        "backend",
        &format!(
            "[[setting]]\nkey = \"capture\"\ntype = \"bool\"\ndefault = false\nstage = \"context\"\n\
             doc = \"Capture a token once.\"\n\
             [[setting]]\nkey = \"streams\"\ntype = \"integer\"\nrange = [1, 16]\ndefault = 1\nunit = \"streams\"\n\
             stage = \"context\"\ndoc = \"Streams.\"\n\
             [[rule]]\nset = \"{id}.capture\"\nvalue = true\nwhen = {{ sequences = 1 }}\n\
             measured = \"a bench of {id}\"\n"
        ),
    )
}

/// A strategy with a mode that is off unless a file's rule says otherwise.
pub fn strategy(id: &str) -> Descriptor {
    plugin(
        id,
        "strategy",
        "[[setting]]\nkey = \"mode\"\ntype = \"choice\"\noptions = [\"off\", \"on\"]\nstage = \"context\"\n\
         doc = \"Whether it is used.\"\n\
         [[setting]]\nkey = \"share\"\ntype = \"float\"\nrange = [0, 1]\ndefault = 0.5\nstage = \"run\"\n\
         doc = \"Share.\"\n",
    )
}

/// A plugin with these settings and rules.
pub fn plugin(id: &str, kind: &str, rest: &str) -> Descriptor {
    let text = format!(
        "id = \"{id}\"\nkind = \"{kind}\"\nversion = \"1.2.0\"\nabi = {{ oldest = \"1.0\", built = \"1.0\" }}\n{rest}"
    );
    Descriptor::parse(&text).unwrap()
}

/// A device of a backend.
pub fn offer(plugin: &str, index: u32) -> Offer {
    let (arch, kind, memory) = match plugin {
        "cpu" => ("x86_64", DeviceKind::Cpu, 64),
        "rocm" => ("gfx906", DeviceKind::Discrete, 32),
        "sycl" => ("xe2", DeviceKind::Discrete, 16),
        _ => ("sm_90", DeviceKind::Discrete, 80),
    };
    Offer {
        plugin: plugin.to_owned(),
        version: Version::new(0, 1, 0),
        label: format!("{plugin}:{index}"),
        arch: arch.to_owned(),
        kind,
        memory: memory << 30,
        capabilities: ["f16".to_owned()].into(),
    }
}

/// Eight layers, every fourth of which is attention.
pub fn qwen35() -> ModelFacts {
    let kind = |index| if index % 4 == 3 { LayerKind::Attention } else { LayerKind::Recurrent };
    ModelFacts {
        arch: "qwen35".to_owned(),
        layers: (0..8).map(kind).collect(),
        weight_types: ["q8_0".to_owned(), "f32".to_owned()].into(),
        has_mtp: true,
        rollback_kind: Some("gdn-replay".to_owned()),
        ..ModelFacts::default()
    }
}

/// Eight layers of attention.
pub fn llama() -> ModelFacts {
    ModelFacts {
        arch: "llama".to_owned(),
        layers: vec![LayerKind::Attention; 8],
        weight_types: ["q8_0".to_owned()].into(),
        ..ModelFacts::default()
    }
}

/// A model on one device, for one sequence.
pub fn on(model: ModelFacts, offer: &Offer) -> ContextFacts {
    let layers = model.layers.len();
    Placement::new(model).layers(0..layers, offer).context(4096).commit().unwrap()
}

/// The first layers on one device, the others on another.
pub fn over(model: ModelFacts, first: &Offer, second: &Offer) -> ContextFacts {
    let layers = model.layers.len();
    let placement = Placement::new(model).layers(0..layers / 2, first).layers(layers / 2..layers, second);
    placement.stages(2).context(4096).commit().unwrap()
}

/// Plugins, files and values.
#[derive(Clone, Default)]
pub struct World {
    pub plugins: Vec<Descriptor>,
    pub files: Vec<ConfigFile>,
    pub given: Vec<Given>,
}

impl World {
    pub fn new(plugins: impl IntoIterator<Item = Descriptor>) -> Self {
        Self { plugins: plugins.into_iter().collect(), ..Self::default() }
    }

    /// With the plugins and the file that are part of the program.
    pub fn shipped() -> Self {
        let files = vec![ConfigFile::shipped().unwrap()];
        Self { plugins: shipped_plugins(), files, given: Vec::new() }
    }

    /// With a file; `schema = 1` is put in front.
    pub fn file(mut self, layer: Layer, text: &str) -> Self {
        self.files.push(file(layer, text).unwrap());
        self
    }

    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.given.push(Given::set(key, value));
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        let variable = [(name.to_owned(), value.to_owned())];
        self.given.extend(Given::environment(&self.schema(), variable, &[]).unwrap().given);
        self
    }

    pub fn request(mut self, key: &str, value: &str) -> Self {
        self.given.push(Given::request(key, value));
        self
    }

    pub fn schema(&self) -> Schema {
        let mut schema = Schema::host();
        self.plugins.iter().for_each(|plugin| schema.add(plugin).unwrap());
        schema
    }

    pub fn resolver(&self) -> Result<Resolver, Faults> {
        Resolver::new(self.schema(), &self.files, &self.given)
    }

    /// Strategies that a context may use: all.
    pub fn strategies(&self) -> BTreeSet<String> {
        let strategies = self.plugins.iter().filter(|it| it.kind.to_string() == "strategy");
        strategies.map(|it| it.id.clone()).collect()
    }

    pub fn try_resolve(&self, facts: &ContextFacts) -> Result<Resolution, Faults> {
        let resolver = self.resolver()?;
        let before = resolver.before_placement(facts.model())?;
        resolver.on_placement(facts, &self.strategies(), &before)
    }

    pub fn resolve(&self, facts: &ContextFacts) -> Resolution {
        self.try_resolve(facts).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// One value as text; `-` if the setting has no effect.
    pub fn value(&self, facts: &ContextFacts, key: &str) -> String {
        self.resolve(facts).get(key).map_or_else(|| "-".to_owned(), |decided| decided.winner.text())
    }
}

/// Name of the file of a layer.
pub fn name(layer: Layer) -> &'static str {
    match layer {
        Layer::Shipped => "registry.toml",
        Layer::Site => "/etc/paceline/registry.toml",
        Layer::User => "~/.config/paceline/registry.toml",
    }
}

pub fn file(layer: Layer, text: &str) -> Result<ConfigFile, paceline_registry::settings::Fault> {
    ConfigFile::parse(name(layer), &format!("schema = 1\n{text}"), layer)
}

/// A rule of a file.
pub fn rule(set: &str, value: &str, when: &str) -> String {
    format!("[[rule]]\nset = \"{set}\"\nvalue = {value}\nwhen = {{ {when} }}\n")
}

/// JSON for a snapshot, with keys in their order: which order a map keeps depends on what else is built.
pub fn sorted_json(value: &serde_json::Value) -> String {
    fn sorted(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> =
                    map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                serde_json::Value::Object(entries.into_iter().collect())
            }
            serde_json::Value::Array(list) => list.iter().map(sorted).collect(),
            other => other.clone(),
        }
    }
    serde_json::to_string_pretty(&sorted(value)).unwrap()
}
