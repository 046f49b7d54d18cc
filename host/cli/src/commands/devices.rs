//! `devices`: what models can run on.

use paceline_plugin_api::backend::{DeviceInfo, DeviceKind, MemoryInfo, PeerRoute};
use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{BackendArgs, DevicesArgs};
use crate::backends::check_settings;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;
use crate::text;

/// One device, and its memory now, if it can be opened.
struct Device {
    id: String,
    info: DeviceInfo,
    memory: Result<MemoryInfo, Failure>,
    /// How copies come to it from the other devices of its backend: their ids, and the routes that are known.
    peers: Vec<(String, Option<PeerRoute>)>,
}

/// Runs the command. What fails for one backend or device is shown, and the others are listed all the same.
pub fn run(args: &DevicesArgs, app: &mut App) -> Result<Exit, Failure> {
    let registry = app.registry(args.backend.backend.as_deref())?;
    let backends = wanted_backends(&registry, &args.backend)?;
    let mut devices = Vec::new();
    let mut failures = Vec::new();
    for id in &backends {
        match list(&registry, id, &args.backend) {
            Ok(listed) => devices.extend(listed),
            Err(failure) => failures.push((id.as_str(), failure)),
        }
    }
    if args.output.json {
        let failures: Vec<Value> = failures
            .iter()
            .map(|(id, failure)| json!({ "backend": id, "error": message(failure) }))
            .collect();
        let devices: Vec<Value> = devices.iter().map(as_json).collect();
        app.printer.json(&json!({ "devices": devices, "failures": failures }))?;
    } else {
        print(&devices, app)?;
    }
    let something_works = devices.iter().any(|device| device.memory.is_ok());
    let unopened = devices.into_iter().filter_map(|device| device.memory.err());
    let failures = failures.into_iter().map(|(_, failure)| failure).chain(unopened);
    app.printer.flush()?;
    if backends.is_empty() {
        return Err(
            Failure::new(Exit::Plugin, "there is no backend plugin").hint("load one with `--plugin PATH`")
        );
    }
    finish(failures, something_works, app)
}

/// Ids of the backends to ask.
fn wanted_backends(registry: &Registry, args: &BackendArgs) -> Result<Vec<String>, Failure> {
    let backends: Vec<String> = match &args.backend {
        Some(id) => vec![registry.backend(Some(id))?.plugin().to_owned()],
        None => registry.plugins().iter().filter(|it| it.is_backend()).map(|it| it.id()).collect(),
    };
    check_settings(registry, &args.set, &backends)?;
    Ok(backends)
}

fn list(registry: &Registry, id: &str, args: &BackendArgs) -> Result<Vec<Device>, Failure> {
    let backend = registry.backend(Some(id))?;
    let infos = backend.devices().map_err(|error| Failure::plugin_call(id, &error))?;
    let settings = args.settings_of(id);
    let count = infos.len() as u32;
    Ok((0..)
        .zip(infos)
        .map(|(index, info)| {
            let memory = memory(&backend, index, &settings);
            let others = (0..count).filter(|&other| other != index);
            let peers = others.map(|other| (format!("{id}:{other}"), backend.peer_route(index, other).ok()));
            Device { id: format!("{id}:{index}"), info, memory, peers: peers.collect() }
        })
        .collect())
}

fn memory(backend: &BackendClient, index: u32, settings: &[(String, String)]) -> Result<MemoryInfo, Failure> {
    let id = backend.plugin();
    let device = backend.open(index, settings).map_err(|error| Failure::device_open(id, &error))?;
    device.memory().map_err(|error| Failure::plugin_call(id, &error))
}

fn print(devices: &[Device], app: &mut App) -> Result<(), Failure> {
    if devices.is_empty() {
        app.printer.status("there are no devices");
        return Ok(());
    }
    let header = ["device", "kind", "name", "arch", "units", "memory", "free"];
    let mut columns = Columns::new(&header, &[4, 5, 6]);
    for Device { id, info, memory, .. } in devices {
        columns.row([
            text::name(id).into_owned(),
            kind_name(info.kind).to_owned(),
            text::name(&info.name).into_owned(),
            text::name(&info.arch).into_owned(),
            info.units.to_string(),
            text::bytes(info.memory_total),
            memory.as_ref().map_or_else(|_| "unknown".to_owned(), |memory| text::bytes(memory.free)),
        ]);
    }
    columns.print(&mut app.printer, "")
}

/// Problems are warnings as long as there is something to run on.
fn finish(
    mut failures: impl Iterator<Item = Failure>,
    something_works: bool,
    app: &mut App,
) -> Result<Exit, Failure> {
    let error = if something_works { None } else { failures.next() };
    for failure in failures {
        app.printer.warning(message(&failure));
    }
    error.map_or(Ok(Exit::Ok), Err)
}

fn as_json(device: &Device) -> Value {
    let info = &device.info;
    let memory = device.memory.as_ref();
    let route = |route: PeerRoute| match route {
        PeerRoute::None => "none",
        PeerRoute::Direct => "direct",
        PeerRoute::Staged => "staged",
    };
    let peers = device.peers.iter().map(|(from, found)| json!({ "from": from, "route": found.map(route) }));
    json!({
        "id": device.id,
        "kind": kind_name(info.kind),
        "name": info.name,
        "physical_id": info.physical_id,
        "arch": info.arch,
        "capabilities": info.capabilities,
        "units": info.units,
        "memory_bytes": info.memory_total,
        "free_bytes": memory.map(|memory| memory.free).ok(),
        "error": memory.err().map(message),
        "peers": peers.collect::<Vec<_>>(),
    })
}

/// All lines of a failure in one.
fn message(failure: &Failure) -> String {
    failure.lines().map(|(_, text)| text).collect::<Vec<_>>().join(": ")
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Software => "software",
    }
}
