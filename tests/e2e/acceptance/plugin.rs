//! A drafter that draws from a distribution of its own, which it tells: `roughly-right`.

use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{PluginInfo, Result, drafter_plugin};
use paceline_tests::test_strategy;
use std::collections::HashMap;
use std::sync::Mutex;

const INFO: PluginInfo = test_strategy!("roughly-right");

/// The tokens that can follow a text.
pub static LIKELY: Mutex<Option<HashMap<Vec<u32>, Vec<u32>>>> = Mutex::new(None);

/// Probability of each of the likely tokens, and of one that is never right.
pub const WEIGHTS: [f32; 4] = [0.15, 0.3, 0.45, 0.1];

pub struct RoughlyRight;

pub struct Drawing {
    texts: Vec<Vec<u32>>,
    random: u64,
}

impl DrafterPlugin for RoughlyRight {
    type Drafter = Drawing;

    fn create(&self, facts: &Facts, _: &[(String, String)], _: &mut dyn Session) -> Result<Drawing> {
        Ok(Drawing { texts: vec![Vec::new(); facts.context.sequences as usize], random: 77 })
    }
}

impl Drawing {
    /// A number in \[0, 1), which the host's draws know nothing of.
    fn uniform(&mut self) -> f32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) as f32 / (1u32 << 24) as f32
    }
}

impl Drafter for Drawing {
    fn info(&self) -> DrafterInfo {
        DrafterInfo { most: 2, kind: draft_kind::DISTRIBUTION, cost: draft_cost::DEVICE, fixed: true }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.texts[sequence as usize].clear();
        Ok(())
    }

    fn observe(&mut self, _: &mut dyn Session, sequence: u32, _: u32, tokens: &[u32]) -> Result<()> {
        self.texts[sequence as usize].extend_from_slice(tokens);
        Ok(())
    }

    fn propose(&mut self, _: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let mut text = self.texts[request.sequence as usize].clone();
        text.push(request.anchor);
        for _ in 0..request.most {
            let likely =
                LIKELY.lock().expect("no test failed").as_ref().and_then(|all| all.get(&text).cloned());
            let Some(mut tokens) = likely else { break };
            tokens.push((0..).find(|token| !tokens.contains(token)).unwrap_or(0));
            let mut wanted = self.uniform();
            let drawn = WEIGHTS.iter().position(|weight| {
                wanted -= weight;
                wanted < 0.0
            });
            let drawn = drawn.unwrap_or(0);
            if let Some(distribution) = draft.distribution() {
                distribution.fill(0.0);
                tokens.iter().zip(WEIGHTS).for_each(|(&token, weight)| distribution[token as usize] = weight);
            }
            draft.push(tokens[drawn], WEIGHTS[drawn]);
            text.push(tokens[drawn]);
        }
        Ok(())
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.texts[sequence as usize].truncate(length as usize);
        Ok(())
    }
}

drafter_plugin!(INFO, RoughlyRight, RoughlyRight);
