//! Every fault, as a host meets it behind the C table.

mod support;

use paceline_backend_sim::live::{self, LiveObjects};
use paceline_conformance::block::{self, ParameterBlock};
use paceline_conformance::harness::{Bench, HarnessError, Loaded};
use paceline_plugin_api::backend::ArenaClass;
use paceline_plugin_api::graph::{Builder, DType, Graph};
use paceline_plugin_api::{Error, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WIDTH: u32 = 4;
const NAME: &str = "sim:0 (rocm gfx906)";

/// Live objects are counted in the whole process, so tests run one at a time; the guard checks that none are left.
struct Alone(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    Alone(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(live::objects(), LiveObjects::default());
        }
    }
}

fn bench(settings: &[(&str, &str)]) -> Bench {
    let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Bench::open(&support::backend(), 0, &settings).unwrap()
}

/// `out` = 2 x + w, and the index of its largest element.
fn graph() -> Graph {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[1, WIDTH], None);
    let w = b.weight("w", DType::F32, &[WIDTH, WIDTH]);
    let product = b.linear(x, w);
    let out = b.add(x, product);
    let (ids, faults) = b.argmax(out);
    b.result("out", out);
    b.result("ids", ids);
    b.result("faults", faults);
    b.finish()
}

fn weights() -> Vec<Vec<u8>> {
    vec![(0..WIDTH * WIDTH).flat_map(|i| (i as f32).to_le_bytes()).collect()]
}

fn parameters(graph: &Graph) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    block.set_floats("x", 0, &[1.0, 2.0, 3.0, 4.0]);
    block.into_bytes()
}

/// Runs the graph: its largest element, and the count of rows with values that are no numbers.
fn run(loaded: &mut Loaded) -> Result<(i32, i32), Error> {
    let graph = loaded.graph().clone();
    let parameters = parameters(&graph);
    let results = loaded.run(&parameters).map_err(error_of)?;
    let faults = block::integers(&graph, &parameters, &results, "faults")[0];
    let floats = block::floats(&graph, &parameters, &results, "out");
    assert!(floats.iter().all(|value| value.is_nan() == (faults > 0)), "{floats:?}");
    Ok((block::integers(&graph, &parameters, &results, "ids")[0], faults))
}

fn error_of(error: HarnessError) -> Error {
    match error {
        HarnessError::Failed { error, .. } => error,
        HarnessError::Refused(reason) => panic!("refused: {reason}"),
    }
}

#[test]
fn memory_is_limited_and_counted() {
    let _alone = alone();
    let (bench, other) = (bench(&[("memory", "1000")]), bench(&[]));
    let device = bench.device();
    let before = other.device().memory().unwrap();
    assert_eq!((before.total, before.free), (32 << 30, 32 << 30));
    let arena = device.create_arena(ArenaClass::Kv, 600).unwrap();
    assert_eq!(device.memory().unwrap().free, 400);
    assert_eq!(device.counters().unwrap().arena_bytes, 600);
    assert_eq!(live::objects().arena_bytes, 600);
    // Who else opened the device sees its memory taken, and holds none.
    assert_eq!(other.device().memory().unwrap().free, before.free - 600);
    assert_eq!(other.device().counters().unwrap().arena_bytes, 0);
    let error = device.create_arena(ArenaClass::State, 401).map(drop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert_eq!(
        error.message,
        format!(
            "{NAME}: 401 bytes (State) were asked for, 400 of 1000 are free; free some, or raise the setting `memory`"
        )
    );
    drop(arena);
    assert_eq!(other.device().memory().unwrap(), before);
    device.create_arena(ArenaClass::Io, 1000).unwrap();
}

#[test]
fn one_allocation_fails() {
    let _alone = alone();
    let bench = bench(&[("fail_allocation", "2")]);
    let create = || bench.device().create_arena(ArenaClass::Weights, 64).map(drop);
    create().unwrap();
    let error = create().unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert_eq!(
        error.message,
        format!("{NAME}: allocation 2 (Weights, 64 bytes) failed, as `fail_allocation` asks")
    );
    create().unwrap();
}

#[test]
fn a_lost_device_stays_lost() {
    let _alone = alone();
    let bench = bench(&[("lose_after", "2")]);
    let gate = bench.device().create_semaphore(0).unwrap();
    let mut loaded = bench.load(&graph(), &weights()).unwrap();
    assert_eq!(run(&mut loaded), Ok((3, 0)));
    // This one waits for the host when the device is lost, and carries the failure.
    let pending = loaded.launch(0, &[(&gate, 1)]).unwrap();
    let expected = format!("{NAME} was lost after 2 launches; open it again, or use another device");
    let lost = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::DeviceLost, expected.as_str()));
    };
    lost(loaded.launch(0, &[]).map(drop).map_err(error_of));
    lost(loaded.wait(pending).map_err(error_of));
    let device = bench.device();
    lost(loaded.launch(0, &[]).map(drop).map_err(error_of));
    lost(gate.wait(1, u64::MAX));
    lost(device.memory().map(drop));
    lost(device.create_arena(ArenaClass::Io, 64).map(drop));
    lost(device.create_semaphore(0).map(drop));
    lost(bench.load(&graph(), &weights()).map(drop).map_err(error_of));
    // It can be opened anew.
    let again = self::bench(&[]);
    assert_eq!(run(&mut again.load(&graph(), &weights()).unwrap()), Ok((3, 0)));
}

#[test]
fn results_are_no_numbers_for_some_launches() {
    let _alone = alone();
    let bench = bench(&[("nan_after", "2"), ("nan_launches", "2")]);
    let mut loaded = bench.load(&graph(), &weights()).unwrap();
    let faults: Vec<i32> = (0..5).map(|_| run(&mut loaded).unwrap().1).collect();
    assert_eq!(faults, [0, 1, 1, 0, 0]);
}

#[test]
fn panics_become_errors_and_happen_once() {
    let _alone = alone();
    let expected = |place: &str| format!("the plugin panicked: {NAME}: the setting `panic_in` is `{place}`");
    let panicked = |error: Error, place: &str| {
        assert_eq!((error.kind, error.message), (ErrorKind::Panic, expected(place)));
    };

    for place in ["launch", "worker"] {
        let bench = bench(&[("panic_in", place)]);
        let mut loaded = bench.load(&graph(), &weights()).unwrap();
        panicked(run(&mut loaded).unwrap_err(), place);
        // What the panic was met on is of no use any more; what is made anew is.
        let kind = if place == "launch" { ErrorKind::Poisoned } else { ErrorKind::Panic };
        assert_eq!(run(&mut loaded).unwrap_err().kind, kind, "{place}");
        assert_eq!(run(&mut bench.load(&graph(), &weights()).unwrap()), Ok((3, 0)));
    }
    for place in ["load", "import"] {
        let bench = bench(&[("panic_in", place)]);
        let load = || bench.load(&graph(), &weights()).map(drop).map_err(error_of).unwrap_err();
        panicked(load(), place);
        assert_eq!(load().kind, ErrorKind::Poisoned, "the device's own call panicked");
    }
}

#[test]
fn slow_launches_end_late_and_right() {
    let _alone = alone();
    let bench = bench(&[("slow_launch_ms", "60")]);
    let mut loaded = bench.load(&graph(), &weights()).unwrap();
    let start = Instant::now();
    let value = loaded.launch(0, &[]).map(drop);
    assert!(value.is_ok() && start.elapsed() < Duration::from_millis(60), "a launch does not wait");
    let early = loaded.semaphore().wait(1, 1_000_000).unwrap_err();
    assert_eq!(early.kind, ErrorKind::Timeout);
    loaded.wait(1).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(run(&mut loaded), Ok((3, 0)));
}

#[test]
fn an_operation_is_refused_where_the_device_lacks_it() {
    let _alone = alone();
    let backend = support::backend();
    let graph = graph();
    let uses = paceline_plugin_api::backend::weight_uses([&graph]);
    let layouts = backend.layout_weights("sim/1 without argmax", &uses).unwrap();
    let plan = backend.plan(&graph, "sim/1 without argmax", &layouts).unwrap();
    let (node, reason) = plan.summary().refusal().unwrap();
    assert_eq!((node, reason), (2, "the simulated device has no `argmax`"));
    assert!(backend.plan(&graph, "sim/1", &layouts).unwrap().summary().refusal().is_none());
    let error = backend.plan(&graph, "cpu/1", &layouts).map(drop).unwrap_err();
    assert_eq!(error.message, "capabilities `cpu/1` are not those of backend `sim`");
}

#[test]
fn devices_and_settings_that_are_wrong_are_named() {
    let _alone = alone();
    let backend = support::backend();
    let devices = backend.devices().unwrap();
    let texts: Vec<_> = devices.iter().map(|d| (d.name.as_str(), d.physical_id.as_str())).collect();
    assert_eq!(texts, [("simulated rocm gfx906", "sim:0"), ("simulated cuda sm_90", "sim:1")]);
    let open = |index, key: &str, value: &str| {
        backend.open(index, &[(key.into(), value.into())]).map(drop).unwrap_err().message
    };
    assert_eq!(open(2, "memory", "1"), "there is no device 2; 2 are simulated");
    assert_eq!(open(0, "lose", "1"), "setting `lose` is not known");
    assert_eq!(
        open(0, "panic_in", "open"),
        "setting `panic_in` cannot be `open`; it takes one of none, launch, worker, load, import"
    );
}
