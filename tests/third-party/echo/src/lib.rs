//! A small drafter: the text goes on as it did after the last time that its last token occurred.

use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{Error, PluginInfo, Result, abi, drafter_plugin, export_plugin};

const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "echo",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::STRATEGY,
    descriptor: DESCRIPTOR,
};

const SETTINGS: &[Setting] = &[Setting {
    key: "length",
    kind: SettingType::Integer { default: 8, min: 1, max: 64 },
    stage: Stage::Context,
    unit: "tokens",
    doc: "Longest draft.",
}];

struct EchoPlugin;

struct Echo {
    texts: Vec<Vec<u32>>,
    length: u32,
}

impl DrafterPlugin for EchoPlugin {
    type Drafter = Echo;

    fn create(&self, facts: &Facts, settings: &[(String, String)], _: &mut dyn Session) -> Result<Echo> {
        let length = Settings::read(SETTINGS, settings)?.integer("length") as u32;
        let text = || Vec::with_capacity(facts.context.positions as usize);
        Ok(Echo { texts: (0..facts.context.sequences).map(|_| text()).collect(), length })
    }
}

impl Echo {
    fn text(&mut self, sequence: u32) -> Result<&mut Vec<u32>> {
        self.texts.get_mut(sequence as usize).ok_or_else(|| Error::invalid("no such sequence"))
    }
}

impl Drafter for Echo {
    fn info(&self) -> DrafterInfo {
        DrafterInfo { most: self.length, kind: draft_kind::POINT, cost: draft_cost::FREE, fixed: false }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.text(sequence)?.clear();
        Ok(())
    }

    fn observe(&mut self, _: &mut dyn Session, sequence: u32, position: u32, tokens: &[u32]) -> Result<()> {
        let text = self.text(sequence)?;
        text.truncate(position as usize);
        text.extend_from_slice(tokens);
        Ok(())
    }

    fn propose(&mut self, _: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let text = self.text(request.sequence)?;
        if let Some(last) = text.iter().rposition(|&token| token == request.anchor) {
            let follows = text[last + 1..].iter().take(request.most as usize);
            follows.for_each(|&token| draft.push(token, f32::NAN));
        }
        Ok(())
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.text(sequence)?.truncate(length as usize);
        Ok(())
    }

    fn explain(&self) -> String {
        format!("drafts of up to {} tokens", self.length)
    }
}

drafter_plugin!(INFO, EchoPlugin, EchoPlugin);
export_plugin!(plugin_entry, DESCRIPTOR);
