//! The functions of Level Zero.

use crate::objects::Object;
use crate::world::{World, with};
use level_zero_sys as ze;

type Code = ze::ze_result_t;
type Answer<T> = Result<T, Code>;

/// The one driver and the one device.
const DRIVER: usize = 1;
const DEVICE: usize = 2;
const GROUP: u32 = 1024;

/// What a kind of handle leads to.
macro_rules! found {
    ($world:expr, $handle:expr, $pattern:pat => $value:expr) => {
        match $world.objects.get_mut(&($handle as usize)) {
            Some($pattern) => Ok($value),
            _ => Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        }
    };
}

/// A function of Level Zero whose body gives an answer.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> Code {
            let answer = enter(stringify!($name)).and_then(|()| -> Answer<()> { $body });
            answer.err().unwrap_or(ze::ZE_RESULT_SUCCESS)
        }
    )*};
}

pub mod devices;
pub mod lists;
pub mod modules;

/// Writes what a call gives.
///
/// # Safety
/// The pointer is null or of a place for it.
unsafe fn give<T>(to: *mut T, value: T) -> Answer<()> {
    if to.is_null() {
        return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// A structure that says that it is of this kind.
///
/// # Safety
/// The pointer is null or of a structure of the API.
unsafe fn structure<'a, T>(at: *const T, kind: u32) -> Answer<&'a T> {
    if at.is_null() {
        return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: the caller's promise; every structure begins with its kind.
    match unsafe { at.cast::<u32>().read() } == kind {
        // SAFETY: as above.
        true => Ok(unsafe { &*at }),
        false => Err(ze::ZE_RESULT_ERROR_INVALID_ENUMERATION),
    }
}

fn is_device(device: ze::ze_device_handle_t) -> Answer<()> {
    if device as usize == DEVICE { Ok(()) } else { Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE) }
}

fn is_context(context: ze::ze_context_handle_t) -> Answer<()> {
    with(|world| found!(world, context, Object::Context => ()))
}

fn widths(world: &World) -> Vec<u32> {
    if world.widths.is_empty() { vec![8, 16, 32] } else { world.widths.clone() }
}

/// A pointer that is a handle.
fn pointer<T>(handle: usize) -> *mut T {
    handle as *mut T
}

/// Takes away what a handle leads to.
fn destroy(handle: usize, is_it: impl Fn(&Object) -> bool) -> Answer<Object> {
    with(|world| match world.objects.get(&handle).is_some_and(is_it) {
        true => world.objects.remove(&handle).ok_or(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        false => Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
    })
}
