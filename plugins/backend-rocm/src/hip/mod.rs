//! The functions of the HIP library, opened at run time. All their names are here, so that a crate of bindings could take
//! the place of this module; those that exist cannot be built, or find the library, without a whole ROCm (`README.md`).
//!
//! Functions and numbers are those that HIP 5.0 to 7.14 have in common. Structures that changed between versions are not
//! used: what is asked of a device comes number by number, but for the chip's name, which is a text at a place that the
//! name of its function fixes ([`Hip::target`]).

pub mod rtc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};

/// File names of the library, the newest first.
pub const LIBRARIES: [&str; 4] =
    ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The oldest version that will do, and the first with structures of its own, as `hipRuntimeGetVersion` states them:
/// 10,000,000 · major + 100,000 · minor + patch.
pub const OLDEST_VERSION: c_int = 50_000_000;
const VERSION_6: c_int = 60_000_000;

/// A handle: of a stream, an event, a module, a kernel, a graph.
pub type Handle = *mut c_void;

/// Answers that are looked at.
pub mod answer {
    use std::ffi::c_int;

    pub const OUT_OF_MEMORY: c_int = 2;
    /// There is no device; HIP 5 says so with the second.
    pub const NO_DEVICE: [c_int; 2] = [100, 101];
    pub const INVALID_IMAGE: c_int = 200;
    pub const NO_BINARY_FOR_GPU: c_int = 209;
    pub const NOT_READY: c_int = 600;
    pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
    /// After these no call on the device succeeds: memory or bus errors, illegal addresses, launches that hung or failed,
    /// a context that is gone, asserts, unknown errors.
    pub const LASTING: [c_int; 8] = [214, 700, 702, 709, 710, 719, 720, 999];
}

/// Numbers that a device can be asked for.
pub mod attribute {
    use std::ffi::c_int;

    pub const INTEGRATED: c_int = 16;
    pub const MULTIPROCESSORS: c_int = 63;
    pub const WAVE: c_int = 87;
    pub const FINE_GRAIN: c_int = 10_016;
}

/// A stream that does not wait for the stream of everybody.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// An event without a time.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// Pinned memory for all devices.
pub const HOST_PORTABLE: c_uint = 1;
/// A capture that keeps only its own thread from what it does not bear.
pub const CAPTURE_THREAD_LOCAL: c_int = 1;

macro_rules! functions {
    ($($name:ident($($type:ty),*);)*) => {
        /// The functions, each under its own name.
        #[allow(non_snake_case, reason = "the names are the library's")]
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($type),*) -> c_int,)* }

        impl Functions {
            /// How many there are.
            #[cfg(test)]
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Looks all of them up; names the first that is not there.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the types are those of the library's header.
                    $($name: unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map(|function| *function)
                        .map_err(|_| stringify!($name))?,)*
                })
            }
        }
    };
}

functions! {
    hipInit(c_uint);
    hipRuntimeGetVersion(*mut c_int);
    hipGetDeviceCount(*mut c_int);
    hipSetDevice(c_int);
    hipDeviceGet(*mut c_int, c_int);
    hipDeviceGetName(*mut c_char, c_int, c_int);
    hipDeviceGetPCIBusId(*mut c_char, c_int, c_int);
    hipDeviceTotalMem(*mut usize, c_int);
    hipDeviceGetAttribute(*mut c_int, c_int, c_int);
    hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    hipDeviceEnablePeerAccess(c_int, c_uint);
    hipMemGetInfo(*mut usize, *mut usize);
    hipMalloc(*mut *mut c_void, usize);
    hipFree(*mut c_void);
    hipHostMalloc(*mut *mut c_void, usize, c_uint);
    hipHostFree(*mut c_void);
    hipMemcpyHtoDAsync(*mut c_void, *const c_void, usize, Handle);
    hipMemcpyDtoHAsync(*mut c_void, *const c_void, usize, Handle);
    hipMemcpyDtoDAsync(*mut c_void, *const c_void, usize, Handle);
    hipMemcpyPeerAsync(*mut c_void, c_int, *const c_void, c_int, usize, Handle);
    hipMemsetAsync(*mut c_void, c_int, usize, Handle);
    hipModuleLoadData(*mut Handle, *const c_void);
    hipModuleUnload(Handle);
    hipModuleGetFunction(*mut Handle, Handle, *const c_char);
    hipModuleLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    hipStreamCreateWithFlags(*mut Handle, c_uint);
    hipStreamDestroy(Handle);
    hipStreamSynchronize(Handle);
    hipEventCreateWithFlags(*mut Handle, c_uint);
    hipEventDestroy(Handle);
    hipEventRecord(Handle, Handle);
    hipEventQuery(Handle);
    hipEventElapsedTime(*mut f32, Handle, Handle);
    hipStreamBeginCapture(Handle, c_int);
    hipStreamEndCapture(Handle, *mut Handle);
    hipGraphInstantiate(*mut Handle, Handle, *mut Handle, *mut c_char, usize);
    hipGraphDestroy(Handle);
    hipGraphExecDestroy(Handle);
    hipGraphLaunch(Handle, Handle);
}

type Text = unsafe extern "C" fn(c_int) -> *const c_char;
type Properties = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;

/// Why a library is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// There is none of that name.
    Missing,
    /// It is there and does not load, or lacks a function; a clause about it.
    Unusable(String),
}

/// The library, open for as long as the process runs.
pub struct Hip {
    pub functions: Functions,
    error_name: Text,
    error_text: Text,
    uuid: Option<Uuid>,
    /// The properties of a device, and where in them the chip's name is.
    properties: Option<(Properties, usize)>,
    /// The compiler is part of the library in older versions.
    pub library: &'static Library,
}

/// Room for the structure of properties, more than any version needs.
const PROPERTIES_BYTES: usize = 8192;
/// Where the chip's name is since HIP 6, whose function has a name of its own, and where before.
const TARGET_AT: [usize; 2] = [1160, 396];
const TARGET_BYTES: usize = 256;

impl Hip {
    /// Opens the library with this name or path.
    ///
    /// # Errors
    /// It is not there, or of no use.
    pub fn open(name: &OsStr) -> Result<Self, OpenError> {
        // SAFETY: the library's initialisation has no conditions.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let mut text = error.to_string();
            if let Some(source) = std::error::Error::source(&error) {
                text = source.to_string();
            }
            // What is missing may also be a library that this one needs.
            let is_own = text.starts_with(&format!("{}:", name.to_string_lossy()));
            match is_own && text.ends_with("No such file or directory") {
                true => OpenError::Missing,
                false => OpenError::Unusable(format!("cannot be loaded: {text}")),
            }
        })?;
        // A driver is never unloaded: it has threads of its own.
        let library: &'static Library = Box::leak(Box::new(library));
        let lacks = |name: &str| OpenError::Unusable(format!("has no function `{name}`"));
        let functions = Functions::find(library).map_err(lacks)?;
        // SAFETY: the types are those of the library's header.
        let (error_name, error_text, uuid, new, old) = unsafe {
            let text = |name: &'static str, bytes: &[u8]| {
                library.get::<Text>(bytes).map(|function| *function).map_err(|_| lacks(name))
            };
            let properties = |name: &[u8]| library.get::<Properties>(name).ok().map(|function| *function);
            (
                text("hipGetErrorName", b"hipGetErrorName\0")?,
                text("hipGetErrorString", b"hipGetErrorString\0")?,
                library.get::<Uuid>(b"hipDeviceGetUuid\0").ok().map(|function| *function),
                properties(b"hipGetDevicePropertiesR0600\0"),
                properties(b"hipGetDeviceProperties\0"),
            )
        };
        let mut hip = Self { functions, error_name, error_text, uuid, properties: None, library };
        let is_new = hip.version().is_ok_and(|version| version >= VERSION_6);
        hip.properties = match (new, old) {
            (Some(new), _) if is_new => Some((new, TARGET_AT[0])),
            (_, old) => old.map(|old| (old, TARGET_AT[1])),
        };
        Ok(hip)
    }

    /// The library's name for an answer, and its sentence.
    pub fn texts(&self, code: c_int) -> (String, String) {
        let text = |function: Text| {
            // SAFETY: the library gives a text that it keeps, or nothing.
            unsafe {
                let text = function(code);
                if text.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
            }
        };
        (text(self.error_name), text(self.error_text))
    }

    /// The version of the runtime.
    ///
    /// # Errors
    /// The library's answer.
    pub fn version(&self) -> Result<c_int, c_int> {
        let mut version = 0;
        // SAFETY: the library writes the number.
        match unsafe { (self.functions.hipRuntimeGetVersion)(&mut version) } {
            0 => Ok(version),
            code => Err(code),
        }
    }

    /// A device's unique id; none where the library or the device has none.
    pub fn uuid(&self, device: c_int) -> Option<String> {
        let mut bytes = [0u8; 16];
        // SAFETY: the library writes 16 bytes.
        let code = unsafe { (self.uuid?)(&mut bytes, device) };
        let text = std::str::from_utf8(&bytes).ok()?.trim_end_matches('\0');
        (code == 0 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric()))
            .then(|| format!("GPU-{text}"))
    }

    /// The chip, such as `gfx1101`, without the features behind its name.
    ///
    /// # Errors
    /// What the library says, or that it says something else than a chip.
    pub fn target(&self, device: c_int) -> Result<String, String> {
        let (function, at) = self.properties.ok_or("it has no function for the properties of a device")?;
        let mut structure = vec![0u64; PROPERTIES_BYTES / 8];
        // SAFETY: the structure is shorter in every version, and the words are aligned for it.
        let code = unsafe { function(structure.as_mut_ptr().cast(), device) };
        if code != 0 {
            return Err(format!("asking for the device's properties: {}", self.texts(code).0));
        }
        // SAFETY: the words are as many bytes, and every byte is a value.
        let bytes = unsafe { std::slice::from_raw_parts(structure.as_ptr().cast::<u8>(), PROPERTIES_BYTES) };
        let text = bytes[at..at + TARGET_BYTES].split(|&byte| byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let target = text.split(':').next().unwrap_or_default();
        let is_chip = target.strip_prefix("gfx").is_some_and(|rest| {
            (3..=5).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        match is_chip {
            true => Ok(target.to_owned()),
            false => Err(format!("`{}` is no chip", text.escape_debug())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_missing_and_another_one_unusable() {
        let open = |name: &str| Hip::open(OsStr::new(name)).err();
        assert_eq!(open("libamdhip64.so.4711"), Some(OpenError::Missing));
        assert_eq!(open("/no/such/place/libamdhip64.so"), Some(OpenError::Missing));
        let Some(OpenError::Unusable(why)) = open("libm.so.6") else { panic!("libm is no HIP library") };
        assert!(why.contains("hipInit"), "{why}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no library").unwrap();
        let Some(OpenError::Unusable(why)) = open(file.path().to_str().unwrap()) else {
            panic!("a text file")
        };
        assert!(why.contains("cannot be loaded"), "{why}");
        assert!(Functions::NAMES.len() < 45);
    }
}
