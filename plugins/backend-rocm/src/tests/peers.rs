//! Copies between devices.

use super::Double;
use crate::peers::{Link, Peers, Place};
use paceline_gpu::driver::{Driver, StreamHandle};

const BYTES: usize = 4096;

/// A block on a device, filled by a copy from the host.
fn block(driver: &dyn Driver, device: u32, byte: u8) -> (Place, StreamHandle) {
    let context = driver.open(device).unwrap();
    driver.bind(context).unwrap();
    let address = driver.allocate(BYTES as u64).unwrap();
    let stream = driver.create_stream().unwrap();
    let bytes = vec![byte; BYTES];
    // SAFETY: both ranges are this long and live until the stream is waited for.
    unsafe { driver.copy_to_device(address, bytes.as_ptr(), BYTES, stream) }.unwrap();
    driver.synchronize(stream).unwrap();
    (Place { device, address }, stream)
}

fn bytes(driver: &dyn Driver, at: Place, stream: StreamHandle) -> Vec<u8> {
    let context = driver.open(at.device).unwrap();
    driver.bind(context).unwrap();
    let mut bytes = vec![0u8; BYTES];
    // SAFETY: as above.
    unsafe { driver.copy_to_host(bytes.as_mut_ptr(), at.address, BYTES, stream) }.unwrap();
    driver.synchronize(stream).unwrap();
    bytes
}

fn peers(double: &Double) -> Peers {
    Peers::new(Some(double.path.clone())).unwrap_or_else(|why| panic!("{why:?}"))
}

#[test]
fn access_is_asked_for_once_for_each_pair_and_direction_by_however_many_threads() {
    let double = Double::new("gfx1101,gfx906,gfx1201");
    let peers = peers(&double);
    let driver = peers.driver();
    let blocks: Vec<_> = (0..3).map(|device| block(driver, device, device as u8)).collect();
    assert_eq!(double.calls("hipDeviceEnablePeerAccess"), 0);
    std::thread::scope(|scope| {
        for thread in 0..12usize {
            let (peers, blocks) = (&peers, &blocks);
            scope.spawn(move || {
                let (to, stream) = blocks[thread % 3];
                let (from, _) = blocks[(thread + 1) % 3];
                assert_eq!(peers.link(to.device, from.device), Ok(Link::Direct));
                assert_eq!(peers.link(to.device, to.device), Ok(Link::Direct));
                let _ = stream;
            });
        }
    });
    assert_eq!(double.calls("hipDeviceEnablePeerAccess"), 3);
    let ((to, stream), (from, _)) = (blocks[0], blocks[1]);
    // SAFETY: both blocks live until the end.
    unsafe { peers.copy(to, from, BYTES, stream) }.unwrap();
    assert_eq!(bytes(driver, to, stream), vec![1; BYTES]);
    assert_eq!(double.calls("hipMemcpyDtoDAsync"), 1);
    assert_eq!(double.calls("hipDeviceEnablePeerAccess"), 3);
}

/// Without access the runtime goes through the host, with the same bytes.
#[test]
fn devices_that_cannot_reach_each_other_copy_through_the_host() {
    let double = Double::with(&[("HIP_DOUBLE_DEVICES", "gfx1101,gfx906"), ("HIP_DOUBLE_NO_PEER", "0-1")]);
    let peers = peers(&double);
    let driver = peers.driver();
    let ((to, stream), (from, _)) = (block(driver, 0, 1), block(driver, 1, 2));
    assert_eq!(peers.link(0, 1), Ok(Link::Staged));
    // SAFETY: both blocks live until the end.
    unsafe { peers.copy(to, from, BYTES, stream) }.unwrap();
    assert_eq!(bytes(driver, to, stream), vec![2; BYTES]);
    assert_eq!((double.calls("hipMemcpyPeerAsync"), double.calls("hipDeviceEnablePeerAccess")), (1, 0));
}

/// A failure is told, and does not stand for the next time.
#[test]
fn a_refusal_is_asked_again() {
    let double = Double::new("gfx1101,gfx906");
    let peers = peers(&double);
    double.fail("hipDeviceEnablePeerAccess", 0, 1);
    let error = peers.link(0, 1).unwrap_err();
    assert_eq!((error.call, error.code), ("hipDeviceEnablePeerAccess", 1));
    assert_eq!(peers.link(0, 1), Ok(Link::Direct));
    // Whoever asks beside this one is no fault.
    assert_eq!(self::peers(&double).link(0, 1), Ok(Link::Direct));
}
