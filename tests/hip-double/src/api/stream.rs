//! Streams.

use super::{Handle, enter, enter_always, give};
use crate::code::{self, Code};
use crate::stream::{Stream, Work, lock};
use crate::world::{World, current, find};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// Makes a stream on the calling thread's device.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut Handle, _flags: c_uint) -> Code {
    enter("hipStreamCreateWithFlags", |world| {
        let made = Stream::start(world, current(), &world.current()?.lost);
        let handle = world.handle();
        lock(&world.objects).streams.insert(handle, Arc::new(made));
        // SAFETY: promised by the caller.
        unsafe { give(stream, handle as Handle) }
    })
}

/// Ends a stream after what is queued on it.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamDestroy(stream: Handle) -> Code {
    enter_always("hipStreamDestroy", |world| {
        let gone = lock(&world.objects).streams.remove(&(stream as usize));
        gone.map(|stream| stream.close()).ok_or(code::InvalidHandle)
    })
}

fn known(world: &World, stream: Handle) -> Result<Arc<Stream>, Code> {
    world.captures.forbid(stream as usize)?;
    find(&lock(&world.objects).streams, stream)
}

/// Waits for all that is queued on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamSynchronize(stream: Handle) -> Code {
    enter("hipStreamSynchronize", |world| {
        known(world, stream)?.wait();
        world.check_lost()
    })
}

/// Whether a stream has nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamQuery(stream: Handle) -> Code {
    enter("hipStreamQuery", |world| {
        if known(world, stream)?.is_idle() { world.check_lost() } else { Err(code::NotReady) }
    })
}

/// Lets a stream, of any device, wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Code {
    enter("hipStreamWaitEvent", |world| {
        let event = find(&lock(&world.objects).events, event)?;
        let stream = known(world, stream)?;
        let number = event.recorded();
        stream.push(Work::Wait(event, number));
        Ok(())
    })
}

/// From here on the stream records.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamBeginCapture(stream: Handle, mode: c_int) -> Code {
    enter("hipStreamBeginCapture", |world| {
        find(&lock(&world.objects).streams, stream)?;
        world.captures.begin(stream as usize, mode)
    })
}
