//! Memory that goes up and down through pinned buffers: weights, packed on the way, and states.

use crate::device::Shared;
use crate::driver::{Address, Driver, DriverError, DriverResult, EventHandle, StreamHandle};
use crate::layout::{Layout, matrices};
use crate::memory::{GpuArena, Region, region};
use paceline_kernels::layout::{PANEL_ROWS, WeightKind, pack, packed_bytes};
use paceline_plugin_api::backend::WeightImport;
use paceline_plugin_api::{Error, Result};
use std::sync::Arc;

/// Bytes of a buffer. While the device reads one, the other is filled.
pub(crate) const BUFFER: usize = 32 << 20;
/// Pieces smaller than this are packed by one thread.
const WORTH_A_THREAD: usize = 1 << 20;
/// Most threads that pack.
const MOST_THREADS: usize = 16;

/// Two pinned buffers, and a stream of their own.
pub(crate) struct Staging {
    driver: &'static dyn Driver,
    buffers: [*mut u8; 2],
    events: [EventHandle; 2],
    stream: StreamHandle,
}

// SAFETY: the buffers are pinned memory that this owns; it is used under a lock.
unsafe impl Send for Staging {}

/// Waits for all copies when it goes, also on an error or a panic: the next use finds the buffers free.
struct Settled<'a>(&'a Staging);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        let _ = self.0.driver.synchronize(self.0.stream);
    }
}

/// What fills a buffer, piece by piece.
type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<()>;

impl Staging {
    pub fn new(driver: &'static dyn Driver) -> DriverResult<Self> {
        // What was made before a failure stays until the process ends; there is no memory then anyway.
        let buffer = || driver.allocate_pinned(BUFFER);
        let event = || driver.create_event(false);
        Ok(Self {
            driver,
            buffers: [buffer()?, buffer()?],
            events: [event()?, event()?],
            stream: driver.create_stream()?,
        })
    }

    pub fn free(self, driver: &dyn Driver) {
        let _ = driver.synchronize(self.stream);
        self.events.into_iter().for_each(|event| driver.destroy_event(event));
        // SAFETY: allocated so, and the stream has passed all that used them.
        self.buffers.into_iter().for_each(|buffer| unsafe { driver.free_pinned(buffer) });
        driver.destroy_stream(self.stream);
    }

    fn wait(&self, event: EventHandle) -> DriverResult<()> {
        while !self.driver.has_passed(event)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Copies up what `fill` writes into pieces of these lengths, one after another, each at most [`BUFFER`].
    fn up(
        &self,
        shared: &Shared,
        target: Address,
        lengths: impl Iterator<Item = usize>,
        fill: Fill<'_>,
    ) -> Result<()> {
        let _settled = Settled(self);
        self.try_up(shared, target, lengths, fill)
    }

    fn try_up(
        &self,
        shared: &Shared,
        target: Address,
        lengths: impl Iterator<Item = usize>,
        fill: Fill<'_>,
    ) -> Result<()> {
        let failed = |error: DriverError| shared.error(&error, "copying to the device");
        let mut at = target;
        let mut used = [false; 2];
        for (number, length) in lengths.enumerate() {
            debug_assert!(length <= BUFFER);
            let turn = number % 2;
            if used[turn] {
                self.wait(self.events[turn]).map_err(failed)?;
            }
            // SAFETY: the buffer is this long, and the device has read what it held.
            let buffer = unsafe { std::slice::from_raw_parts_mut(self.buffers[turn], length) };
            fill(buffer)?;
            // SAFETY: the buffer stays unchanged until its event has passed; the caller's range is in an arena.
            unsafe { self.driver.copy_to_device(at, self.buffers[turn], length, self.stream) }
                .and_then(|()| self.driver.record(self.events[turn], self.stream))
                .map_err(failed)?;
            used[turn] = true;
            shared.counters.upload(length as u64);
            at += length as u64;
        }
        self.driver.synchronize(self.stream).map_err(failed)
    }

    /// Copies bytes to the device and waits for it.
    pub fn write(&self, shared: &Shared, target: Address, source: &[u8]) -> Result<()> {
        let mut pieces = source.chunks(BUFFER);
        self.up(shared, target, source.chunks(BUFFER).map(<[u8]>::len), &mut |buffer| {
            buffer.copy_from_slice(pieces.next().unwrap_or_default());
            Ok(())
        })
    }

    /// Copies bytes from the device and waits for it.
    pub fn read(&self, shared: &Shared, source: Address, target: &mut [u8]) -> Result<()> {
        let _settled = Settled(self);
        let failed = |error: DriverError| shared.error(&error, "copying from the device");
        let mut at = source;
        for piece in target.chunks_mut(BUFFER) {
            // SAFETY: the buffer is at least this long, and nothing else uses it until the stream is waited for; the
            // caller's range is in an arena.
            unsafe { self.driver.copy_to_host(self.buffers[0], at, piece.len(), self.stream) }
                .and_then(|()| self.driver.synchronize(self.stream))
                .map_err(failed)?;
            // SAFETY: as above.
            piece.copy_from_slice(unsafe { std::slice::from_raw_parts(self.buffers[0], piece.len()) });
            shared.counters.download(piece.len() as u64);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Imports weights one after the other; all are in place when it returns.
///
/// # Errors
/// A weight whose bytes or target do not fit, by name, before anything of it is copied; a device that fails.
pub(crate) fn import(shared: &Arc<Shared>, imports: &[WeightImport<'_, GpuArena>]) -> Result<()> {
    shared.with_staging(|staging| imports.iter().try_for_each(|import| one(shared, staging, import)))
}

fn one(shared: &Arc<Shared>, staging: &Staging, import: &WeightImport<'_, GpuArena>) -> Result<()> {
    let WeightImport { weight, layout, target, source } = import;
    let named = |what: &str| Error::invalid(format!("weight `{}`: {what}", weight.name));
    let kind =
        Layout::from_id(layout.layout).ok_or_else(|| named("its layout is not one of this backend's"))?;
    let bytes = kind.bytes(&weight.shape).map_err(|error| named(&error.message))?;
    if !Arc::ptr_eq(target.arena.device(), shared) {
        return Err(named("its target is memory of another device"));
    }
    let Some(Region { address, bytes: room }) = region(target) else {
        return Err(named("its target is host memory, not an arena for weights"));
    };
    if room != bytes {
        return Err(named(&format!("the target has {room} bytes, the layout takes {bytes}")));
    }
    if !address.is_multiple_of(paceline_kernels::layout::ALIGNMENT as u64) {
        return Err(named("its target is not aligned"));
    }
    match kind {
        Layout::Elements => {
            if source.len() as u64 != bytes {
                return Err(named(&format!("{} bytes were given for {bytes}", source.len())));
            }
            staging.write(shared, address, source)
        }
        Layout::Packed(kind) => {
            let (count, rows, columns) = matrices(&weight.shape).map_err(|error| named(&error.message))?;
            let needed = paceline_kernels::layout::canonical_bytes(kind, count * rows, columns);
            let needed = needed.map_err(|error| named(&error.to_string()))?;
            if source.len() != needed {
                return Err(named(&format!("{} bytes were given for {needed}", source.len())));
            }
            // Experts of whole panels lie as one matrix does; the last panel of others has rows of padding.
            let is_one = !kind.is_quantized() || rows.is_multiple_of(PANEL_ROWS);
            let (count, rows) = if is_one { (1, count * rows) } else { (count, rows) };
            let (from, to) = (needed / count, bytes / count as u64);
            for (source, target) in source.chunks(from).zip((address..).step_by(to as usize)) {
                packed(shared, staging, target, kind, [rows, columns], source)
                    .map_err(|error| named(&error.message))?;
            }
            Ok(())
        }
    }
}

/// Packs a matrix into the buffers, some panels at a time.
fn packed(
    shared: &Arc<Shared>,
    staging: &Staging,
    target: Address,
    kind: WeightKind,
    [rows, columns]: [usize; 2],
    source: &[u8],
) -> Result<()> {
    let size = |rows: usize| packed_bytes(kind, rows, columns).map_err(|e| Error::invalid(e.to_string()));
    let (panel, row) = (size(PANEL_ROWS)?, source.len() / rows);
    let panels = (BUFFER / panel).max(1);
    if panel > BUFFER {
        return Err(Error::unsupported(format!(
            "rows of {columns} elements are longer than a staging buffer"
        )));
    }
    let piece_rows = panels * PANEL_ROWS;
    let lengths: Vec<usize> = (0..rows)
        .step_by(piece_rows)
        .map(|first| size(piece_rows.min(rows - first)))
        .collect::<Result<_>>()?;
    let mut pieces = source.chunks(piece_rows * row);
    staging.up(shared, target, lengths.iter().copied(), &mut |buffer| {
        pack_piece(kind, columns, panel, row, pieces.next().unwrap_or_default(), buffer)
    })
}

/// Packs whole panels, on several threads if it is worth it.
fn pack_piece(
    kind: WeightKind,
    columns: usize,
    panel: usize,
    row: usize,
    source: &[u8],
    target: &mut [u8],
) -> Result<()> {
    let pack = |source: &[u8], target: &mut [u8]| {
        pack(kind, source.len() / row, columns, source, target).map_err(|e| Error::invalid(e.to_string()))
    };
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let threads = most.min(target.len() / WORTH_A_THREAD);
    if threads < 2 {
        return pack(source, target);
    }
    let panels = (source.len() / row).div_ceil(PANEL_ROWS).div_ceil(threads);
    // The last panel of a float kind is as long as its rows.
    let parts = source.chunks(panels * PANEL_ROWS * row).zip(target.chunks_mut(panels * panel));
    std::thread::scope(|scope| {
        let helpers: Vec<_> =
            parts.map(|(source, target)| scope.spawn(move || pack(source, target))).collect();
        helpers.into_iter().try_for_each(|helper| {
            helper.join().unwrap_or_else(|_| {
                Err(Error::new(paceline_plugin_api::ErrorKind::Panic, "packing a weight panicked"))
            })
        })
    })
}
