//! What both drivers keep of devices that are open.

use super::lock;
use paceline_gpu::driver::{ContextHandle, DriverResult};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Opened devices by their numbers, and how often they are open. One stays when it is closed, unless it was lost.
pub(super) struct Opened<C>(Mutex<HashMap<u32, (Arc<C>, u32)>>);

impl<C> Default for Opened<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Opened<C> {
    /// Takes hold of a device, which is made if it was not open; the handle is its address.
    pub fn open(&self, ordinal: u32, make: impl FnOnce() -> DriverResult<C>) -> DriverResult<ContextHandle> {
        let mut open = lock(&self.0);
        let context = match open.get_mut(&ordinal) {
            Some((context, count)) => {
                *count += 1;
                Arc::as_ptr(context)
            }
            None => {
                let (context, _) = open.entry(ordinal).or_insert((Arc::new(make()?), 1));
                Arc::as_ptr(context)
            }
        };
        Ok(ContextHandle(context as usize))
    }

    /// Lets go of it.
    pub fn close(&self, ordinal: u32, is_lost: impl FnOnce(&C) -> bool) {
        let mut open = lock(&self.0);
        if let Some((context, count)) = open.get_mut(&ordinal) {
            *count = count.saturating_sub(1);
            // Threads may have the address of what they bound last, so nothing is freed.
            if *count == 0 && is_lost(context) {
                std::mem::forget(open.remove(&ordinal));
            }
        }
    }
}

/// What happened to a device: its loss, and its memory.
#[derive(Default)]
pub(super) struct Account {
    is_lost: AtomicBool,
    taken: AtomicU64,
    sizes: Mutex<HashMap<usize, u64>>,
}

impl Account {
    /// Remembers that the device is lost.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// True if it was.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Counts memory that was allocated; returns its address.
    pub fn add(&self, address: usize, bytes: u64) -> usize {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        lock(&self.sizes).insert(address, bytes);
        address
    }

    /// Counts it no more.
    pub fn remove(&self, address: usize) {
        if let Some(bytes) = lock(&self.sizes).remove(&address) {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// What is left of so many bytes, as far as this process knows.
    pub fn free_of(&self, total: u64) -> u64 {
        total.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_stays_until_it_is_lost() {
        let opened = Opened::<Account>::default();
        let open = || opened.open(0, || Ok(Account::default())).unwrap();
        let first = open();
        assert_eq!(open(), first);
        opened.close(0, |_| panic!("it is still open once"));
        opened.close(0, Account::is_lost);
        assert_eq!(open(), first);
        // SAFETY: the address of what is open.
        unsafe { &*(first.0 as *const Account) }.lose();
        opened.close(0, Account::is_lost);
        assert_ne!(open(), first);
    }

    #[test]
    fn memory_is_counted_until_it_is_given_back() {
        let account = Account::default();
        assert_eq!(account.add(16, 100), 16);
        account.add(32, 50);
        account.remove(16);
        account.remove(999);
        assert_eq!((account.free_of(200), account.free_of(10)), (150, 0));
    }
}
