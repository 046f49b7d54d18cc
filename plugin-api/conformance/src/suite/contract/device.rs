//! Devices: settings, counters, memory.

use super::toys::{layer, layer_parameters};
use super::{Case, check_refused, failing};
use crate::suite::samples::random_weights;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::backend::{ArenaClass, Counters};

pub const CASES: &[Case] = &[
    ("descriptions are complete", descriptions),
    ("an unknown setting is refused by name", unknown_setting),
    ("a device that does not exist is refused", missing_device),
    ("launches are counted", launches),
    ("memory of arenas is counted and given back", arenas),
    ("an arena beyond all memory is refused", huge_arena),
    ("a device is opened twice", twice),
];

fn counters(context: &Context<'_>) -> Result<Counters, CaseError> {
    context.bench.device().counters().map_err(failing("device_counters"))
}

fn descriptions(context: &Context<'_>) -> Result<(), CaseError> {
    let devices = context.bench.backend().devices().map_err(failing("devices"))?;
    for (index, device) in devices.iter().enumerate() {
        let texts = [&device.name, &device.physical_id, &device.arch];
        if texts.iter().any(|text| text.is_empty()) || device.memory_total == 0 || device.units == 0 {
            return wrong(format!("device {index} lacks a name, an id, an architecture, units or memory"));
        }
    }
    let memory = context.bench.device().memory().map_err(failing("device_memory"))?;
    if memory.free > memory.total {
        return wrong(format!("{} of {} bytes are free", memory.free, memory.total));
    }
    Ok(())
}

fn unknown_setting(context: &Context<'_>) -> Result<(), CaseError> {
    let mut settings = context.options.settings.clone();
    settings.push(("no-such-setting".into(), "1".into()));
    let opened = context.bench.backend().open(context.options.device, &settings).map(drop);
    check_refused("an unknown setting", opened.map_err(|error| error.message), "no-such-setting")
}

fn missing_device(context: &Context<'_>) -> Result<(), CaseError> {
    let opened = context.bench.backend().open(u32::MAX, &context.options.settings).map(drop);
    check_refused("device 4294967295", opened.map_err(|error| error.message), "")
}

fn launches(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(2);
    let mut loaded = context.bench.load(&graph, &random_weights(&graph, context.options.seed, "device"))?;
    let before = counters(context)?.launches;
    for _ in 0..3 {
        loaded.run(&layer_parameters(&graph, 2, 1))?;
    }
    match counters(context)?.launches - before {
        3 => Ok(()),
        counted => wrong(format!("3 launches count as {counted}")),
    }
}

fn arenas(context: &Context<'_>) -> Result<(), CaseError> {
    const BYTES: u64 = 3 << 20;
    let before = counters(context)?.arena_bytes;
    for class in ArenaClass::ALL {
        let arena = context.bench.device().create_arena(class, BYTES).map_err(failing("arena_create"))?;
        let with = counters(context)?.arena_bytes;
        if with < before + BYTES {
            return wrong(format!("an arena of {BYTES} bytes ({class:?}) makes {before} to {with}"));
        }
        drop(arena);
        let after = counters(context)?.arena_bytes;
        if after != before {
            return wrong(format!("after the arena ({class:?}) was freed {before} became {after}"));
        }
    }
    Ok(())
}

fn huge_arena(context: &Context<'_>) -> Result<(), CaseError> {
    let before = counters(context)?.arena_bytes;
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 60] {
        let arena = context.bench.device().create_arena(ArenaClass::Workspace, bytes).map(drop);
        check_refused(&format!("an arena of {bytes} bytes"), arena.map_err(|error| error.message), "")?;
    }
    match counters(context)?.arena_bytes {
        after if after == before => Ok(()),
        after => wrong(format!("refused arenas made {before} bytes to {after}")),
    }
}

fn twice(context: &Context<'_>) -> Result<(), CaseError> {
    let second = context.bench.backend().open(context.options.device, &context.options.settings);
    let second = second.map_err(failing("device_open"))?;
    let arena = second.create_arena(ArenaClass::Io, 4096).map_err(failing("arena_create"))?;
    drop(arena);
    second.counters().map(drop).map_err(failing("device_counters"))
}
