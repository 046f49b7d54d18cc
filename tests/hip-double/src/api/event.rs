//! Events.

use super::{Handle, enter, enter_always, give};
use crate::code::{self, Code};
use crate::stream::{Event, Work, lock};
use crate::world::find;
use std::ffi::c_uint;
use std::sync::Arc;

/// An event without a time in it.
const WITHOUT_TIME: c_uint = 2;

/// Makes an event.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreateWithFlags(event: *mut Handle, flags: c_uint) -> Code {
    enter("hipEventCreateWithFlags", |world| {
        world.current()?;
        let handle = world.handle();
        let made = Event::new(flags & WITHOUT_TIME == 0);
        lock(&world.objects).events.insert(handle, Arc::new(made));
        // SAFETY: promised by the caller.
        unsafe { give(event, handle as Handle) }
    })
}

/// Gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventDestroy(event: Handle) -> Code {
    enter_always("hipEventDestroy", |world| {
        lock(&world.objects).events.remove(&(event as usize)).map(drop).ok_or(code::InvalidHandle)
    })
}

/// Queues an event. In a capture it would mark nothing that anybody could ask after, so it is refused there.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventRecord(event: Handle, stream: Handle) -> Code {
    enter("hipEventRecord", |world| {
        world.captures.forbid(stream as usize)?;
        let objects = lock(&world.objects);
        let (event, stream) = (find(&objects.events, event)?, find(&objects.streams, stream)?);
        let number = event.record();
        stream.push(Work::Record(event, number));
        Ok(())
    })
}

/// Whether its stream has passed it.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventQuery(event: Handle) -> Code {
    enter("hipEventQuery", |world| find(&lock(&world.objects).events, event)?.query())
}

/// Waits until its stream has passed it.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventSynchronize(event: Handle) -> Code {
    enter("hipEventSynchronize", |world| {
        let event = find(&lock(&world.objects).events, event)?;
        event.wait(event.recorded())
    })
}

/// Milliseconds from one event to another.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle) -> Code {
    enter("hipEventElapsedTime", |world| {
        let objects = lock(&world.objects);
        let (from, to) = (find(&objects.events, from)?, find(&objects.events, to)?);
        // SAFETY: promised by the caller.
        unsafe { give(milliseconds, from.milliseconds_to(&to)?) }
    })
}
