//! Captured steps: what a backend says of them holds.

use super::toys::{layer, layer_parameters};
use super::{Case, failing};
use crate::suite::samples::random_weights;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::backend::Captures;

pub const CASES: &[Case] =
    &[("launches behind a warm-up capture nothing", launches), ("what is not captured has a reason", reason)];

/// What the device says; `None` if the backend does not.
fn told(context: &Context<'_>) -> Result<Option<Captures>, CaseError> {
    context.bench.device().captures().map_err(failing("captures"))
}

fn launches(context: &Context<'_>) -> Result<(), CaseError> {
    const RUNS: u64 = 3;
    let graph = layer(2);
    let mut loaded = context.bench.load(&graph, &random_weights(&graph, context.options.seed, "captures"))?;
    loaded.executable().warm_up().map_err(failing("warm_up"))?;
    let (Some(before), own) = (told(context)?, loaded.executable().captures().map_err(failing("captures"))?)
    else {
        return Ok(());
    };
    for _ in 0..RUNS {
        loaded.run(&layer_parameters(&graph, 2, 1))?;
    }
    let after = told(context)?.unwrap_or_default();
    if after.captures != before.captures {
        return wrong(format!("{} captures became {}", before.captures, after.captures));
    }
    let expected = if after.is_captured { RUNS } else { 0 };
    let replays = |after: &Captures, before: &Captures| after.replays.checked_sub(before.replays);
    if replays(&after, &before) != Some(expected) {
        let (from, to) = (before.replays, after.replays);
        return wrong(format!(
            "{RUNS} launches make the replays {from} to {to}, where {expected} more were expected"
        ));
    }
    let own_after = loaded.executable().captures().map_err(failing("captures"))?;
    match own.zip(own_after) {
        Some((own, own_after)) if replays(&own_after, &own) != Some(expected) => {
            wrong(format!("the executable counts {} replays of {expected}", own_after.replays))
        }
        Some((own, _)) if own.captures > before.captures => {
            wrong(format!("the executable has {} captures, its device {}", own.captures, before.captures))
        }
        _ => Ok(()),
    }
}

fn reason(context: &Context<'_>) -> Result<(), CaseError> {
    match told(context)? {
        Some(told) if !told.is_captured && told.reason.trim().is_empty() => {
            wrong("steps are not captured, and nothing says why".to_owned())
        }
        Some(told) if !told.is_captured && told.replays > 0 => {
            wrong(format!("steps are not captured, and {} were replayed", told.replays))
        }
        _ => Ok(()),
    }
}
