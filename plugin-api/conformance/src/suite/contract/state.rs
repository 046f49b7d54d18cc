//! Export and import of states, for backends that have them.

use super::toys::{SLOTS, WIDTH, recurrent, recurrent_parameters};
use super::{Case, check_refused};
use crate::harness::Loaded;
use crate::random::Random;
use crate::suite::samples::random_weights;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::graph::Graph;

pub const CASES: &[Case] = &[
    ("what is imported is exported", round_trip),
    ("slots are exported and imported alone", one_slot),
    ("a sequence goes on in another slot", moved),
    ("ranges and lengths that do not fit are refused", bad_ranges),
];

/// Bytes of one slot of the state.
const SLOT_BYTES: usize = (2 * WIDTH * 4) as usize;

fn load(context: &Context<'_>) -> Result<(Graph, Loaded), CaseError> {
    let graph = recurrent(4);
    let loaded = context.bench.load(&graph, &random_weights(&graph, context.options.seed, "state"))?;
    Ok((graph, loaded))
}

fn some_state(seed: u64) -> Vec<u8> {
    let values = Random::new(seed).floats(SLOT_BYTES / 4 * SLOTS as usize, 1.0);
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn import(loaded: &mut Loaded, bytes: &[u8]) -> Result<(), CaseError> {
    loaded.import_state(0, bytes)?.ok_or_else(|| CaseError::NotOffered("states cannot be imported".into()))
}

fn export(loaded: &Loaded) -> Result<Vec<u8>, CaseError> {
    loaded.export_state(0)?.ok_or_else(|| CaseError::NotOffered("states cannot be exported".into()))
}

fn round_trip(context: &Context<'_>) -> Result<(), CaseError> {
    let (_, mut loaded) = load(context)?;
    let state = some_state(1);
    import(&mut loaded, &state)?;
    if export(&loaded)? == state { Ok(()) } else { wrong("another state came back") }
}

fn one_slot(context: &Context<'_>) -> Result<(), CaseError> {
    let (_, mut loaded) = load(context)?;
    let (mut state, other) = (some_state(2), some_state(3));
    import(&mut loaded, &state)?;
    let slot = &other[..SLOT_BYTES];
    loaded.import_slots(0, 1, 1, slot)?;
    state[SLOT_BYTES..2 * SLOT_BYTES].copy_from_slice(slot);
    if export(&loaded)? != state {
        return wrong("the import of one slot changed others, or not this one");
    }
    let last = loaded.export_slots(0, SLOTS - 1, 1, SLOT_BYTES)?;
    if last != state[2 * SLOT_BYTES..] {
        return wrong("the export of the last slot is another than its part of the whole");
    }
    Ok(())
}

/// A sequence whose state was copied to another slot goes on there with the same bits.
fn moved(context: &Context<'_>) -> Result<(), CaseError> {
    let (graph, mut loaded) = load(context)?;
    export(&loaded)?;
    loaded.run(&recurrent_parameters(&graph, 4, [0, 4, 0, 0], 5))?;
    let saved = loaded.export_slots(0, 0, 1, SLOT_BYTES)?;
    let next = |slot| recurrent_parameters(&graph, 3, [0, 3, 4, slot], 6);
    let stayed = loaded.run(&next(0))?;
    loaded.import_slots(0, 2, 1, &saved)?;
    if loaded.run(&next(2))? != stayed {
        return wrong("a sequence goes on with other bits after its state was copied");
    }
    Ok(())
}

fn bad_ranges(context: &Context<'_>) -> Result<(), CaseError> {
    let (_, mut loaded) = load(context)?;
    export(&loaded)?;
    for (what, state, first, count, bytes) in [
        ("a slot beyond the last", 0, SLOTS, 1, SLOT_BYTES),
        ("slots beyond the last", 0, 1, SLOTS, SLOT_BYTES * SLOTS as usize),
        ("a range that overflows", 0, u32::MAX, 2, SLOT_BYTES * 2),
        ("a buffer that is too short", 0, 0, 1, SLOT_BYTES - 4),
        ("a buffer that is too long", 0, 0, 1, SLOT_BYTES + 4),
        ("a state that does not exist", 1, 0, 1, SLOT_BYTES),
    ] {
        let exported = loaded.export_slots(state, first, count, bytes).map(drop);
        check_refused(&format!("the export of {what}"), exported.map_err(|e| e.to_string()), "")?;
        let imported = loaded.import_slots(state, first, count, &vec![0; bytes]);
        check_refused(&format!("the import of {what}"), imported.map_err(|e| e.to_string()), "")?;
    }
    Ok(())
}
