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

/// What the sequences of an engine hold, as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// By sequence; `None` for those that are not in use.
    sequences: Vec<Option<Vec<u32>>>,
}

impl Texts {
    /// The tokens of one sequence; `None` if it is not in use.
    pub fn of(&self, id: SequenceId) -> Option<&[u32]> {
        self.sequences.get(id.0 as usize)?.as_deref()
    }

    /// Tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences.iter().flatten().map(Vec::len).sum()
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
        let longest = texts.sequences.iter().flatten().map(Vec::len).max().unwrap_or(0);
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
        for slot in 0..sequences {
            let sequence = SequenceId(slot as u32);
            for tokens in texts.of(sequence).unwrap_or_default().chunks(self.microbatch()) {
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
