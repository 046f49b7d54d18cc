//! Errors that cross the ABI, and the guard that keeps panics inside a plugin.

use crate::abi::{Argument, Status, Str, code};
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller broke a contract.
    Invalid,
    /// Not known or not possible here.
    Unsupported,
    /// Memory is exhausted.
    OutOfMemory,
    /// The device is gone.
    DeviceLost,
    /// A limit of time passed.
    Timeout,
    /// The plugin panicked.
    Panic,
    /// An earlier failure made the handle unusable.
    Poisoned,
    /// Anything else.
    Internal,
}

impl ErrorKind {
    /// The number that crosses the ABI.
    pub fn code(self) -> i32 {
        match self {
            Self::Invalid => code::INVALID,
            Self::Unsupported => code::UNSUPPORTED,
            Self::OutOfMemory => code::OUT_OF_MEMORY,
            Self::DeviceLost => code::DEVICE_LOST,
            Self::Timeout => code::TIMEOUT,
            Self::Panic => code::PANIC,
            Self::Poisoned => code::POISONED,
            Self::Internal => code::INTERNAL,
        }
    }

    /// The kind of a code; unknown codes are internal errors.
    pub fn from_code(value: i32) -> Self {
        match value {
            code::INVALID => Self::Invalid,
            code::UNSUPPORTED => Self::Unsupported,
            code::OUT_OF_MEMORY => Self::OutOfMemory,
            code::DEVICE_LOST => Self::DeviceLost,
            code::TIMEOUT => Self::Timeout,
            code::PANIC => Self::Panic,
            code::POISONED => Self::Poisoned,
            _ => Self::Internal,
        }
    }
}

/// An error of a plugin call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind.
    pub kind: ErrorKind,
    /// What went wrong, for people.
    pub message: String,
}

/// Result of a plugin call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The caller broke a contract.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Not known or not possible here.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Memory is exhausted.
    pub fn out_of_memory(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutOfMemory, message)
    }

    /// Moves the error into a status object that the other side releases.
    pub fn into_status(self) -> *mut Status {
        let message = Box::leak(self.message.into_boxed_str());
        Box::into_raw(Box::new(Status {
            size: size_of::<Status>(),
            code: self.kind.code(),
            flags: 0,
            message: Str::new(message),
            release: Some(release),
        }))
    }

    /// Takes over a status object: reads and releases it. Null is success.
    ///
    /// # Errors
    /// The error that the object carries.
    ///
    /// # Safety
    /// `status` must be null or a status of the other side that was not released.
    pub unsafe fn take(status: *mut Status) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: by the contract of this function.
        unsafe {
            let error = Error::new(ErrorKind::from_code((*status).code), (*status).message.to_text());
            if let Some(release) = (*status).release {
                release(status);
            }
            Err(error)
        }
    }
}

unsafe extern "C" fn release(status: *mut Status) {
    // SAFETY: made by `into_status`, released once; the message was leaked there.
    unsafe {
        let status = Box::from_raw(status);
        let message = std::ptr::slice_from_raw_parts_mut(status.message.ptr.cast_mut(), status.message.len);
        drop(Box::from_raw(message));
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Reads a struct that begins with its size. One of a later minor version is cut; fields that one of an earlier
/// version lacks are zero.
///
/// # Safety
/// `pointer` must be null or point to a struct whose first field is its size in bytes. All zeros must be a value of `T`.
pub(crate) unsafe fn read_argument<T: Argument>(pointer: *const T) -> Result<T> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Error::invalid("a struct pointer is null or not aligned"));
    }
    // SAFETY: by the contract of this function the first field can be read, and as many bytes as it states.
    unsafe {
        let stated = *pointer.cast::<usize>();
        if stated < T::FIRST_SIZE {
            return Err(Error::invalid("a struct is shorter than version 1.0 of the ABI defines it"));
        }
        let mut value = MaybeUninit::<T>::zeroed();
        let known = stated.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Writes as much of a struct as the caller knows, and how much that was into its first field.
///
/// # Safety
/// `out` must be null or point to a struct whose first field is its size in bytes.
pub(crate) unsafe fn write_sized<T: Copy>(out: *mut T, mut value: T) -> Result<()> {
    if out.is_null() || !out.is_aligned() {
        return Err(Error::invalid("a place for a result is null or not aligned"));
    }
    // SAFETY: by the contract of this function; only as many bytes are written as the caller states.
    unsafe {
        let known = (*out.cast::<usize>()).min(size_of::<T>());
        (&raw mut value).cast::<usize>().write(known);
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast::<u8>(), known);
    }
    Ok(())
}

/// Runs a call and turns an error or a panic into a status; null on success.
pub(crate) fn guard(call: impl FnOnce() -> Result<()>) -> *mut Status {
    match catch(call) {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => error.into_status(),
    }
}

/// Runs a call and turns a panic into an error of kind [`ErrorKind::Panic`].
///
/// # Errors
/// What the call returns, or the panic's message.
pub fn catch<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // State that a panic may have left half-changed is behind a handle that the shim poisons.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without text".to_owned());
        Err(Error::new(ErrorKind::Panic, format!("the plugin panicked: {message}")))
    })
}
