//! Timeline semaphores.

use super::toys::{layer, layer_parameters};
use super::{Case, failing};
use crate::harness::Loaded;
use crate::suite::samples::random_weights;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::client::SemaphoreClient;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("values begin where they are told and only rise", values),
    ("a wait with a limit ends with a timeout", timeout),
    ("the host signals another thread", host_signal),
    ("a launch waits for the host", launch_waits),
    ("a launch waits for several points and signals several", several),
    ("a launch that waits holds back those behind it", in_order),
    ("a launch signals a value that is waited for on another thread", other_thread),
];

/// Long enough for a launch that does not wait to be done.
const MOMENT: Duration = Duration::from_millis(50);
const LONG_NS: u64 = 60_000_000_000;

fn semaphore(context: &Context<'_>, initial: u64) -> Result<SemaphoreClient, CaseError> {
    context.bench.device().create_semaphore(initial).map_err(failing("create_semaphore"))
}

fn value(semaphore: &SemaphoreClient) -> Result<u64, CaseError> {
    semaphore.value().map_err(failing("semaphore_value"))
}

fn signal(semaphore: &SemaphoreClient, value: u64) -> Result<(), CaseError> {
    semaphore.signal(value).map_err(failing("semaphore_signal"))
}

fn wait(semaphore: &SemaphoreClient, value: u64) -> Result<(), CaseError> {
    semaphore.wait(value, LONG_NS).map_err(failing("semaphore_wait"))
}

/// A loaded graph with parameters in its two slots.
fn load(context: &Context<'_>) -> Result<Loaded, CaseError> {
    let graph = layer(4);
    let weights = random_weights(&graph, context.options.seed, "semaphore");
    let loaded = context.bench.place(&[&graph], &weights)?.load(0, 2)?;
    for slot in 0..2 {
        loaded.write_parameters(slot, &layer_parameters(&graph, 4, slot.into()));
    }
    Ok(loaded)
}

fn values(context: &Context<'_>) -> Result<(), CaseError> {
    let timeline = semaphore(context, 7)?;
    if value(&timeline)? != 7 {
        return wrong(format!("it begins at {} instead of 7", value(&timeline)?));
    }
    wait(&timeline, 7)?;
    wait(&timeline, 0)?;
    signal(&timeline, 12)?;
    if value(&timeline)? != 12 {
        return wrong(format!("it is at {} after a signal of 12", value(&timeline)?));
    }
    wait(&timeline, 11)?;
    match timeline.failure() {
        None => Ok(()),
        Some(error) => wrong(format!("it carries a failure: {error}")),
    }
}

fn timeout(context: &Context<'_>) -> Result<(), CaseError> {
    let timeline = semaphore(context, 0)?;
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        match timeline.wait(1, limit.as_nanos() as u64) {
            Err(error) if error.kind == ErrorKind::Timeout => {}
            Err(error) => return wrong(format!("it ended with `{error}` instead of a timeout")),
            Ok(()) => return wrong("it ended well before the value was reached"),
        }
        let took = start.elapsed();
        if took < limit || took > limit + Duration::from_secs(5) {
            return wrong(format!("a wait of {limit:?} took {took:?}"));
        }
    }
    // It stays usable.
    signal(&timeline, 1)?;
    wait(&timeline, 1)
}

fn host_signal(context: &Context<'_>) -> Result<(), CaseError> {
    let timeline = semaphore(context, 0)?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| timeline.wait(3, LONG_NS));
        std::thread::sleep(Duration::from_millis(5));
        signal(&timeline, 3)?;
        match waiting.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => wrong(format!("the wait ended with `{error}`")),
            Err(_) => wrong("the wait panicked"),
        }
    })
}

fn launch_waits(context: &Context<'_>) -> Result<(), CaseError> {
    let (gate, mut loaded) = (semaphore(context, 0)?, load(context)?);
    let done = loaded.launch(0, &[(&gate, 2)])?;
    signal(&gate, 1)?;
    std::thread::sleep(MOMENT);
    let is_early = value(loaded.semaphore())? >= done;
    signal(&gate, 2)?;
    loaded.wait(done)?;
    if is_early { wrong("it ran before the value that it waits for was reached") } else { Ok(()) }
}

fn several(context: &Context<'_>) -> Result<(), CaseError> {
    let (first, second, mut loaded) = (semaphore(context, 0)?, semaphore(context, 5)?, load(context)?);
    let done = loaded.launch(0, &[(&first, 1), (&second, 6), (&second, 5)])?;
    signal(&second, 6)?;
    std::thread::sleep(MOMENT);
    let is_early = value(loaded.semaphore())? >= done;
    signal(&first, 1)?;
    loaded.wait(done)?;
    if is_early {
        return wrong("it ran when one of the values that it waits for was reached");
    }
    let outputs = [semaphore(context, 0)?, semaphore(context, 0)?];
    loaded.launch_signalling(1, &[(&outputs[0], 4), (&outputs[1], 9)])?;
    wait(&outputs[0], 4)?;
    wait(&outputs[1], 9)
}

fn in_order(context: &Context<'_>) -> Result<(), CaseError> {
    let (gate, mut loaded) = (semaphore(context, 0)?, load(context)?);
    loaded.launch(0, &[(&gate, 1)])?;
    let behind = loaded.launch(1, &[])?;
    std::thread::sleep(MOMENT);
    let is_early = value(loaded.semaphore())? > 0;
    signal(&gate, 1)?;
    loaded.wait(behind)?;
    if is_early { wrong("a later launch was done first") } else { Ok(()) }
}

fn other_thread(context: &Context<'_>) -> Result<(), CaseError> {
    let mut loaded = load(context)?;
    let output = semaphore(context, 0)?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| output.wait(1, LONG_NS));
        loaded.launch_signalling(0, &[(&output, 1)])?;
        match waiting.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => wrong(format!("the wait ended with `{error}`")),
            Err(_) => wrong("the wait panicked"),
        }
    })
}
