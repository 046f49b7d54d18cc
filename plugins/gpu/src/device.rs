//! An opened device: its context, its kernels, its queue.

use crate::bind::bind;
use crate::capabilities::DeviceSettings;
use crate::driver::{
    Address, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, KernelHandle, ModuleHandle,
    PeerPlace, StreamHandle,
};
use crate::executable::GpuExecutable;
use crate::import::{Staging, import};
use crate::memory::{ALIGNMENT, GpuArena, Region, region};
use crate::opened;
use crate::platform::{Images, Platform};
use crate::program::GpuPlan;
use crate::queue::{Launch, Queue, Work};
use crate::semaphore::{GpuSemaphore, check_points, points};
use paceline_kernels::images::Image;
use paceline_kernels::params::linear::is_bf16;
use paceline_plugin_api::backend::{
    ArenaClass, Captures, Counters, Device, Load, MemoryInfo, PeerRoute, Point, Span, WeightImport,
};
use paceline_plugin_api::support::DeviceCounters;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An opened GPU.
pub struct GpuDevice {
    shared: Arc<Shared>,
}

/// What everything made from an opened device shares.
pub(crate) struct Shared {
    platform: &'static dyn Platform,
    driver: &'static dyn Driver,
    ordinal: u32,
    context: ContextHandle,
    /// The device in error texts.
    label: String,
    pub settings: DeviceSettings,
    modules: Vec<(&'static str, ModuleHandle)>,
    /// Kernels that were asked for.
    kernels: Mutex<HashMap<&'static str, KernelHandle>>,
    /// Launches, one after the other.
    stream: Option<StreamHandle>,
    queue: Mutex<Option<Queue>>,
    staging: Mutex<Option<Staging>>,
    /// Records steps; held by whoever captures.
    capture: Mutex<Option<StreamHandle>>,
    /// Tables that kernels read, a few KiB, by their bytes.
    constants: Mutex<HashMap<Vec<u8>, Address>>,
    pub profile: crate::executable::Profile,
    lost: OnceLock<Error>,
    pub counters: DeviceCounters,
    captures: AtomicU64,
    replays: AtomicU64,
}

/// The stream for captures, held.
pub(crate) struct CaptureStream<'a> {
    _held: MutexGuard<'a, Option<StreamHandle>>,
    stream: StreamHandle,
}

impl std::ops::Deref for CaptureStream<'_> {
    type Target = StreamHandle;

    fn deref(&self) -> &StreamHandle {
        &self.stream
    }
}

/// A lock that a panic elsewhere does not take away: what it guards is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GpuDevice {
    pub(crate) fn open(
        platform: &'static dyn Platform,
        driver: &'static dyn Driver,
        index: u32,
        ordinal: u32,
        facts: &DeviceFacts,
        settings: DeviceSettings,
    ) -> Result<Self> {
        let label = format!("{}:{index} ({})", platform.id(), facts.name);
        let failed = |error: DriverError| error.on(&label, "opening the device");
        let context = driver.open(ordinal).map_err(failed)?;
        // From here on dropping it gives back what was taken.
        let mut shared = Shared {
            platform,
            driver,
            ordinal,
            context,
            label: label.clone(),
            settings,
            modules: Vec::new(),
            kernels: Mutex::default(),
            stream: None,
            queue: Mutex::new(None),
            staging: Mutex::new(None),
            capture: Mutex::new(None),
            constants: Mutex::default(),
            profile: Default::default(),
            lost: OnceLock::new(),
            counters: DeviceCounters::default(),
            captures: AtomicU64::new(0),
            replays: AtomicU64::new(0),
        };
        let forms = platform.images(&facts.target);
        let loaded = shared.load_first(&forms)?;
        shared.settings.overlap &= loaded.overlaps;
        shared.stream = Some(driver.create_stream().map_err(failed)?);
        shared.queue = Mutex::new(Some(Queue::new(driver).map_err(failed)?));
        let shared = Arc::new(shared);
        opened::add(&shared);
        Ok(Self { shared })
    }
}

impl Drop for GpuDevice {
    /// What is queued holds on to the device, so it has to end.
    fn drop(&mut self) {
        let shared = &self.shared;
        opened::remove(shared);
        if shared.bind().is_ok() {
            let _ = shared.driver.synchronize(shared.stream());
        }
        shared.progress();
        if let Some(queue) = lock(&shared.queue).as_mut() {
            let text = format!("{} was closed before the launch ran", shared.label);
            queue.fail_all(&Error::new(ErrorKind::DeviceLost, text));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let driver = self.driver;
        if self.bind().is_ok() {
            if let Some(stream) = self.stream {
                let _ = driver.synchronize(stream);
            }
            self.profile.log(&self.label);
            if let Some(queue) = lock(&self.queue).as_mut() {
                queue.destroy(driver);
            }
            if let Some(staging) = lock(&self.staging).take() {
                staging.free(driver);
            }
            lock(&self.constants).drain().for_each(|(_, address)| driver.free(address));
            for (_, module) in self.modules.drain(..) {
                driver.unload_module(module);
            }
            if let Some(stream) = lock(&self.capture).take() {
                driver.destroy_stream(stream);
            }
            if let Some(stream) = self.stream {
                driver.destroy_stream(stream);
            }
        }
        driver.close(self.ordinal);
    }
}

impl Shared {
    pub fn driver(&self) -> &'static dyn Driver {
        self.driver
    }

    /// Loads the first of the forms that the driver takes.
    fn load_first<'a>(&mut self, forms: &'a [Images]) -> Result<&'a Images> {
        let (mut refused, mut not_made) = (None, String::new());
        for images in forms {
            let modules = match images.modules() {
                Ok(modules) => modules,
                Err(why) => {
                    tracing::info!("{}: {why}", self.label);
                    not_made = format!(" ({why})");
                    continue;
                }
            };
            match self.load(&modules) {
                Ok(()) => return Ok(images),
                Err(error) => {
                    tracing::info!("{}: the driver does not take {}: {error}", self.label, images.what);
                    refused = Some(error);
                }
            }
        }
        Err(match refused {
            Some(error) => error.on(&self.label, "loading the kernels"),
            None => Error::unsupported(format!(
                "{}: this build has no kernels for the device; use a build that has them, or another device{not_made}",
                self.label
            )),
        })
    }

    /// Loads all of the images, or none.
    fn load(&mut self, images: &[Image]) -> DriverResult<()> {
        for image in images {
            match self.driver.load_module(&image.bytes) {
                Ok(module) => self.modules.push((image.module, module)),
                Err(error) => {
                    self.modules.drain(..).for_each(|(_, module)| self.driver.unload_module(module));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// A place in its memory, as the driver copies between devices.
    fn place(&self, region: Region) -> PeerPlace {
        PeerPlace { ordinal: self.ordinal, context: self.context, address: region.address }
    }

    pub fn has_driver_of(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.driver, other.driver)
    }

    /// Makes this device that of the calling thread.
    pub fn bind(&self) -> DriverResult<()> {
        self.driver.bind(self.context)
    }

    /// What every call begins with: fails if the device is lost, and makes it that of the calling thread.
    pub fn enter(&self) -> Result<&'static dyn Driver> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        self.bind().map_err(|error| self.error(&error, "using the device"))?;
        Ok(self.driver)
    }

    /// The stream of the launches, which an opened device has.
    pub fn stream(&self) -> StreamHandle {
        self.stream.unwrap_or(StreamHandle(0))
    }

    /// The error for the caller; remembers that the device is lost, if it is.
    pub fn error(&self, error: &DriverError, while_what: &str) -> Error {
        let error = error.on(&self.label, while_what);
        if error.kind == ErrorKind::DeviceLost {
            return self.lost.get_or_init(|| error).clone();
        }
        error
    }

    /// A kernel, from whichever module has it.
    pub fn kernel(&self, entry: &'static str) -> Result<KernelHandle> {
        let driver = self.enter()?;
        if let Some(&known) = lock(&self.kernels).get(entry) {
            return Ok(known);
        }
        let missing = |why: String| {
            Error::new(ErrorKind::Internal, format!("{}: there is no kernel `{entry}`: {why}", self.label))
        };
        let name = self.platform.module_of(entry).ok_or_else(|| missing("this build lacks it".into()))?;
        let module = self.modules.iter().find(|(known, _)| *known == name);
        let (_, module) = module.ok_or_else(|| missing(format!("module `{name}` is not loaded")))?;
        let kernel = driver.kernel(*module, entry).map_err(|error| missing(error.to_string()))?;
        lock(&self.kernels).insert(entry, kernel);
        Ok(kernel)
    }

    /// Whether a kernel is loaded, and the settings do not keep it from being used.
    pub fn uses(&self, entry: &str) -> bool {
        let is_loaded = || {
            let module = self.platform.module_of(entry);
            self.modules.iter().any(|(known, _)| module == Some(known))
        };
        (self.settings.bf16 || !is_bf16(entry)) && is_loaded()
    }

    /// Bytes of dynamic shared memory that the platform's form of a kernel wants.
    pub fn shared_bytes(&self, entry: &str, threads: u32) -> u32 {
        self.platform.shared_bytes(entry, threads)
    }

    /// Fills device memory with zeros, and waits for it.
    pub fn clear(&self, at: Address, bytes: u64, what: &str) -> Result<()> {
        let driver = self.enter()?;
        let stream = self.stream();
        // SAFETY: the caller has just allocated the range, and it is waited for.
        unsafe { driver.clear(at, bytes as usize, stream) }
            .and_then(|()| driver.synchronize(stream))
            .map_err(|error| self.error(&error, what))
    }

    /// Looks what the device has finished and signals it. True if it still works on something.
    pub fn progress(&self) -> bool {
        let error_of = |error: &DriverError| self.error(error, "running a step");
        let mut queue = lock(&self.queue);
        let Some(queue) = queue.as_mut() else { return false };
        if let Some(error) = self.lost.get() {
            queue.fail_all(error);
            return false;
        }
        if let Err(error) = self.bind() {
            queue.fail_all(&error_of(&error));
            return false;
        }
        queue.progress(self.driver, self.stream(), error_of).unwrap_or(false)
    }

    /// Queues a launch.
    pub fn submit(&self, launch: Launch) -> Result<()> {
        let driver = self.enter()?;
        let mut queue = lock(&self.queue);
        let Some(queue) = queue.as_mut() else { return Ok(()) };
        queue.push(driver, self.stream(), launch).map_err(|error| {
            let error = self.error(&error, "queueing a step");
            if error.kind == ErrorKind::DeviceLost {
                queue.fail_all(&error);
            }
            error
        })
    }

    /// Runs `work` with the buffers through which memory goes up and down; they are made on first use.
    pub fn with_staging<R>(&self, work: impl FnOnce(&Staging) -> Result<R>) -> Result<R> {
        let driver = self.enter()?;
        let mut staging = lock(&self.staging);
        if staging.is_none() {
            let made = Staging::new(driver).map_err(|error| self.error(&error, "making staging buffers"))?;
            *staging = Some(made);
        }
        match staging.as_ref() {
            Some(staging) => work(staging),
            None => Err(Error::new(ErrorKind::Internal, "there are no staging buffers")),
        }
    }

    /// The stream that steps are captured on, for one capture at a time.
    pub fn capture_stream(&self) -> Result<CaptureStream<'_>> {
        let driver = self.enter()?;
        let mut capture = lock(&self.capture);
        let stream = match *capture {
            Some(stream) => stream,
            None => driver.create_stream().map_err(|error| self.error(&error, "making a stream"))?,
        };
        *capture = Some(stream);
        Ok(CaptureStream { _held: capture, stream })
    }

    /// The address of a table in device memory; equal tables have one.
    pub fn constant(&self, bytes: &[u8]) -> Result<Address> {
        let driver = self.enter()?;
        // Held until the table is there: whoever wants an equal one may use it at once.
        let mut constants = lock(&self.constants);
        if let Some(&known) = constants.get(bytes) {
            return Ok(known);
        }
        let address = driver
            .allocate(bytes.len().max(1) as u64)
            .map_err(|error| self.error(&error, "allocating a table of a step"))?;
        if let Err(error) = self.with_staging(|staging| staging.write(self, address, bytes)) {
            driver.free(address);
            return Err(error);
        }
        constants.insert(bytes.to_vec(), address);
        Ok(address)
    }

    pub fn count_capture(&self) {
        self.captures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_replay(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }
}

impl Device for GpuDevice {
    type Arena = GpuArena;
    type Plan = GpuPlan;
    type Executable = GpuExecutable;
    type Semaphore = GpuSemaphore;

    fn memory(&self) -> Result<MemoryInfo> {
        let driver = self.shared.enter()?;
        let (free, total) =
            driver.memory().map_err(|error| self.shared.error(&error, "asking for its memory"))?;
        Ok(MemoryInfo { total, free, granularity: ALIGNMENT })
    }

    fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<GpuArena> {
        self.shared.enter()?;
        GpuArena::allocate(&self.shared, class, bytes)
    }

    fn import_weights(
        &self,
        imports: &[WeightImport<'_, GpuArena>],
        signal: Point<'_, GpuSemaphore>,
    ) -> Result<()> {
        import(&self.shared, imports)?;
        signal.semaphore.timeline.signal(signal.value);
        Ok(())
    }

    fn load(&self, plan: &GpuPlan, load: &Load<'_, GpuArena>) -> Result<GpuExecutable> {
        self.shared.enter()?;
        bind(&self.shared, plan, load)
    }

    fn create_semaphore(&self, initial: u64) -> Result<GpuSemaphore> {
        self.shared.enter()?;
        Ok(GpuSemaphore::new(Arc::clone(&self.shared), initial))
    }

    fn peer_copy(
        &self,
        to: Span<'_, GpuArena>,
        from: Span<'_, GpuArena>,
        waits: &[Point<'_, GpuSemaphore>],
        signals: &[Point<'_, GpuSemaphore>],
    ) -> Result<PeerRoute> {
        let (shared, source) = (&self.shared, from.arena.device());
        let driver = shared.enter()?;
        if !Arc::ptr_eq(to.arena.device(), shared) {
            return Err(Error::invalid(format!("a copy on {} to memory of another device", shared.label)));
        }
        if !source.has_driver_of(shared) {
            return Err(Error::invalid(format!(
                "{} is of another driver than {}",
                source.label, shared.label
            )));
        }
        let place = |shared: &Shared, span: &Span<'_, GpuArena>| {
            let region = region(span);
            let region = region.ok_or_else(|| Error::invalid("a copy between devices in an Io arena"))?;
            Ok::<_, Error>(shared.place(region))
        };
        let (target, origin) = (place(shared, &to)?, place(source, &from)?);
        check_points(waits, signals)?;
        let route = driver
            .peer_route(target.ordinal, origin.ordinal)
            .map_err(|error| shared.error(&error, "asking for access to another device"))?;
        if route == PeerRoute::None {
            let (to, from) = (&shared.label, &source.label);
            return Err(Error::unsupported(format!("the driver does not copy from {from} to {to}")));
        }
        let work =
            Work::Copy { to: target, from: origin, bytes: to.bytes as usize, _source: Arc::clone(source) };
        shared.submit(Launch { work, waits: points(shared, waits), signals: points(shared, signals) })?;
        Ok(route)
    }

    fn captures(&self) -> Captures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Captures {
            captures: get(&self.shared.captures),
            replays: get(&self.shared.replays),
            ..self.shared.settings.captures()
        }
    }
}
