//! Takes back recurrent state of Gated DeltaNet layers by replaying records.
//!
//! A verification leaves, instead of the state after each row, a record of what each row did: its delta, key and
//! decay. The next run applies the records of the rows that were kept to the base state, by the very multiply-add
//! of the step, and works on from there. Two banks of records take turns, since a run reads the old ones while it
//! writes new ones. Per layer and sequence that is one state and 2 · (depth + 1) records instead of depth + 1 states.

use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, ValueId};
use paceline_plugin_api::settings::Settings;
use paceline_plugin_api::strategy::{DeltaNetPorts, DeltaNetShape, Facts, Rollback, RollbackPlugin, Session};
use paceline_plugin_api::{Error, PluginInfo, Result, abi, rollback_plugin};

/// The descriptor, TOML.
pub const DESCRIPTOR: &str = include_str!("../descriptor.toml");

const INFO: PluginInfo = PluginInfo {
    id: "gdn-replay",
    version: env!("CARGO_PKG_VERSION"),
    kind: abi::kind::STRATEGY,
    descriptor: DESCRIPTOR,
};

/// The plugin.
pub struct GdnReplay;

/// The strategy of one context; it keeps nothing of its own.
pub struct Replay;

impl RollbackPlugin for GdnReplay {
    type Rollback = Replay;

    fn create(&self, _: &Facts, settings: &[(String, String)], _: &mut dyn Session) -> Result<Replay> {
        Settings::read(&[], settings)?;
        Ok(Replay)
    }
}

/// The states of a layer: its base, and its two banks of records.
fn states(b: &mut Builder, s: &DeltaNetShape) -> Result<[ValueId; 2]> {
    if s.depth == 0 {
        return Err(Error::unsupported("a context that never rolls back needs no records"));
    }
    let width = [s.value_heads * s.value_width, s.key_heads * s.key_width, s.value_heads];
    let width: u32 = width.iter().sum();
    let dims = [s.slots, s.value_heads, s.key_width, s.value_width];
    let base = b.state("delta", StateKind::PerSlot, DType::F32, &dims);
    let records = b.state("records", StateKind::PerSlot, DType::F32, &[2 * s.slots, s.depth + 1, width]);
    Ok([base, records])
}

impl Rollback for Replay {
    fn delta_net(&self, s: &DeltaNetShape) -> Result<Graph> {
        let mut b = Builder::new();
        let ports = DeltaNetPorts::declare(&mut b, s);
        let [base, records] = states(&mut b, s)?;
        b.gated_delta_net_replay(base, records, ports.sequences, ports.rollback);
        let out =
            b.gated_delta_net_records(ports.inputs, base, ports.sequences, records, ports.rollback, s.scale);
        b.result("o", out);
        Ok(b.finish())
    }

    fn settle(&self, s: &DeltaNetShape) -> Result<Graph> {
        let mut b = Builder::new();
        let [sequences, rollback] = DeltaNetPorts::declare_sequences(&mut b, s);
        let [base, records] = states(&mut b, s)?;
        b.gated_delta_net_replay(base, records, sequences, rollback);
        Ok(b.finish())
    }
}

rollback_plugin!(INFO, GdnReplay, GdnReplay);
