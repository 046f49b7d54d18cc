//! Going on after a device failed.
//!
//! What an engine's sequences hold is lost with its device, and their tokens are not. Whoever has an engine that failed
//! takes [`Engine::texts`], drops the engine, makes another one, on the same device opened anew or on another backend, and
//! has it [`Engine::resume`] them: the tokens are processed again, and sequences keep their ids. Sampling depends on the
//! seed and the position alone, so a text goes on as if nothing had happened, up to the rounding of another backend.

use crate::engine::{Engine, Rows, SequenceId};
use crate::error::{EngineError, Result};
use crate::programs::Want;
use crate::strategies::PluginPanic;
use paceline_plugin_api::ErrorKind;
use std::ops::Range;

/// What the sequences of an engine hold, as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// By sequence; `None` for those that are not in use.
    sequences: Vec<Option<Text>>,
}

/// What one sequence holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub tokens: Vec<u32>,
    /// Positions that were processed by runs of many rows, in order.
    pub wide: Vec<Range<u32>>,
}

impl Text {
    /// The runs by which an engine gets what the text's own one held: as wide as then where that was wide, so that rows have
    /// the same bits, with at most `most` rows, or `most_equal` where it was not.
    fn runs(&self, most: usize, most_equal: usize) -> impl Iterator<Item = &[u32]> {
        let mut position = 0;
        std::iter::from_fn(move || {
            let wide = self.wide.iter().find(|run| run.end as usize > position);
            let (end, most) = match wide.map(|run| (run.start as usize, run.end as usize)) {
                Some((start, end)) if start <= position => (end, most),
                Some((start, _)) => (start, most_equal),
                None => (self.tokens.len(), most_equal),
            };
            let run = self.tokens.get(position..end.min(position + most.max(1)))?;
            position += run.len();
            (!run.is_empty()).then_some(run)
        })
    }
}

impl Texts {
    /// The tokens of one sequence; `None` if it is not in use.
    pub fn of(&self, id: SequenceId) -> Option<&[u32]> {
        self.sequences.get(id.0 as usize)?.as_ref().map(|text| text.tokens.as_slice())
    }

    /// Tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences.iter().flatten().map(|text| text.tokens.len()).sum()
    }
}

impl Engine {
    /// The tokens that every sequence holds, also after a failure: those of runs that ended well.
    pub fn texts(&self) -> Texts {
        Texts { sequences: self.context.texts() }
    }

    /// Makes sequences hold these texts and no others, by processing all tokens; ids are those of the engine that they
    /// are from. `progress` is called with tokens done.
    ///
    /// # Errors
    /// Texts that the context is too small for, before anything is changed; all errors of [`Engine::run`], after which
    /// the sequences that were not reached are empty.
    pub fn resume(&mut self, texts: &Texts, progress: &mut dyn FnMut(usize)) -> Result<()> {
        let (sequences, context) = (self.context.shape.sequences as usize, self.context_length());
        let longest = texts.sequences.iter().flatten().map(|text| text.tokens.len()).max().unwrap_or(0);
        if texts.sequences[sequences.min(texts.sequences.len())..].iter().any(Option::is_some) {
            return Err(EngineError::Request(format!(
                "the texts are of {} sequences, this context has {sequences}",
                texts.sequences.len()
            )));
        }
        if longest > context {
            return Err(EngineError::Request(format!(
                "a text of {longest} tokens does not fit this context of {context}"
            )));
        }
        for slot in 0..sequences {
            let id = SequenceId(slot as u32);
            self.end_sequence(id);
            if texts.of(id).is_some() {
                self.context.occupy(id);
            }
        }
        let mut done = 0;
        let (most, most_equal) = (self.microbatch(), self.context.loaded.most_equal_rows());
        for (slot, text) in texts.sequences.iter().enumerate() {
            let sequence = SequenceId(slot as u32);
            for tokens in text.iter().flat_map(|text| text.runs(most, most_equal)) {
                self.run(&[Rows { sequence, tokens, outputs: 0 }], Want::Ids)?;
                done += tokens.len();
                progress(done);
            }
        }
        Ok(())
    }

    /// Plugins that panicked since the engine was made, whether a request failed by it or not.
    pub fn panics(&self) -> Vec<PluginPanic> {
        self.panics.list()
    }
}

impl EngineError {
    /// True for a failure of a device or of its plugin, after which a new engine, there or elsewhere, may do better; false
    /// for what would fail there too.
    pub fn is_device_fault(&self) -> bool {
        let Self::Backend { source, .. } = self else { return false };
        match source.kind {
            ErrorKind::DeviceLost
            | ErrorKind::Timeout
            | ErrorKind::Panic
            | ErrorKind::Poisoned
            | ErrorKind::OutOfMemory
            | ErrorKind::Internal => true,
            ErrorKind::Invalid | ErrorKind::Unsupported => false,
        }
    }

    /// The panic that it is, if it is one.
    pub fn panic(&self) -> Option<PluginPanic> {
        let (Self::Backend { plugin, source, .. } | Self::StrategyRefused { plugin, source }) = self else {
            return None;
        };
        (source.kind == ErrorKind::Panic)
            .then(|| PluginPanic { plugin: plugin.clone(), message: source.message.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A text is read again in order and whole; no run mixes what was wide with what was not.
        #[test]
        fn runs_are_as_wide_as_they_were(
            parts in prop::collection::vec((any::<bool>(), 1u32..300), 0..8),
            most_equal in 1usize..80,
            more in 0usize..500,
        ) {
            let mut text = Text::default();
            for (is_wide, rows) in parts {
                let start = text.tokens.len() as u32;
                text.tokens.extend(start..start + rows);
                text.wide.extend(is_wide.then_some(start..start + rows));
            }
            let most = most_equal + more;
            let mut read = Vec::new();
            for run in text.runs(most, most_equal) {
                let is_wide = text.wide.iter().any(|wide| wide.contains(&run[0]));
                let all_alike = run.iter().all(|at| text.wide.iter().any(|wide| wide.contains(at)) == is_wide);
                let limit = if is_wide { most } else { most_equal };
                prop_assert!(all_alike && run.len() <= limit);
                read.extend_from_slice(run);
            }
            prop_assert_eq!(read, text.tokens);
        }
    }
}
