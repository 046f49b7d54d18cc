//! Copies between the devices of a backend, itself included: routes that are told are taken, in order, behind what they wait
//! for.

use super::{Case, check_refused, failing};
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::backend::{ArenaClass, PeerRoute};

pub const CASES: &[Case] = &[
    ("every pair of devices has a route", routes),
    ("a copy goes the way that is told, behind what it waits for", copies),
    ("copies that cannot be are refused", refused),
];

/// Nanoseconds after which a wait is given up.
const LONG_NS: u64 = 60_000_000_000;
/// Bytes of a copy.
const BYTES: u64 = 4096;

fn routes(context: &Context<'_>) -> Result<(), CaseError> {
    let backend = context.bench.backend();
    let count = backend.devices().map_err(failing("devices"))?.len() as u32;
    for (to, from) in (0..count).flat_map(|to| (0..count).map(move |from| (to, from))) {
        backend.peer_route(to, from).map_err(failing("peer_route"))?;
    }
    Ok(())
}

fn copies(context: &Context<'_>) -> Result<(), CaseError> {
    let own = context.options.device;
    let backend = context.bench.backend();
    let told = backend.peer_route(own, own).map_err(failing("peer_route"))?;
    if told == PeerRoute::None {
        return Ok(());
    }
    let device = context.bench.device();
    let arena = |class| device.create_arena(class, 2 * BYTES).map_err(failing("arena_create"));
    let (to, from) = (arena(ArenaClass::State)?, arena(ArenaClass::Workspace)?);
    let semaphore = || device.create_semaphore(0).map_err(failing("semaphore_create"));
    let (gate, done) = (semaphore()?, semaphore()?);
    let mut routes = Vec::new();
    for value in 1..=2 {
        let spans = (to.span(BYTES, BYTES), from.span(0, BYTES));
        let copied = device.peer_copy(spans.0, spans.1, &[(&gate, value)], &[(&done, value)]);
        routes.push(copied.map_err(failing("peer_copy"))?);
    }
    let early = done.value().map_err(failing("semaphore_value"))?;
    for value in 1..=2 {
        gate.signal(value).map_err(failing("semaphore_signal"))?;
        done.wait(value, LONG_NS).map_err(failing("semaphore_wait"))?;
    }
    match early {
        0 if routes == [told; 2] => Ok(()),
        0 => wrong(format!("copies went {routes:?}, where {told:?} was told")),
        _ => wrong(format!("a copy was done before what it waits for: {early}")),
    }
}

fn refused(context: &Context<'_>) -> Result<(), CaseError> {
    let own = context.options.device;
    let told = context.bench.backend().peer_route(own, own).map_err(failing("peer_route"))?;
    if told == PeerRoute::None {
        return Ok(());
    }
    let device = context.bench.device();
    let arena = |class| device.create_arena(class, BYTES).map_err(failing("arena_create"));
    let (to, from, io) = (arena(ArenaClass::State)?, arena(ArenaClass::Workspace)?, arena(ArenaClass::Io)?);
    for (what, target, source) in [
        ("a copy of another length", to.span(0, BYTES), from.span(0, BYTES / 2)),
        ("a copy beyond its arena", to.span(BYTES / 2, BYTES), from.span(0, BYTES)),
        ("a copy from an Io arena", to.span(0, BYTES), io.span(0, BYTES)),
    ] {
        let copied = device.peer_copy(target, source, &[], &[]).map_err(|error| error.message);
        check_refused(what, copied, "")?;
    }
    Ok(())
}
