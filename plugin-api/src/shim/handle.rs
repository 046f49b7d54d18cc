//! Handles: boxes behind opaque pointers that remember whether a panic spoilt them.

use crate::abi::code;
use crate::error::{Error, ErrorKind, Result, catch};
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a handle points to.
pub(super) struct Handle<T> {
    pub value: T,
    poisoned: AtomicBool,
    last_error: Mutex<Option<Error>>,
}

impl<T> Handle<T> {
    /// Boxes a value and gives the pointer that crosses.
    pub fn leak(value: T) -> *mut c_void {
        let handle = Handle { value, poisoned: AtomicBool::new(false), last_error: Mutex::new(None) };
        Box::into_raw(Box::new(handle)).cast()
    }

    /// # Safety
    /// `pointer` must be null or a live handle of this type.
    pub unsafe fn get<'a>(pointer: *mut c_void) -> Result<&'a Handle<T>> {
        // SAFETY: by the contract of this function.
        unsafe { pointer.cast::<Handle<T>>().as_ref() }.ok_or_else(|| Error::invalid("a null handle"))
    }

    /// # Safety
    /// `pointer` must be null or a live handle of this type that nothing uses any more.
    pub unsafe fn free(pointer: *mut c_void) {
        if !pointer.is_null() {
            // A panic in a destructor must not cross the ABI; the memory is then lost.
            let _ = catch(|| {
                // SAFETY: by the contract of this function.
                drop(unsafe { Box::from_raw(pointer.cast::<Handle<T>>()) });
                Ok(())
            });
        }
    }

    /// Runs a call unless the handle is poisoned; a panic poisons it.
    pub fn call<R>(&self, call: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier panic made this handle unusable"));
        }
        let result = catch(|| call(&self.value));
        if matches!(&result, Err(error) if error.kind == ErrorKind::Panic) {
            self.poisoned.store(true, Ordering::Release);
        }
        result
    }

    /// A call that reports by code and keeps its text in the handle.
    pub fn hot(&self, call: impl FnOnce(&T) -> Result<()>) -> i32 {
        match self.call(call) {
            Ok(()) => code::OK,
            Err(error) => {
                let number = error.kind.code();
                if let Ok(mut last) = self.last_error.lock() {
                    *last = Some(error);
                }
                number
            }
        }
    }

    /// Takes the error of the last hot call that failed.
    pub fn take_last_error(&self) -> Option<Error> {
        self.last_error.lock().ok().and_then(|mut last| last.take())
    }
}
