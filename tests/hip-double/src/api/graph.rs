//! Captured work.

use super::{Handle, enter, enter_always, give};
use crate::code::{self, Code};
use crate::stream::{Work, lock};
use crate::world::{Graph, World, find};
use std::ffi::c_char;
use std::sync::Arc;

/// Ends a recording, also where it fails.
///
/// # Safety
/// The pointer is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamEndCapture(stream: Handle, graph: *mut Handle) -> Code {
    let code = enter("hipStreamEndCapture", |world| {
        let device = find(&lock(&world.objects).streams, stream)?.device;
        let work = world.captures.end(stream as usize)?;
        let handle = world.handle();
        lock(&world.objects).graphs.insert(handle, Arc::new(Graph { device, work: work.into() }));
        // SAFETY: promised by the caller.
        unsafe { give(graph, handle as Handle) }
    });
    if code != 0 {
        let _ = World::get().captures.end(stream as usize);
    }
    code
}

/// Makes of a recording something that can be launched.
///
/// # Safety
/// The pointer is null or may be written; the buffer is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphInstantiate(
    executable: *mut Handle,
    graph: Handle,
    _error_node: *mut Handle,
    _log: *mut c_char,
    _log_bytes: usize,
) -> Code {
    enter("hipGraphInstantiate", |world| {
        let handle = world.handle();
        let mut objects = lock(&world.objects);
        let graph = find(&objects.graphs, graph)?;
        objects.executables.insert(handle, graph);
        // SAFETY: promised by the caller.
        unsafe { give(executable, handle as Handle) }
    })
}

/// Gives a recording back.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphDestroy(graph: Handle) -> Code {
    enter_always("hipGraphDestroy", |world| {
        lock(&world.objects).graphs.remove(&(graph as usize)).map(drop).ok_or(code::InvalidHandle)
    })
}

/// Gives back what can be launched.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphExecDestroy(executable: Handle) -> Code {
    enter_always("hipGraphExecDestroy", |world| {
        lock(&world.objects).executables.remove(&(executable as usize)).map(drop).ok_or(code::InvalidHandle)
    })
}

/// Queues all that was recorded.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphLaunch(executable: Handle, stream: Handle) -> Code {
    enter("hipGraphLaunch", |world| {
        world.captures.forbid(stream as usize)?;
        let objects = lock(&world.objects);
        let (graph, stream) = (find(&objects.executables, executable)?, find(&objects.streams, stream)?);
        if graph.device != stream.device {
            return Err(code::InvalidValue);
        }
        stream.push(Work::Graph(Arc::clone(&graph.work)));
        Ok(())
    })
}
