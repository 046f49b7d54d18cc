//! Copies between devices, and what is said of captured steps.

use super::DoublePlatform;
use crate::GpuArena;
use crate::driver::double::DoubleDriver;
use crate::memory::region;
use crate::testing::{LONG_NS, Running, doubling};
use paceline_plugin_api::backend::{
    ArenaClass, Backend, Captures, Device, Executable, PeerRoute, Point, Semaphore, Span,
};

/// Where the result block of [`doubling`] begins in its workspace.
const RESULTS: u64 = 256;

fn span(arena: &GpuArena, offset: u64) -> Span<'_, GpuArena> {
    Span { arena, offset, bytes: 16 }
}

/// Four floats in device memory, which is host memory here.
fn floats(span: &Span<'_, GpuArena>) -> [f32; 4] {
    let address = region(span).expect("memory of the device").address;
    // SAFETY: the range was allocated by the stand-in and nothing is pending on it.
    unsafe { (address as *const [f32; 4]).read() }
}

#[test]
fn a_copy_waits_for_the_other_device_and_says_how_it_went() {
    let driver = DoubleDriver::leaked_with(|driver| {
        driver.devices = 3;
        driver.staged.push((2, 0));
    });
    let backend = DoublePlatform::backend(driver);
    let [first, second, third] =
        [0, 1, 2].map(|index| Running::of(&backend, index, doubling(), &[]).unwrap());
    for (target, expected) in [(&second, PeerRoute::Direct), (&third, PeerRoute::Staged)] {
        let arena = target.device.create_arena(ArenaClass::State, 4096).unwrap();
        let made = first.semaphore.value() + 1;
        first.set(0, made as f32);
        // Queued before there is anything to copy.
        let waits = [Point { semaphore: &first.semaphore, value: made }];
        let signals = [Point { semaphore: &target.semaphore, value: 1 }];
        let from = span(&first.workspace, RESULTS);
        let to = span(&arena, 512);
        assert_eq!(target.device.peer_copy(to, from, &waits, &signals), Ok(expected));
        assert_eq!((target.semaphore.value(), floats(&to)[0]), (0, 0.0));
        first.launch(made).unwrap();
        target.semaphore.wait(1, LONG_NS).unwrap();
        assert_eq!(floats(&to)[0], 2.0 * made as f32);
        assert_eq!(floats(&span(&arena, 528)), [0.0; 4]);
    }
    assert_eq!(driver.calls("copy_from_peer"), 2);
    // Launches behind a copy go on as before.
    assert_eq!(second.run(7), Ok(14.0));
}

#[test]
fn routes_are_told_for_every_pair_and_direction() {
    let driver = DoubleDriver::leaked_with(|driver| {
        driver.devices = 3;
        driver.staged.push((0, 1));
        driver.apart.push((2, 1));
    });
    let backend = DoublePlatform::backend(driver);
    let routes: Vec<_> = (0..9).map(|pair| backend.peer_route(pair / 3, pair % 3).unwrap()).collect();
    let (direct, staged, none) = (PeerRoute::Direct, PeerRoute::Staged, PeerRoute::None);
    assert_eq!(routes, [direct, staged, direct, direct, direct, direct, direct, none, direct]);
    assert!(backend.peer_route(0, 3).unwrap_err().message.contains("double:3"));

    let [from, to] = [1, 2].map(|index| Running::of(&backend, index, doubling(), &[]).unwrap());
    let refused = to.device.peer_copy(span(&to.workspace, 0), span(&from.workspace, 0), &[], &[]);
    let text = refused.unwrap_err().message;
    assert!(text.contains("double:1") && text.contains("double:2"), "{text}");
    assert_eq!(driver.calls("copy_from_peer"), 0);
}

#[test]
fn copies_that_cannot_be_are_refused() {
    let driver = DoubleDriver::leaked_with(|driver| driver.devices = 2);
    let backend = DoublePlatform::backend(driver);
    let [first, second] = [0, 1].map(|index| Running::of(&backend, index, doubling(), &[]).unwrap());
    let done = [Point { semaphore: &second.semaphore, value: 1 }];
    let text = |to: &GpuArena, from: &GpuArena, waits: usize| {
        let waits: Vec<_> = (0..waits).map(|_| Point { semaphore: &first.semaphore, value: 0 }).collect();
        let copied = second.device.peer_copy(span(to, 0), span(from, 0), &waits, &done);
        copied.map_err(|error| error.message)
    };
    assert!(text(&first.workspace, &first.workspace, 0).unwrap_err().contains("another device"));
    assert!(text(&second.io, &first.workspace, 0).unwrap_err().contains("Io"));
    assert!(text(&second.workspace, &first.workspace, 9).unwrap_err().contains("more than 8"));
    let other = DoublePlatform::backend(DoubleDriver::leaked());
    let stranger = Running::of(&other, 0, doubling(), &[]).unwrap();
    assert!(text(&second.workspace, &stranger.workspace, 0).unwrap_err().contains("another driver"));
    assert_eq!(text(&second.workspace, &first.workspace, 8), Ok(PeerRoute::Direct));
    second.semaphore.wait(1, LONG_NS).unwrap();
}

#[test]
fn captures_are_counted_and_their_absence_has_a_reason() {
    let backend = DoublePlatform::backend(DoubleDriver::leaked());
    let running = Running::new(&backend, &[]).unwrap();
    let told = |captures, replays| Captures { is_captured: true, captures, replays, ..Captures::default() };
    assert_eq!((running.executable.captures(), running.device.captures()), (told(2, 0), told(2, 0)));
    running.executable.warm_up().unwrap();
    for value in 1..4 {
        running.run(value).unwrap();
    }
    assert_eq!((running.executable.captures(), running.device.captures()), (told(2, 3), told(2, 3)));

    for (key, value) in [("graphs", "false"), ("profile", "true")] {
        let running = Running::new(&backend, &[(key, value)]).unwrap();
        running.run(1).unwrap();
        let Captures { is_captured, captures, replays, reason, .. } = running.device.captures();
        assert!(!is_captured && captures + replays == 0 && reason.contains(key), "{reason}");
    }
    let cannot = DoublePlatform::backend(DoubleDriver::leaked_with(|driver| driver.facts.captures = false));
    assert!(Running::new(&cannot, &[]).unwrap().device.captures().reason.contains("driver"));
}
