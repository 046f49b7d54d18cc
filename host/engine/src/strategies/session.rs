//! The session while a strategy runs.

use super::facts::ModelFacts;
use crate::context::Context;
use crate::sampling::Draws;
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::graph::step::Tap;
use paceline_plugin_api::strategy::{GroupRows, ProgramId, Session, Source, TensorFacts};
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::ops::Range;

/// Lets a strategy run its programs on the context.
pub(crate) struct RunSession<'a> {
    pub context: &'a mut Context,
    pub draft: Option<&'a Gguf>,
    /// The strategy's programs, as numbers over all strategies.
    pub programs: Range<usize>,
    /// What the sequence's tokens are drawn with, while something is guessed.
    pub draws: Option<Draws>,
}

impl RunSession<'_> {
    fn facts(&self) -> ModelFacts<'_> {
        ModelFacts { model: &self.context.model, draft: self.draft }
    }
}

fn too_late() -> Error {
    Error::new(ErrorKind::Invalid, "needs can only be declared while a strategy is made")
}

impl Session for RunSession<'_> {
    fn integer_at(&self, source: Source, key: &str, index: u32) -> Option<i64> {
        self.facts().integer_at(source, key, index)
    }

    fn number(&self, source: Source, key: &str) -> Option<f64> {
        self.facts().number(source, key)
    }

    fn text(&self, source: Source, key: &str) -> Option<String> {
        self.facts().text(source, key)
    }

    fn tensor(&self, source: Source, name: &str) -> Option<TensorFacts> {
        self.facts().tensor(source, name)
    }

    fn has_fragment(&self, name: &str) -> bool {
        self.facts().has_fragment(name)
    }

    fn declare_tap(&mut self, _: Tap) -> Result<()> {
        Err(too_late())
    }

    fn declare_ring(&mut self, _: u32) -> Result<()> {
        Err(too_late())
    }

    fn declare_program(&mut self, _: &str, _: &Graph) -> Result<ProgramId> {
        Err(too_late())
    }

    fn run(&mut self, program: ProgramId, sequence: u32, groups: &[GroupRows<'_>]) -> Result<&[u8]> {
        let number = self.programs.start.saturating_add(program.0 as usize);
        if number >= self.programs.end {
            return Err(Error::invalid(format!("the strategy has no program {}", program.0)));
        }
        self.context.run_strategy(number, sequence, groups, self.draws)
    }
}
