//! Queues, command lists, and events.

use super::{Answer, Code, destroy, give, is_context, is_device, pointer, structure};
use crate::objects::{Event, List, Object};
use crate::work::{Command, Job, Worker};
use crate::world::{LOST, enter, lock, with};
use level_zero_sys as ze;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Appends to a list, or hands to its thread.
fn append(list: ze::ze_command_list_handle_t, command: Command) -> Answer<()> {
    with(|world| match found!(world, list, Object::List(list) => list)? {
        List::Recorded { is_closed: true, .. } => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        List::Recorded { commands, .. } => {
            commands.push(command);
            Ok(())
        }
        List::Immediate(worker) => {
            worker.give(Job::One(command));
            Ok(())
        }
    })
}

fn event(handle: ze::ze_event_handle_t) -> Answer<Arc<Event>> {
    with(|world| found!(world, handle, Object::Event(event) => Arc::clone(event)))
}

/// Events are not given along with commands by who uses this.
fn no_events(signal: ze::ze_event_handle_t, waits: u32) -> Answer<()> {
    if signal.is_null() && waits == 0 { Ok(()) } else { Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) }
}

functions! {
    fn zeCommandQueueCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_queue_desc_t,
        queue: *mut ze::ze_command_queue_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)?;
            give(queue, pointer(with(|world| world.add(Object::Queue(Worker::new())))))
        }
    }

    fn zeCommandQueueDestroy(queue: ze::ze_command_queue_handle_t) {
        destroy(queue as usize, |object| matches!(object, Object::Queue(_))).map(drop)
    }

    fn zeCommandQueueExecuteCommandLists(
        queue: ze::ze_command_queue_handle_t,
        count: u32,
        lists: *mut ze::ze_command_list_handle_t,
        _fence: ze::ze_fence_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let lists = unsafe { std::slice::from_raw_parts(lists, count as usize) };
        with(|world| {
            let commands = lists.iter().map(|&list| match found!(world, list, Object::List(list) => list)? {
                List::Recorded { commands, is_closed: true } => Ok(commands.clone()),
                _ => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
            });
            let commands = commands.collect::<Answer<Vec<_>>>()?;
            found!(world, queue, Object::Queue(worker) => worker.give(Job::Lists(commands)))
        })
    }

    fn zeCommandQueueSynchronize(_queue: ze::ze_command_queue_handle_t, _timeout: u64) {
        Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    fn zeCommandListCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_list_desc_t,
        list: *mut ze::ze_command_list_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        let made = Object::List(List::Recorded { commands: Vec::new(), is_closed: false });
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC)?;
            give(list, pointer(with(|world| world.add(made))))
        }
    }

    fn zeCommandListCreateImmediate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_queue_desc_t,
        list: *mut ze::ze_command_list_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)?;
            let made = Object::List(List::Immediate(Worker::new()));
            give(list, pointer(with(|world| world.add(made))))
        }
    }

    fn zeCommandListDestroy(list: ze::ze_command_list_handle_t) {
        destroy(list as usize, |object| matches!(object, Object::List(_))).map(drop)
    }

    fn zeCommandListClose(list: ze::ze_command_list_handle_t) {
        with(|world| match found!(world, list, Object::List(list) => list)? {
            List::Recorded { is_closed, .. } if !*is_closed => {
                *is_closed = true;
                Ok(())
            }
            _ => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        })
    }

    fn zeCommandListAppendMemoryCopy(
        list: ze::ze_command_list_handle_t,
        to: *mut c_void,
        from: *const c_void,
        size: usize,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Copy(from as usize, to as usize, size))
    }

    fn zeCommandListAppendMemoryFill(
        list: ze::ze_command_list_handle_t,
        at: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        if pattern_size != 1 {
            return Err(ze::ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // SAFETY: the contract of the call.
        let byte = unsafe { pattern.cast::<u8>().read() };
        append(list, Command::Fill(at as usize, byte, size))
    }

    fn zeCommandListAppendBarrier(
        list: ze::ze_command_list_handle_t,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Barrier)
    }

    fn zeCommandListAppendLaunchKernel(
        list: ze::ze_command_list_handle_t,
        kernel: ze::ze_kernel_handle_t,
        groups: *const ze::ze_group_count_t,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        // SAFETY: the contract of the call.
        let Some(groups) = (unsafe { groups.as_ref() }) else { return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER) };
        let command = with(|world| {
            let kernel = found!(world, kernel, Object::Kernel(kernel) => kernel)?;
            if !kernel.has_indirect_access || kernel.threads == 0 || kernel.argument.is_empty() {
                return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            Ok(Command::Kernel {
                entry: kernel.module.entry,
                width: kernel.module.width,
                groups: [groups.groupCountX, groups.groupCountY, groups.groupCountZ],
                threads: kernel.threads,
                argument: kernel.argument.clone(),
            })
        })?;
        append(list, command)
    }

    fn zeCommandListAppendSignalEvent(list: ze::ze_command_list_handle_t, it: ze::ze_event_handle_t) {
        append(list, Command::Signal(event(it)?))
    }

    fn zeCommandListAppendWaitOnEvents(
        list: ze::ze_command_list_handle_t,
        count: u32,
        events: *mut ze::ze_event_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let events = unsafe { std::slice::from_raw_parts(events, count as usize) };
        events.iter().try_for_each(|&it| append(list, Command::Wait(event(it)?)))
    }

    fn zeCommandListAppendEventReset(list: ze::ze_command_list_handle_t, it: ze::ze_event_handle_t) {
        append(list, Command::Reset(event(it)?))
    }

    fn zeCommandListAppendWriteGlobalTimestamp(
        list: ze::ze_command_list_handle_t,
        to: *mut u64,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Time(to as usize))
    }

    fn zeEventPoolCreate(
        context: ze::ze_context_handle_t,
        description: *const ze::ze_event_pool_desc_t,
        _devices: u32,
        _list: *mut ze::ze_device_handle_t,
        pool: *mut ze::ze_event_pool_handle_t,
    ) {
        is_context(context)?;
        // SAFETY: the contract of the call.
        unsafe {
            let it = structure(description, ze::ZE_STRUCTURE_TYPE_EVENT_POOL_DESC)?;
            // Whoever asks events from the host has to say so.
            if it.flags & ze::ZE_EVENT_POOL_FLAG_HOST_VISIBLE == 0 {
                return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            give(pool, pointer(with(|world| world.add(Object::Pool { count: it.count }))))
        }
    }

    fn zeEventPoolDestroy(pool: ze::ze_event_pool_handle_t) {
        destroy(pool as usize, |object| matches!(object, Object::Pool { .. })).map(drop)
    }

    fn zeEventCreate(
        pool: ze::ze_event_pool_handle_t,
        description: *const ze::ze_event_desc_t,
        it: *mut ze::ze_event_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let index = unsafe { structure(description, ze::ZE_STRUCTURE_TYPE_EVENT_DESC)?.index };
        if index >= with(|world| found!(world, pool, Object::Pool { count } => *count))? {
            return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: as above.
        unsafe { give(it, pointer(with(|world| world.add(Object::Event(Arc::default()))))) }
    }

    fn zeEventDestroy(it: ze::ze_event_handle_t) {
        destroy(it as usize, |object| matches!(object, Object::Event(_))).map(drop)
    }

    fn zeEventHostReset(it: ze::ze_event_handle_t) {
        event(it)?.set(false);
        Ok(())
    }

    fn zeEventHostSynchronize(it: ze::ze_event_handle_t, timeout: u64) {
        let is_there = event(it)?.wait(Duration::from_nanos(timeout));
        match LOST.load(Ordering::SeqCst) {
            true => Err(ze::ZE_RESULT_ERROR_DEVICE_LOST),
            false if is_there => Ok(()),
            false => Err(ze::ZE_RESULT_NOT_READY),
        }
    }

    fn zeEventQueryStatus(it: ze::ze_event_handle_t) {
        match *lock(&event(it)?.signalled) {
            true => Ok(()),
            false => Err(ze::ZE_RESULT_NOT_READY),
        }
    }
}
