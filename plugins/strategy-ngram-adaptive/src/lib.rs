//! Drafts from the text itself: the tokens that followed the last time that the text ended like this.
//!
//! Every kept token is indexed, the newest included; an index that is cut back is what it was at that length. The
//! length of drafts doubles after one that was accepted whole and was as long as allowed, and halves after a
//! rejection: a copy ends where the model stops, but its source goes on.

mod index;

use index::Index;
use paceline_plugin_api::settings::{Setting, SettingType, Settings, Stage};
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{Error, PluginInfo, Result, abi, drafter_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "ngram-adaptive",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::STRATEGY,
    descriptor: DESCRIPTOR,
};

const fn tokens(key: &'static str, default: i64, min: i64, max: i64, doc: &'static str) -> Setting {
    let kind = SettingType::Integer { default, min, max };
    Setting { key, kind, stage: Stage::Context, unit: "tokens", doc }
}

/// What a user may set; the descriptor says the same.
pub const SETTINGS: &[Setting] = &[
    tokens("match", 4, 1, 64, "Tokens that must have occurred before."),
    tokens("start", 64, 0, 1024, "Length of the first draft; 0 keeps every draft at the most."),
    tokens("floor", 1, 1, 1024, "Shortest length that rejections lead to."),
    tokens("most", 256, 1, 1024, "Longest draft."),
];

/// The plugin.
pub struct NgramAdaptive;

/// The drafter of one context.
pub struct Ngram {
    sequences: Vec<Text>,
    start: u32,
    floor: u32,
    most: u32,
}

/// What is kept of one sequence.
struct Text {
    index: Index,
    /// Length that the next draft may have.
    allowed: u32,
}

impl DrafterPlugin for NgramAdaptive {
    type Drafter = Ngram;

    fn create(&self, facts: &Facts, settings: &[(String, String)], _: &mut dyn Session) -> Result<Ngram> {
        let settings = Settings::read(SETTINGS, settings)?;
        let number = |key: &str| settings.integer(key) as u32;
        let (matched, most) = (number("match"), number("most"));
        let floor = number("floor").min(most);
        let start = match number("start") {
            0 => 0,
            start => start.clamp(floor, most),
        };
        let positions = facts.context.positions as usize;
        let text = || Text { index: Index::new(matched as usize, positions), allowed: first(start, most) };
        Ok(Ngram { sequences: (0..facts.context.sequences).map(|_| text()).collect(), start, floor, most })
    }
}

/// Length of the first draft.
fn first(start: u32, most: u32) -> u32 {
    if start == 0 { most } else { start }
}

impl Ngram {
    fn text(&mut self, sequence: u32) -> Result<&mut Text> {
        self.sequences
            .get_mut(sequence as usize)
            .ok_or_else(|| Error::invalid(format!("there is no sequence {sequence}")))
    }
}

impl Drafter for Ngram {
    fn info(&self) -> DrafterInfo {
        DrafterInfo {
            most: self.most,
            kind: draft_kind::POINT,
            cost: draft_cost::FREE,
            fixed: self.start == 0,
        }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        let allowed = first(self.start, self.most);
        let text = self.text(sequence)?;
        text.index.truncate(0);
        text.allowed = allowed;
        Ok(())
    }

    fn observe(&mut self, _: &mut dyn Session, sequence: u32, position: u32, tokens: &[u32]) -> Result<()> {
        let index = &mut self.text(sequence)?.index;
        index.truncate(position as usize);
        tokens.iter().for_each(|&token| index.push(token));
        Ok(())
    }

    fn propose(&mut self, _: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let text = self.text(request.sequence)?;
        let most = request.most.min(text.allowed);
        text.index.continuation(request.anchor, most as usize, &mut |token| draft.push(token, f32::NAN));
        Ok(())
    }

    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        let (start, floor, most) = (self.start, self.floor, self.most);
        let text = self.text(outcome.sequence)?;
        if start == 0 || outcome.verified == 0 {
            return Ok(());
        }
        if outcome.accepted < outcome.verified {
            text.allowed = (text.allowed / 2).max(floor);
        } else if outcome.accepted == outcome.drafted && outcome.drafted >= text.allowed {
            text.allowed = (text.allowed * 2).min(most);
        }
        Ok(())
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.text(sequence)?.index.truncate(length as usize);
        Ok(())
    }

    fn save(&self, sequence: u32) -> Result<Option<Vec<u8>>> {
        let text = self.sequences.get(sequence as usize);
        Ok(text.map(|text| text.allowed.to_le_bytes().to_vec()))
    }

    fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> Result<()> {
        let (most, first) = (self.most, first(self.start, self.most));
        let allowed = match saved {
            [] => first,
            saved => saved
                .try_into()
                .map(u32::from_le_bytes)
                .map_err(|_| Error::invalid("what was saved of the sequence is not this drafter's"))?,
        };
        let text = self.text(sequence)?;
        text.allowed = allowed.clamp(1, most);
        text.index.truncate(0);
        tokens.iter().for_each(|&token| text.index.push(token));
        Ok(())
    }

    fn explain(&self) -> String {
        let lengths: Vec<String> = self.sequences.iter().map(|text| text.allowed.to_string()).collect();
        format!("drafts may now have {} tokens", lengths.join(", "))
    }
}

drafter_plugin!(INFO, NgramAdaptive, NgramAdaptive);

#[cfg(test)]
mod tests;
