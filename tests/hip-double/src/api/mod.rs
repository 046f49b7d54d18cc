//! The functions of the library that there are, by subject.

pub mod control;
pub mod device;
pub mod event;
pub mod graph;
pub mod memory;
pub mod module;
pub mod rtc;
pub mod stream;

use crate::code::{self, Code};
use crate::world::World;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A handle of anything.
pub type Handle = *mut c_void;

fn guarded(call: &str, body: impl FnOnce(&'static World) -> Result<(), Code>) -> Code {
    let run = || body(World::get());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => {
            eprintln!("hip double: {call} panicked");
            code::Unknown
        }
    }
}

/// A call that a lost device answers.
fn enter(call: &str, body: impl FnOnce(&'static World) -> Result<(), Code>) -> Code {
    guarded(call, |world| {
        world.fails(call).inspect_err(|&code| {
            if code::is_lasting(code) {
                world.lose(code);
            }
        })?;
        world.check_lost()?;
        body(world)
    })
}

/// A call that also works where the device is lost: what asks about devices, and what gives back.
fn enter_always(call: &str, body: impl FnOnce(&'static World) -> Result<(), Code>) -> Code {
    guarded(call, |world| {
        world.fails(call)?;
        body(world)
    })
}

/// Writes a result.
///
/// # Safety
/// The pointer is null or may be written.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(code::InvalidValue);
    }
    // SAFETY: promised by the caller.
    unsafe { to.write(value) };
    Ok(())
}
