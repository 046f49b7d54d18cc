//! Counters of a device.

use crate::abi::Counters;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a device does, from any thread: what [`Device::counters`](crate::backend::Device::counters) tells. All
/// counts but that of arenas only rise.
#[derive(Debug, Default)]
pub struct DeviceCounters {
    launches: AtomicU64,
    waits: AtomicU64,
    uploads: AtomicU64,
    upload_bytes: AtomicU64,
    downloads: AtomicU64,
    download_bytes: AtomicU64,
    quantized_rows: AtomicU64,
    arena_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl DeviceCounters {
    /// A launch was queued.
    pub fn launch(&self) {
        add(&self.launches, 1);
    }

    /// A wait for a semaphore found the value not yet reached.
    pub fn wait(&self) {
        add(&self.waits, 1);
    }

    /// So many bytes were copied from host memory to the device.
    pub fn upload(&self, bytes: u64) {
        add(&self.uploads, 1);
        add(&self.upload_bytes, bytes);
    }

    /// So many bytes were copied from the device to host memory.
    pub fn download(&self, bytes: u64) {
        add(&self.downloads, 1);
        add(&self.download_bytes, bytes);
    }

    /// So many rows of activations were quantised for products.
    pub fn quantized(&self, rows: u64) {
        add(&self.quantized_rows, rows);
    }

    /// An arena of so many bytes was made.
    pub fn arena_made(&self, bytes: u64) {
        add(&self.arena_bytes, bytes);
    }

    /// An arena of so many bytes, which was counted when it was made, was freed.
    pub fn arena_freed(&self, bytes: u64) {
        self.arena_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// All counts, each as it is now.
    pub fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            size: size_of::<Counters>(),
            launches: get(&self.launches),
            waits: get(&self.waits),
            uploads: get(&self.uploads),
            upload_bytes: get(&self.upload_bytes),
            downloads: get(&self.downloads),
            download_bytes: get(&self.download_bytes),
            quantized_rows: get(&self.quantized_rows),
            arena_bytes: get(&self.arena_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_its_own_place() {
        let counters = DeviceCounters::default();
        counters.launch();
        (0..2).for_each(|_| counters.wait());
        [10, 20, 30].into_iter().for_each(|bytes| counters.upload(bytes));
        [1, 2, 3, 4].into_iter().for_each(|bytes| counters.download(bytes));
        counters.quantized(5);
        counters.arena_made(700);
        counters.arena_freed(100);
        let Counters {
            launches,
            waits,
            uploads,
            upload_bytes,
            downloads,
            download_bytes,
            quantized_rows,
            arena_bytes,
            ..
        } = counters.read();
        assert_eq!((launches, waits, uploads, downloads, quantized_rows), (1, 2, 3, 4, 5));
        assert_eq!((upload_bytes, download_bytes, arena_bytes), (60, 10, 600));
    }
}
