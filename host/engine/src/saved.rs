//! Sequences outside of the device: saved, restored, copied.
//!
//! What is saved is canonical: tokens, the KV cache of its positions, the recurrent state after the last of them, and
//! what strategies keep. So it can be restored into a context that keeps recurrent state in another way, has other
//! strategies, or runs on another backend.

use crate::context::Context;
use crate::engine::{Engine, SequenceId};
use crate::error::{EngineError, Result};
use crate::fragments::BASE_STATE;
use crate::step::KV_BLOCK;
use paceline_plugin_api::graph::{StateKind, Value, ValueKind, step::name};

const MAGIC: [u8; 8] = *b"PLSEQ\0\0\x01";
/// Staged rows of a tap that are saved: those that a drafter may not have worked on yet, and the one before.
const STAGED: u32 = crate::strategies::STAGED_AFTER_MICROBATCH;

/// A state of a sequence: where its entries are in the context, and what it is called outside.
struct Piece {
    state: String,
    canonical: String,
    /// Entries, a run each: first and count.
    entries: Vec<(u32, u32)>,
}

/// The states of a sequence of `length` positions.
fn pieces(context: &Context, id: SequenceId, length: u32) -> Result<Vec<Piece>> {
    let sequence = context.sequence(id)?;
    let slot = id.0;
    let mut pieces = Vec::new();
    for (value, ring_blocks) in context.loaded.all_states() {
        let Some(canonical) = canonical_name(&value) else { continue };
        let ValueKind::State(kind) = value.kind else { continue };
        let entries = match kind {
            // A strategy's caches are on its ring, if it has one, else on the blocks of the sequence.
            StateKind::PerPosition if of_strategy(&value.name) && ring_blocks > 0 => {
                vec![(slot * ring_blocks, ring_blocks)]
            }
            StateKind::PerPosition => {
                let blocks = length.div_ceil(KV_BLOCK) as usize;
                sequence.blocks.iter().take(blocks).map(|&block| (block, 1)).collect()
            }
            StateKind::PerSlot if of_strategy(&value.name) => {
                let entries = value.shape.first() / context.shape.sequences.max(1);
                vec![(slot * entries, entries)]
            }
            StateKind::PerSlot => {
                let planes = value.shape.first() / context.shape.sequences.max(1);
                let plane = if planes > 1 { sequence.plane } else { 0 };
                vec![(slot * planes + plane, 1)]
            }
            StateKind::Ring => {
                let rows = context.shape.staged_rows.max(1);
                (length.saturating_sub(STAGED)..length)
                    .map(|position| (slot * rows + position % rows, 1))
                    .collect()
            }
            StateKind::Scratch | StateKind::Table => continue,
        };
        if !entries.is_empty() {
            pieces.push(Piece { state: value.name.clone(), canonical, entries });
        }
    }
    Ok(pieces)
}

/// True for a state of a drafter's own graphs.
fn of_strategy(state: &str) -> bool {
    state.contains('/') && !state.starts_with("blk.")
}

/// What a state is called outside of its context; `None` if it holds nothing once the sequence is settled.
fn canonical_name(value: &Value) -> Option<String> {
    let layer_part = value.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    match layer_part.and_then(|(layer, part)| Some((layer, part.split_once('/')?.1))) {
        // A rollback strategy's base is the layer's state; its records are settled.
        Some((layer, BASE_STATE)) => Some(format!("blk.{layer}.delta")),
        Some(_) => None,
        None if matches!(value.kind, ValueKind::State(StateKind::Ring))
            && !value.name.starts_with(name::TAP) =>
        {
            None
        }
        None => Some(value.name.clone()),
    }
}

/// Writes lengths and byte ranges.
#[derive(Default)]
struct Output(Vec<u8>);

impl Output {
    fn number(&mut self, value: usize) {
        self.0.extend_from_slice(&(value as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
    }
}

/// Reads them back; every length is checked against what is there.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn number(&mut self) -> Option<usize> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*word)).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// What a saved sequence holds.
struct Saved<'a> {
    model: &'a str,
    tokens: Vec<u32>,
    /// Canonical name and bytes.
    states: Vec<(&'a str, &'a [u8])>,
    /// Plugin and what its drafter keeps.
    drafters: Vec<(&'a str, &'a [u8])>,
}

fn parse(bytes: &[u8]) -> Option<Saved<'_>> {
    let mut input = Input(bytes.strip_prefix(&MAGIC)?);
    let model = input.text()?;
    let tokens = input.bytes()?.as_chunks::<4>().0.iter().map(|t| u32::from_le_bytes(*t)).collect();
    let mut pairs = || {
        let count = input.number()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push((input.text()?, input.bytes()?));
        }
        Some(list)
    };
    let (states, drafters) = (pairs()?, pairs()?);
    input.0.is_empty().then_some(Saved { model, tokens, states, drafters })
}

/// What must be equal where a sequence is restored.
fn fingerprint(context: &Context) -> String {
    let shape = context.model.shape();
    let [k, v] = context.shape.kv_types;
    format!(
        "{} {:016x} vocabulary {} hidden {} layers {} head {} KV {k} {v}",
        shape.architecture,
        weights_hash(context),
        shape.vocabulary,
        shape.hidden,
        shape.layers.len(),
        shape.head_width
    )
}

/// Tensors whose data is sampled, and bytes of each.
const SAMPLED: [usize; 2] = [16, 1024];

/// A number that tells models of one shape apart: their tensors and samples of their data, by FNV-1a.
fn weights_hash(context: &Context) -> u64 {
    let gguf = context.model.gguf();
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    };
    let every = (gguf.tensor_count() / SAMPLED[0]).max(1);
    for (index, tensor) in gguf.tensors().enumerate() {
        add(tensor.name.as_bytes());
        add(&tensor.tensor_type.id().to_le_bytes());
        let sampled = if index % every == 0 { context.model.tensor_bytes(tensor.name).ok() } else { None };
        add(sampled.map_or(&[], |bytes| &bytes[..bytes.len().min(SAMPLED[1])]));
    }
    hash
}

/// Who needs a state besides the model.
enum Owner {
    Strategy(String),
    /// Hidden states, and the prediction block's cache.
    AnyStrategy,
}

impl Engine {
    /// A sequence as bytes: all that is needed to go on with it, in this context or another of the same model and KV
    /// types. Positions can no longer be taken back afterwards.
    ///
    /// # Errors
    /// A sequence that was ended; a backend that cannot give its states.
    pub fn save_sequence(&mut self, id: SequenceId) -> Result<Vec<u8>> {
        self.speculation.tell_all(&mut self.context);
        self.context.settle(id)?;
        let length = self.context.length(id) as u32;
        let pieces = pieces(&self.context, id, length)?;
        let mut output = Output(MAGIC.to_vec());
        output.bytes(fingerprint(&self.context).as_bytes());
        let tokens: Vec<u8> =
            self.context.sequence(id)?.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        output.bytes(&tokens);
        output.number(pieces.len());
        let mut part = Vec::new();
        for piece in pieces {
            let mut whole = Vec::new();
            for (first, count) in piece.entries {
                self.context.loaded.move_state(&piece.state, first, count, &mut part, true)?;
                whole.extend_from_slice(&part);
            }
            output.bytes(piece.canonical.as_bytes());
            output.bytes(&whole);
        }
        let drafters = self.speculation.save(id);
        output.number(drafters.len());
        for (plugin, saved) in drafters {
            output.bytes(plugin.as_bytes());
            output.bytes(&saved);
        }
        Ok(output.0)
    }

    /// Replaces what a sequence holds by what [`Engine::save_sequence`] gave. A drafter that was not there begins anew.
    ///
    /// # Errors
    /// Bytes that are no saved sequence, or of another model or other KV types; a context that is too short. The
    /// sequence is empty afterwards.
    pub fn restore_sequence(&mut self, id: SequenceId, bytes: &[u8]) -> Result<()> {
        let restored = self.restore(id, bytes);
        if restored.is_err() {
            self.clear_sequence(id);
        }
        restored
    }

    fn restore(&mut self, id: SequenceId, bytes: &[u8]) -> Result<()> {
        let refuse =
            |what: String| EngineError::Request(format!("the saved sequence cannot be restored: {what}"));
        let saved =
            parse(bytes).ok_or_else(|| refuse("it is damaged, or was not saved by Paceline".into()))?;
        let mine = fingerprint(&self.context);
        if saved.model != mine {
            return Err(refuse(format!("it is of {}, this context is of {mine}", saved.model)));
        }
        let (length, context) = (saved.tokens.len(), self.context_length());
        if length > context {
            return Err(refuse(format!("it holds {length} positions, this context {context}")));
        }
        let vocabulary = self.model().shape().vocabulary;
        if saved.tokens.iter().any(|&token| token >= vocabulary) {
            return Err(refuse("it holds tokens outside of the vocabulary".into()));
        }
        self.clear_sequence(id);
        self.context.adopt(id, &saved.tokens)?;
        // Owners of states that were not saved, or were in another form: their drafters begin anew.
        let mut incomplete = Vec::new();
        let mut part = Vec::new();
        for piece in pieces(&self.context, id, length as u32)? {
            let owner = self.owner_of(&piece.state);
            let entries: u32 = piece.entries.iter().map(|(_, count)| count).sum();
            let wanted = self.context.loaded.entry_bytes(&piece.state) * u64::from(entries);
            let found = saved.states.iter().find(|(name, _)| *name == piece.canonical);
            let found = found.map(|(_, bytes)| *bytes).filter(|bytes| bytes.len() as u64 == wanted);
            let Some(mut rest) = found else {
                let Some(owner) = owner else {
                    return Err(refuse(format!("it lacks the state `{}`", piece.canonical)));
                };
                incomplete.push(owner);
                continue;
            };
            let entry = rest.len() / (entries as usize).max(1);
            for (first, count) in piece.entries {
                let (taken, left) = rest.split_at(entry * count as usize);
                part.clear();
                part.extend_from_slice(taken);
                self.context.loaded.move_state(&piece.state, first, count, &mut part, false)?;
                rest = left;
            }
        }
        let is_whole = |plugin: &str| {
            incomplete.iter().all(|owner| match owner {
                Owner::Strategy(id) => id != plugin,
                Owner::AnyStrategy => false,
            })
        };
        let drafters: Vec<(&str, &[u8])> =
            saved.drafters.iter().copied().filter(|(plugin, _)| is_whole(plugin)).collect();
        self.speculation.restore(id, &saved.tokens, &drafters);
        Ok(())
    }

    /// Whose a state is; `None` for the model's own, without which a sequence cannot go on.
    fn owner_of(&self, state: &str) -> Option<Owner> {
        if of_strategy(state) {
            return state.split_once('/').map(|(plugin, _)| Owner::Strategy(plugin.to_owned()));
        }
        (state.starts_with(name::TAP) || self.is_prediction_state(state)).then_some(Owner::AnyStrategy)
    }

    /// True for states of the prediction block, which only strategies use.
    fn is_prediction_state(&self, state: &str) -> bool {
        let layers = self.model().shape().layers.len();
        let layer = state.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map(|(layer, _)| layer);
        layer.and_then(|layer| layer.parse::<usize>().ok()).is_some_and(|layer| layer >= layers)
    }

    /// Makes `to` hold what `from` holds.
    ///
    /// # Errors
    /// As for [`Engine::save_sequence`] and [`Engine::restore_sequence`].
    pub fn copy_sequence(&mut self, from: SequenceId, to: SequenceId) -> Result<()> {
        let saved = self.save_sequence(from)?;
        self.restore_sequence(to, &saved)
    }
}
