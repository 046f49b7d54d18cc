//! States from outside of a run: filling the tables of rings, copying entries out and in.

use super::Loaded;
use crate::error::{EngineError, Result};
use paceline_plugin_api::client::ExecutableClient;
use paceline_plugin_api::graph::{Graph, Value, ValueKind, step};
use std::collections::HashSet;

impl Loaded {
    /// Bytes of states that went through the host so far.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Copies entries of a state out, in canonical form, or in.
    pub fn move_state(
        &mut self,
        state: &str,
        first: u32,
        count: u32,
        bytes: &mut Vec<u8>,
        out: bool,
    ) -> Result<()> {
        let place = self.programs.iter().enumerate().find_map(|(index, program)| {
            let graph = &program.built.graph;
            let position = graph.states().position(|id| graph.value(id).name == state)?;
            let id = graph.states().nth(position)?;
            Some((index, position as u32, graph.value(id)))
        });
        let Some((index, position, value)) = place else {
            return Err(EngineError::Request(format!("no graph has the state `{state}`")));
        };
        let entry = value.bytes().unwrap_or(0) / u64::from(value.shape.first().max(1));
        let length = (entry * u64::from(count)) as usize;
        self.ensure_loaded(index)?;
        self.moved_bytes += length as u64;
        let plugin = self.device.plugin().to_owned();
        let executable = self.executables[index]
            .as_mut()
            .ok_or_else(|| EngineError::Request("the step's executable is not loaded".into()))?;
        if out {
            bytes.clear();
            bytes.resize(length, 0);
            executable
                .export_state(position, first, count, bytes)
                .map_err(EngineError::backend(&plugin, format!("saving the state `{state}`")))
        } else {
            if bytes.len() != length {
                return Err(EngineError::Request(format!(
                    "state `{state}`: {} bytes were given for {length}",
                    bytes.len()
                )));
            }
            executable
                .import_state(position, first, count, bytes)
                .map_err(EngineError::backend(&plugin, format!("restoring the state `{state}`")))
        }
    }

    /// Bytes of an entry of a state, in canonical form; 0 if no graph has it.
    pub fn entry_bytes(&self, state: &str) -> u64 {
        let graphs = self.programs.iter().map(|program| &program.built.graph);
        let value = graphs
            .flat_map(Graph::values)
            .find(|value| matches!(value.kind, ValueKind::State(_)) && value.name == state);
        value.map_or(0, |value| value.bytes().unwrap_or(0) / u64::from(value.shape.first().max(1)))
    }

    /// All states, each once: value of a graph, and the blocks of the ring of the strategy that it belongs to.
    pub fn all_states(&self) -> Vec<(Value, u32)> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for program in &self.programs {
            let graph = &program.built.graph;
            for id in graph.states() {
                let value = graph.value(id);
                if seen.insert(value.name.clone()) {
                    all.push((value.clone(), program.built.ring_blocks));
                }
            }
        }
        all.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        all
    }

    /// The blocks of a ring never change: logical block c of a sequence is physical block c modulo their number.
    pub(super) fn fill_ring_table(&self, index: usize, executable: &mut ExecutableClient) -> Result<()> {
        let built = &self.programs[index].built;
        let graph = &built.graph;
        let name = |id| &graph.value(id).name;
        let Some(state) = graph.states().position(|id| name(id).ends_with(step::name::RING_BLOCKS)) else {
            return Ok(());
        };
        let id = graph.states().nth(state);
        let Some(&[slots, columns]) = id.map(|id| graph.value(id).shape).as_ref().map(|s| s.dims()) else {
            return Ok(());
        };
        let blocks = built.ring_blocks.max(1);
        let entries = (0..slots).flat_map(|slot| (0..columns).map(move |c| slot * blocks + c % blocks));
        let bytes: Vec<u8> = entries.flat_map(|entry| (entry as i32).to_ne_bytes()).collect();
        executable
            .import_state(state as u32, 0, slots, &bytes)
            .map_err(EngineError::backend(self.device.plugin(), "filling the table of a ring"))
    }
}
