//! The devices that are open. A launch on one may wait for a launch on another, and nothing runs in the background: so who
//! waits on any of them looks after all.

use crate::device::{Shared, lock};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

static OPENED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// Their number, so that with one device nobody takes the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn add(device: &Arc<Shared>) {
    let mut opened = lock(&OPENED);
    opened.push(Arc::downgrade(device));
    COUNT.store(opened.len(), Ordering::Release);
}

pub(crate) fn remove(device: &Arc<Shared>) {
    let mut opened = lock(&OPENED);
    opened.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(device)) && other.strong_count() > 0);
    COUNT.store(opened.len(), Ordering::Release);
}

/// Looks what the other devices of the same driver have finished, and signals it. True if one of them works on something.
pub(crate) fn progress_others(own: &Arc<Shared>) -> bool {
    if COUNT.load(Ordering::Acquire) < 2 {
        return false;
    }
    let is_other = |device: &Arc<Shared>| !Arc::ptr_eq(device, own) && device.has_driver_of(own);
    // One after the other, and the lock is not held while one is looked at. Whoever is passed over, because the list became
    // shorter meanwhile, is looked at the next time.
    let at = |index: usize| lock(&OPENED).get(index).map(Weak::upgrade);
    let mut is_busy = false;
    for device in (0..).map_while(at).flatten().filter(is_other) {
        is_busy |= device.progress();
    }
    is_busy
}
