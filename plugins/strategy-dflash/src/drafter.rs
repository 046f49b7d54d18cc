//! The drafter.

use super::SETTINGS;
use crate::model::DraftModel;
use crate::programs::{GraphBuilder, Programs};
use crate::ring::{Kept, Ring};
use paceline_plugin_api::graph::step::Tap;
use paceline_plugin_api::settings::Settings;
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, GroupRows, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{Error, Result};

/// Rows that may wait for the next draft; more enter the ring at once.
const MOST_WAITING: u32 = Programs::most_head_rows();
/// As [`MOST_WAITING`], while rows come one by one and nothing is drafted: many together enter in less time.
const MOST_WAITING_IDLE: u32 = 48;
/// Longest draft.
const MOST_STEPS: usize = 15;
/// How far a drafter looks back that nobody set, at most.
const DEFAULT_VISIBLE: u32 = 2048;
/// Settings of engines that draft trees.
const TREE_SETTINGS: [&str; 3] = ["tree", "branch_budget", "tree_budget"];

/// The plugin.
pub struct Dflash;

/// The drafter of one context.
pub struct Block {
    programs: Programs,
    ring: Ring,
    /// Longest draft.
    most: u32,
    /// Length of drafts that a user wanted; 0 for any.
    depth: u32,
    /// Longest block of the drafter.
    block: u32,
    mask: u32,
    /// Positions of the context.
    positions: u32,
    own_head: bool,
    sequences: Vec<Kept>,
    /// Drafts that were dropped as logits were not numbers.
    not_finite: u64,
    /// Launches that only let rows enter the ring, and their rows.
    fills: u64,
    filled_rows: u64,
}

impl DrafterPlugin for Dflash {
    type Drafter = Block;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Block> {
        if let Some((key, _)) = settings.iter().find(|(key, _)| TREE_SETTINGS.contains(&key.as_str())) {
            return Err(Error::unsupported(format!(
                "draft trees are not supported yet: leave out setting `{key}`"
            )));
        }
        let settings = Settings::read(SETTINGS, settings)?;
        let (depth, context) = (settings.integer("depth") as u32, settings.integer("context") as u32);
        let model = DraftModel::read(facts, session)?;
        let most = longest(depth, model.block, facts.context.rollback_depth);
        if most == 0 {
            return Err(Error::unsupported("the context takes back no rows, so no draft can be verified"));
        }
        let ring = Ring::new(model.visible(visible(context, model.trained)), &facts.context);
        for &layer in &model.target_layers {
            session.declare_tap(Tap::LayerInput(layer))?;
        }
        session.declare_ring(ring.blocks)?;
        let graphs =
            GraphBuilder { facts, model: &model, ring, block: most + 1, draw: settings.bool("draw") };
        let programs = Programs::declare(&graphs, session)?;
        Ok(Block {
            programs,
            ring,
            most,
            depth,
            block: model.block,
            mask: model.mask,
            positions: facts.context.positions,
            own_head: model.own_head().is_some(),
            sequences: (0..facts.context.sequences).map(|_| Kept::default()).collect(),
            not_finite: 0,
            fills: 0,
            filled_rows: 0,
        })
    }
}

/// Longest draft: what was asked for, as far as block and context allow it.
pub(crate) fn longest(depth: u32, block: u32, rollback_depth: u32) -> u32 {
    let wanted = if depth == 0 { MOST_STEPS as u32 } else { depth };
    wanted.min(block.saturating_sub(1)).min(rollback_depth).min(MOST_STEPS as u32)
}

/// Positions that the drafter may look back on.
pub(crate) fn visible(wanted: u32, trained: u32) -> u32 {
    match (wanted, trained) {
        (0, 0) => DEFAULT_VISIBLE,
        (0, trained) => DEFAULT_VISIBLE.min(trained),
        (wanted, _) => wanted,
    }
}

impl Block {
    fn kept(&mut self, sequence: u32) -> Result<&mut Kept> {
        self.sequences
            .get_mut(sequence as usize)
            .ok_or_else(|| Error::invalid(format!("there is no sequence {sequence}")))
    }

    /// Lets all waiting rows but the last enter the ring: a draft has at least a row at its head.
    fn fill(&mut self, session: &mut dyn Session, sequence: u32) -> Result<()> {
        let Some(kept) = self.sequences.get_mut(sequence as usize) else { return Ok(()) };
        kept.skip_overwritten(self.ring);
        while kept.waiting > 1
            && let Some((most, program)) = self.programs.fill(kept.waiting - 1)
        {
            let count = (kept.waiting - 1).min(most);
            session.run(program, sequence, &[GroupRows { position: kept.filled, count, tokens: None }])?;
            kept.enter(count, self.ring);
            self.fills += 1;
            self.filled_rows += u64::from(count);
        }
        Ok(())
    }
}

impl Drafter for Block {
    fn info(&self) -> DrafterInfo {
        DrafterInfo {
            most: self.most,
            kind: draft_kind::POINT,
            cost: draft_cost::DEVICE,
            fixed: self.depth > 0,
        }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        *self.kept(sequence)? = Kept::default();
        Ok(())
    }

    fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()> {
        let kept = self.kept(sequence)?;
        kept.keep(position, tokens.len() as u32)?;
        let most = if tokens.len() == 1 { MOST_WAITING_IDLE } else { MOST_WAITING };
        if kept.waiting > most { self.fill(session, sequence) } else { Ok(()) }
    }

    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let Request { sequence, frontier, anchor, most } = request;
        let (ring, mask) = (self.ring, self.mask);
        let room = self.positions.saturating_sub(frontier.saturating_add(1));
        let steps = most.min(self.most).min(room) as usize;
        let kept = self.kept(sequence)?;
        if steps == 0 || !kept.is_ready(frontier, ring) {
            return Ok(());
        }
        if kept.waiting > MOST_WAITING {
            self.fill(session, sequence)?;
        }
        let kept = self.kept(sequence)?;
        let (position, count) = (kept.filled, kept.waiting);
        let Some(program) = self.programs.draft(count) else { return Ok(()) };
        let mut ids = [mask; MOST_STEPS + 1];
        ids[0] = anchor;
        let groups =
            [GroupRows { position, count, tokens: None }, GroupRows::tokens(frontier, &ids[..=steps])];
        let results = session.run(program, sequence, &groups)?;
        match self.programs.tokens(results, steps) {
            Some(tokens) => tokens.for_each(|token| draft.push(token, f32::NAN)),
            None => self.not_finite += 1,
        }
        let kept = self.kept(sequence)?;
        kept.enter(count, ring);
        kept.written(frontier + 1 + steps as u32, ring);
        Ok(())
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.kept(sequence)?.truncate(length);
        Ok(())
    }

    fn save(&self, sequence: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.sequences.get(sequence as usize).map(|kept| kept.save(self.ring)))
    }

    fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> Result<()> {
        let (ring, length) = (self.ring, tokens.len() as u32);
        let kept = self.kept(sequence)?;
        *kept = Kept::unseen(length);
        if !saved.is_empty() {
            *kept = Kept::restored(saved, length, ring)?;
        }
        Ok(())
    }

    fn explain(&self) -> String {
        let head = if self.own_head { "its own" } else { "the model's" };
        let seen = match self.ring.window {
            0 => "the whole context".to_owned(),
            window => format!("{window} positions"),
        };
        let mut text = format!(
            "one launch a draft, {head} head, drafts of up to {} in blocks of {}, looks back on {seen} in a ring of {}; \
             {} rows entered it in {} launches of their own",
            self.most,
            self.block,
            self.ring.rows(),
            self.filled_rows,
            self.fills
        );
        if self.depth > self.most {
            text.push_str(&format!(
                "; a depth of {} was asked for, {} is the most here",
                self.depth, self.most
            ));
        }
        if self.not_finite > 0 {
            text.push_str(&format!("; {} drafts dropped at logits that were not numbers", self.not_finite));
        }
        text
    }
}
