//! Copies between devices.

use super::Double;
use crate::platform::Rocm;
use paceline_gpu::driver::{Driver, DriverResult, PeerPlace, StreamHandle};
use paceline_gpu::testing::{LONG_NS, Running, doubling};
use paceline_plugin_api::backend::{
    ArenaClass, Backend, Device, Executable, PeerRoute, Point, Semaphore, Span,
};

const BYTES: usize = 4096;

/// A block on a device, filled by a copy from the host.
fn block(driver: &dyn Driver, device: u32, byte: u8) -> (PeerPlace, StreamHandle) {
    let context = driver.open(device).unwrap();
    driver.bind(context).unwrap();
    let address = driver.allocate(BYTES as u64).unwrap();
    let stream = driver.create_stream().unwrap();
    let bytes = vec![byte; BYTES];
    // SAFETY: both ranges are this long and live until the stream is waited for.
    unsafe { driver.copy_to_device(address, bytes.as_ptr(), BYTES, stream) }.unwrap();
    driver.synchronize(stream).unwrap();
    (PeerPlace { ordinal: device, context, address }, stream)
}

fn bytes(driver: &dyn Driver, at: PeerPlace, stream: StreamHandle) -> Vec<u8> {
    driver.bind(at.context).unwrap();
    let mut bytes = vec![0u8; BYTES];
    // SAFETY: as above.
    unsafe { driver.copy_to_host(bytes.as_mut_ptr(), at.address, BYTES, stream) }.unwrap();
    driver.synchronize(stream).unwrap();
    bytes
}

fn driver(double: &Double) -> &'static dyn Driver {
    Rocm::on(double.path.clone()).start().unwrap_or_else(|why| panic!("{why:?}"))
}

fn copy(driver: &dyn Driver, to: PeerPlace, from: PeerPlace, stream: StreamHandle) -> DriverResult<()> {
    driver.bind(to.context)?;
    // SAFETY: tests keep their blocks, which are this long, until the end.
    unsafe { driver.copy_from_peer(to, from, BYTES, stream) }
}

#[test]
fn access_is_asked_for_once_for_each_pair_and_direction_by_however_many_threads() {
    let double = Double::new("gfx1101,gfx906,gfx1201");
    let driver = driver(&double);
    let blocks: Vec<_> = (0..3).map(|device| block(driver, device, device as u8)).collect();
    assert_eq!(driver.peer_route(0, 1), Ok(PeerRoute::Direct));
    assert_eq!(double.calls("hipDeviceEnablePeerAccess"), 0);
    std::thread::scope(|scope| {
        for thread in 0..12usize {
            let blocks = &blocks;
            scope.spawn(move || {
                let ((to, stream), (from, _)) = (blocks[thread % 3], blocks[(thread + 1) % 3]);
                copy(driver, to, from, stream).unwrap();
            });
        }
    });
    assert_eq!((double.calls("hipDeviceEnablePeerAccess"), double.calls("hipMemcpyDtoDAsync")), (3, 12));
    // What one device has is what some device had at first.
    assert!(blocks.iter().all(|&(at, stream)| bytes(driver, at, stream).iter().all(|&byte| byte < 3)));
    let (at, stream) = block(driver, 2, 9);
    copy(driver, blocks[0].0, at, blocks[0].1).unwrap();
    assert_eq!(bytes(driver, blocks[0].0, blocks[0].1), vec![9; BYTES]);
    driver.synchronize(stream).unwrap();
    assert_eq!(double.calls("hipDeviceEnablePeerAccess"), 4);
}

/// Without access the runtime goes through the host, with the same bytes.
#[test]
fn devices_that_cannot_reach_each_other_copy_through_the_host() {
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx1101,gfx906"), ("HIP_DOUBLE_NO_PEER", "0-1")]);
    let driver = driver(&double);
    let ((to, stream), (from, _)) = (block(driver, 0, 1), block(driver, 1, 2));
    assert_eq!(driver.peer_route(0, 1), Ok(PeerRoute::Staged));
    copy(driver, to, from, stream).unwrap();
    assert_eq!(bytes(driver, to, stream), vec![2; BYTES]);
    assert_eq!((double.calls("hipMemcpyPeerAsync"), double.calls("hipDeviceEnablePeerAccess")), (1, 0));
}

/// A failure is told, and does not stand for the next time.
#[test]
fn a_refusal_is_asked_again() {
    let double = Double::new("gfx1101,gfx906");
    let driver = driver(&double);
    let ((to, stream), (from, _)) = (block(driver, 0, 1), block(driver, 1, 2));
    double.fail("hipDeviceEnablePeerAccess", 0, 1);
    let error = copy(driver, to, from, stream).unwrap_err();
    assert_eq!((error.call, error.code), ("hipDeviceEnablePeerAccess", 1));
    copy(driver, to, from, stream).unwrap();
    // Whoever asks beside this one is no fault.
    copy(self::driver(&double), to, from, stream).unwrap();
    assert_eq!(bytes(driver, to, stream), vec![2; BYTES]);
}

/// What one device made goes to another behind the launch that makes it, and says how.
#[test]
fn copies_wait_for_launches_of_other_devices() {
    for (apart, expected) in [("", PeerRoute::Direct), ("1-0", PeerRoute::Staged)] {
        let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx1101,gfx906"), ("HIP_DOUBLE_NO_PEER", apart)]);
        let backend = double.backend();
        assert_eq!(backend.peer_route(1, 0), Ok(expected));
        let [first, second] = [0, 1].map(|index| Running::of(&backend, index, doubling(), &[]).unwrap());
        let arena = second.device.create_arena(ArenaClass::State, 4096).unwrap();
        let to = Span { arena: &arena, offset: 0, bytes: 48 };
        let from = Span { arena: &first.workspace, offset: 256, bytes: 48 };
        let made = [Point { semaphore: &first.semaphore, value: 1 }];
        let copied = [Point { semaphore: &second.semaphore, value: 1 }];
        assert_eq!(second.device.peer_copy(to, from, &made, &copied), Ok(expected));
        first.set(0, 21.0);
        first.executable.launch(0, &[], &made).unwrap();
        second.semaphore.wait(1, LONG_NS).unwrap();
        assert_eq!(first.result(0), 42.0);
        let copies = ["hipMemcpyDtoDAsync", "hipMemcpyPeerAsync"].map(|call| double.calls(call));
        assert_eq!(copies, if expected == PeerRoute::Direct { [1, 0] } else { [0, 1] });
    }
}
