//! The few calls of the driver that are needed here. A call that fails ends the program.

use cudarc::driver::sys;
use paceline_kernels::params::linear::cuda_shared_bytes;
use paceline_kernels::params::{Launch, Parameters};
use std::ffi::{CString, c_void};
use std::ptr;

/// Ends the program on an error of the driver.
pub fn check(result: sys::CUresult, what: &str) {
    if result != sys::CUresult::CUDA_SUCCESS {
        eprintln!("{what}: {result:?}");
        std::process::exit(1);
    }
}

/// The first card, with a stream and the modules that were loaded.
pub struct Card {
    context: sys::CUcontext,
    modules: Vec<(String, sys::CUmodule)>,
    stream: sys::CUstream,
    /// Whether launches may begin before the ones before them have ended.
    pub overlap: bool,
}

// SAFETY: the driver may be called with context, stream and modules from any thread.
unsafe impl Sync for Card {}

impl Card {
    /// Opens the first card and loads images from files.
    pub fn open(images: &[String]) -> Self {
        // SAFETY: asked before any other call, as the crate wants.
        if !unsafe { sys::is_culib_present() } {
            eprintln!("there is no CUDA driver here");
            std::process::exit(1);
        }
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the places for results are valid for a write.
        unsafe {
            check(sys::cuInit(0), "cuInit");
            check(sys::cuDevicePrimaryCtxRetain(&mut context, 0), "context");
            check(sys::cuCtxSetCurrent(context), "context");
            check(sys::cuStreamCreate(&mut stream, 1), "stream");
        }
        let load = |path: &String| {
            let bytes = std::fs::read(path).unwrap_or_else(|error| {
                eprintln!("{path}: {error}");
                std::process::exit(1);
            });
            let mut module = ptr::null_mut();
            // SAFETY: the image is in memory during the call.
            check(unsafe { sys::cuModuleLoadData(&mut module, bytes.as_ptr().cast()) }, path);
            (path.clone(), module)
        };
        Self { context, modules: images.iter().map(load).collect(), stream, overlap: false }
    }

    /// Lets the calling thread use the card.
    pub fn enter(&self) {
        // SAFETY: the context is valid.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "context");
    }

    /// An entry of the named module, or of the first that has it.
    pub fn function(&self, entry: &str, module: Option<&str>) -> Option<sys::CUfunction> {
        let name = CString::new(entry).ok()?;
        let wanted = self.modules.iter().filter(|(path, _)| module.is_none_or(|module| path == module));
        let find = |(_, module): &(String, sys::CUmodule)| {
            let mut function = ptr::null_mut();
            // SAFETY: module and name are valid.
            let result = unsafe { sys::cuModuleGetFunction(&mut function, *module, name.as_ptr()) };
            (result == sys::CUresult::CUDA_SUCCESS).then_some(function)
        };
        wanted.into_iter().find_map(find)
    }

    /// Launches a kernel of the named module.
    pub fn launch(&self, p: &impl Parameters, module: Option<&str>) {
        self.launch_as(&p.launch(), p, module);
    }

    /// Launches a kernel of the named module in another way than the parameters say.
    pub fn launch_as(&self, launch: &Launch, p: &impl Parameters, module: Option<&str>) {
        let Some(function) = self.function(launch.entry, module) else {
            eprintln!("no image has the entry {}", launch.entry);
            std::process::exit(1);
        };
        let (mut most, which) = (0, sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        // SAFETY: the function is of a module that is loaded; the place for the result is valid for a write.
        check(unsafe { sys::cuFuncGetAttribute(&mut most, which, function) }, launch.entry);
        let threads = launch.threads.min(u32::try_from(most).unwrap_or(u32::MAX));
        let shared_bytes = launch.shared_bytes.max(cuda_shared_bytes(launch.entry, threads));
        let allowed = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: as above.
        check(unsafe { sys::cuFuncSetAttribute(function, allowed, shared_bytes as i32) }, launch.entry);
        let mut value: sys::CUlaunchAttributeValue = zeroed_value();
        value.programmaticStreamSerializationAllowed = 1;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value,
        };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.groups[0],
            gridDimY: launch.groups[1],
            gridDimZ: launch.groups[2],
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes,
            hStream: self.stream,
            attrs: &mut attribute,
            numAttrs: self.overlap.into(),
        };
        let mut arguments = [p.as_bytes().as_ptr().cast::<c_void>().cast_mut()];
        // SAFETY: the kernel has one parameter, of the size of the structure; its addresses are the caller's.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, function, arguments.as_mut_ptr(), ptr::null_mut()) };
        check(result, launch.entry);
    }

    /// Waits for everything.
    pub fn wait(&self) {
        // SAFETY: the stream is valid.
        check(unsafe { sys::cuStreamSynchronize(self.stream) }, "the launches before");
    }

    /// Captures what `record` launches and answers with the median seconds of a replay.
    pub fn time(&self, replays: usize, record: impl FnOnce()) -> f64 {
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is valid, and nothing else captures.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) }, "capture");
        record();
        let mut events = [ptr::null_mut(); 2];
        // SAFETY: as above; the places for results are valid for a write.
        unsafe {
            check(sys::cuStreamEndCapture(self.stream, &mut graph), "capture");
            check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), "graph");
            for event in &mut events {
                check(sys::cuEventCreate(event, 0), "event");
            }
        }
        let mut times: Vec<f64> = (0..replays + 2)
            .map(|_| {
                let mut milliseconds = 0.0;
                // SAFETY: graph, stream and events are valid until they are destroyed below.
                unsafe {
                    check(sys::cuEventRecord(events[0], self.stream), "event");
                    check(sys::cuGraphLaunch(executable, self.stream), "graph");
                    check(sys::cuEventRecord(events[1], self.stream), "event");
                    check(sys::cuEventSynchronize(events[1]), "graph");
                    check(sys::cuEventElapsedTime_v2(&mut milliseconds, events[0], events[1]), "event");
                }
                f64::from(milliseconds) / 1e3
            })
            .skip(2)
            .collect();
        // SAFETY: nothing of it runs any more.
        unsafe {
            check(sys::cuGraphExecDestroy(executable), "graph");
            check(sys::cuGraphDestroy(graph), "graph");
            for event in events {
                check(sys::cuEventDestroy_v2(event), "event");
            }
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    /// The fastest of some copies on the card, in seconds.
    pub fn time_copy(&self, to: &Buffer, from: &Buffer) -> f64 {
        let time = |_| {
            self.wait();
            let start = std::time::Instant::now();
            self.copy(to, from);
            self.wait();
            start.elapsed().as_secs_f64()
        };
        (0..50).map(time).fold(f64::INFINITY, f64::min)
    }

    fn copy(&self, to: &Buffer, from: &Buffer) {
        // SAFETY: both are memory of the card of at least that size.
        let result = unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.address, from.address, to.bytes.min(from.bytes), self.stream)
        };
        check(result, "copy");
    }
}

fn zeroed_value() -> sys::CUlaunchAttributeValue {
    // SAFETY: a union of plain values, for all of which zeros are a value.
    unsafe { std::mem::zeroed() }
}

/// Memory of the card.
pub struct Buffer {
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory that holds nothing yet.
    pub fn new(bytes: usize) -> Self {
        let mut address = 0;
        // SAFETY: the place for the result is valid.
        check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(256)) }, "memory");
        Self { address, bytes }
    }

    /// Memory with these values, which are plain data.
    pub fn of<T: Copy>(values: &[T]) -> Self {
        let buffer = Self::new(size_of_val(values));
        // SAFETY: the values are readable, and the memory has room for them.
        check(
            unsafe { sys::cuMemcpyHtoD_v2(buffer.address, values.as_ptr().cast(), buffer.bytes) },
            "upload",
        );
        await_uploads();
        buffer
    }

    /// Memory that repeats a pattern.
    pub fn repeating(pattern: &[u8], bytes: usize) -> Self {
        let buffer = Self::new(bytes);
        for at in (0..bytes).step_by(pattern.len().max(1)) {
            let count = pattern.len().min(bytes - at);
            let result = upload(buffer.address + at as u64, &pattern[..count]);
            check(result, "upload");
        }
        await_uploads();
        buffer
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What it holds.
    pub fn read<T: Copy + Default>(&self) -> Vec<T> {
        let mut values = vec![T::default(); self.bytes / size_of::<T>()];
        let bytes = size_of_val(&values[..]);
        // SAFETY: the values are writable, and T is plain data in all uses here.
        check(unsafe { sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes) }, "download");
        values
    }
}

/// A copy of a few bytes returns when the driver has them, and launches wait for no copy: they could be overwritten by it.
fn await_uploads() {
    // SAFETY: the default stream always exists.
    check(unsafe { sys::cuStreamSynchronize(ptr::null_mut()) }, "uploads");
}

fn upload(to: u64, bytes: &[u8]) -> sys::CUresult {
    // SAFETY: the bytes are readable; the caller has the room.
    unsafe { sys::cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and not used by a launch any more when its owner lets go of it.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}
