//! States of a loaded graph: filled before a case, compared after it, and left alone by what is refused.

use super::{CaseError, wrong};
use crate::harness::Loaded;

/// Fills every state with one byte; refused if the backend cannot import states.
pub(super) fn fill(loaded: &mut Loaded, byte: u8) -> Result<(), CaseError> {
    let sizes: Vec<u64> =
        loaded.graph().states().map(|id| loaded.graph().value(id).bytes().unwrap_or(0)).collect();
    for (index, bytes) in sizes.into_iter().enumerate() {
        if loaded.import_state(index, &vec![byte; bytes as usize])?.is_none() {
            return Err(CaseError::NotOffered("states cannot be imported".into()));
        }
    }
    Ok(())
}

/// Canonical bytes of a state; refused if the backend cannot export states.
pub(super) fn export(loaded: &Loaded, index: usize) -> Result<Vec<u8>, CaseError> {
    loaded.export_state(index)?.ok_or_else(|| CaseError::NotOffered("states cannot be exported".into()))
}

fn export_all(loaded: &Loaded) -> Result<Vec<Vec<u8>>, CaseError> {
    (0..loaded.graph().states().count()).map(|index| export(loaded, index)).collect()
}

/// Checks that a launch with these parameters is refused at once and changes no state.
pub(super) fn check_launch_refused(
    loaded: &mut Loaded,
    parameters: &[u8],
    what: &str,
) -> Result<(), CaseError> {
    let before = export_all(loaded)?;
    loaded.write_parameters(0, parameters);
    if let Ok(value) = loaded.launch(0, &[]) {
        // Nothing may stay pending.
        let _ = loaded.wait(value);
        return wrong(format!("{what} was accepted"));
    }
    if export_all(loaded)? != before {
        wrong(format!("{what} was refused and changed a state"))
    } else {
        Ok(())
    }
}
