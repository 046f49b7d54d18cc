//! Streams, events and recorded work.
//!
//! A stream is an immediate command list. Level Zero runs the commands of a list as it likes, so a barrier stands behind each.
//! Recorded work is a list of its own, which only a queue can run: the stream tells the queue by one event that it has come there,
//! and is told by another that the queue is done.

use super::calls::{Found, call};
use crate::driver::lock;
use level_zero_sys as ze;
use paceline_gpu::driver::DriverResult;
use std::ptr;
use std::sync::{Arc, Mutex};

/// Events of one pool.
const POOL: u32 = 64;

/// A place for an event.
struct Place {
    pool: ze::ze_event_pool_handle_t,
    index: u32,
}

#[derive(Default)]
struct Pools {
    all: Vec<ze::ze_event_pool_handle_t>,
    free: Vec<Place>,
}

// SAFETY: handles of pools may be used by any thread, under the lock.
unsafe impl Send for Pools {}

/// The context of a device, from which everything else is made.
pub(super) struct Root {
    pub api: Arc<ze::LevelZero>,
    pub context: ze::ze_context_handle_t,
    pub device: ze::ze_device_handle_t,
    queues: u32,
    pools: Mutex<Pools>,
}

// SAFETY: contexts and devices may be used by any thread.
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}

impl Root {
    pub fn new(api: &Arc<ze::LevelZero>, found: &Found) -> DriverResult<Self> {
        let description =
            ze::ze_context_desc_t { stype: ze::ZE_STRUCTURE_TYPE_CONTEXT_DESC, ..Default::default() };
        let mut context = ptr::null_mut();
        // SAFETY: the structure says what it is; the context is destroyed when this goes.
        unsafe { call!(api, zeContextCreate(found.driver, &description, &mut context))? };
        let (api, device, queues) = (Arc::clone(api), found.device, found.queues);
        Ok(Self { api, context, device, queues, pools: Mutex::default() })
    }

    /// An event, from a pool that has room.
    pub fn event(&self) -> DriverResult<Event> {
        let api = &self.api;
        let mut pools = lock(&self.pools);
        let place = match pools.free.pop() {
            Some(place) => place,
            None => {
                let description = ze::ze_event_pool_desc_t {
                    stype: ze::ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                    flags: ze::ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                    count: POOL,
                    ..Default::default()
                };
                let (mut pool, mut device) = (ptr::null_mut(), self.device);
                // SAFETY: the list has the one device that is said; the pool is destroyed with the context.
                unsafe {
                    call!(api, zeEventPoolCreate(self.context, &description, 1, &mut device, &mut pool))?
                };
                pools.all.push(pool);
                pools.free.extend((1..POOL).map(|index| Place { pool, index }));
                Place { pool, index: 0 }
            }
        };
        let description = ze::ze_event_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_EVENT_DESC,
            index: place.index,
            signal: ze::ZE_EVENT_SCOPE_FLAG_HOST,
            wait: ze::ZE_EVENT_SCOPE_FLAG_HOST,
            ..Default::default()
        };
        let mut event = ptr::null_mut();
        // SAFETY: the place is in the pool and no other event's.
        match unsafe { call!(api, zeEventCreate(place.pool, &description, &mut event)) } {
            Ok(()) => Ok(Event { event, place, time: None }),
            Err(error) => {
                pools.free.push(place);
                Err(error)
            }
        }
    }

    pub fn destroy_event(&self, event: Event) {
        // SAFETY: made by `event`, destroyed once; nothing queued signals it any more.
        let _ = unsafe { call!(self.api, zeEventDestroy(event.event)) };
        lock(&self.pools).free.push(event.place);
    }

    /// A list that is recorded and run by a queue.
    fn list(&self) -> DriverResult<ze::ze_command_list_handle_t> {
        let description = ze::ze_command_list_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
            commandQueueGroupOrdinal: self.queues,
            ..Default::default()
        };
        let mut list = ptr::null_mut();
        // SAFETY: the structure says what it is.
        unsafe { call!(self.api, zeCommandListCreate(self.context, self.device, &description, &mut list))? };
        Ok(list)
    }

    fn destroy_list(&self, list: ze::ze_command_list_handle_t) {
        // SAFETY: made by this, destroyed once; nothing of it runs any more.
        let _ = unsafe { call!(self.api, zeCommandListDestroy(list)) };
    }

    fn queue_description(&self) -> ze::ze_command_queue_desc_t {
        ze::ze_command_queue_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
            ordinal: self.queues,
            mode: ze::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // SAFETY: whoever made events and streams in the context has destroyed them.
        unsafe {
            for pool in lock(&self.pools).all.drain(..) {
                let _ = call!(self.api, zeEventPoolDestroy(pool));
            }
            let _ = call!(self.api, zeContextDestroy(self.context));
        }
    }
}

/// A mark in a stream.
pub(super) struct Event {
    event: ze::ze_event_handle_t,
    place: Place,
    /// Where the device writes its time, if it is asked for.
    pub time: Option<*mut u64>,
}

/// Takes commands out of a list of the stream to a queue and back.
struct Bridge {
    queue: ze::ze_command_queue_handle_t,
    /// The stream has come to the recorded work; waits for it.
    reached: Event,
    wait: ze::ze_command_list_handle_t,
    /// The recorded work is done; signals it.
    done: Event,
    signal: ze::ze_command_list_handle_t,
}

struct State {
    immediate: ze::ze_command_list_handle_t,
    /// What is appended goes here while it is set.
    recording: Option<ze::ze_command_list_handle_t>,
    /// Made when recorded work is launched first.
    bridge: Option<Bridge>,
}

// SAFETY: lists and queues are used by one thread at a time, under the lock.
unsafe impl Send for State {}

/// Work in order.
pub(super) struct Stream {
    state: Mutex<State>,
    /// Tells that all is done; held by whoever waits.
    idle: Mutex<Option<Event>>,
}

// SAFETY: as above.
unsafe impl Send for Event {}

/// Recorded work.
pub(super) struct Graph {
    list: ze::ze_command_list_handle_t,
}

impl Stream {
    pub fn new(root: &Root) -> DriverResult<Self> {
        let description = root.queue_description();
        let mut immediate = ptr::null_mut();
        // SAFETY: the structure says what it is.
        unsafe {
            call!(
                root.api,
                zeCommandListCreateImmediate(root.context, root.device, &description, &mut immediate)
            )?;
        }
        let state = State { immediate, recording: None, bridge: None };
        Ok(Self { state: Mutex::new(state), idle: Mutex::new(None) })
    }

    pub fn destroy(self, root: &Root) {
        let State { immediate, recording, bridge } =
            self.state.into_inner().unwrap_or_else(|e| e.into_inner());
        if let Some(event) = self.idle.into_inner().unwrap_or_else(|e| e.into_inner()) {
            root.destroy_event(event);
        }
        if let Some(Bridge { queue, reached, wait, done, signal }) = bridge {
            root.destroy_list(wait);
            root.destroy_list(signal);
            // SAFETY: made with the bridge, destroyed once; nothing is queued.
            let _ = unsafe { call!(root.api, zeCommandQueueDestroy(queue)) };
            root.destroy_event(reached);
            root.destroy_event(done);
        }
        recording.into_iter().for_each(|list| root.destroy_list(list));
        root.destroy_list(immediate);
    }

    /// Appends a command, and a barrier behind it.
    ///
    /// # Errors
    /// Those of the command, or the barrier's.
    pub fn append(
        &self,
        root: &Root,
        command: impl FnOnce(&ze::LevelZero, ze::ze_command_list_handle_t) -> DriverResult<()>,
    ) -> DriverResult<()> {
        let state = lock(&self.state);
        let list = state.recording.unwrap_or(state.immediate);
        command(&root.api, list)?;
        barrier(root, list)
    }

    /// Waits until all is done.
    pub fn synchronize(&self, root: &Root) -> DriverResult<()> {
        let mut idle = lock(&self.idle);
        if idle.is_none() {
            *idle = Some(root.event()?);
        }
        let Some(event) = idle.as_ref() else { return Ok(()) };
        self.record(root, event)?;
        // SAFETY: the event exists.
        unsafe { call!(root.api, zeEventHostSynchronize(event.event, u64::MAX)) }
    }

    /// Lets the stream signal an event, and write the time if the event has one.
    pub fn record(&self, root: &Root, event: &Event) -> DriverResult<()> {
        // SAFETY: the event exists, and what signalled it before has been passed, or nobody asks for it any more.
        unsafe { call!(root.api, zeEventHostReset(event.event))? };
        if let Some(time) = event.time {
            // SAFETY: memory of the host that the event owns.
            self.append(root, |api, list| unsafe {
                call!(
                    api,
                    zeCommandListAppendWriteGlobalTimestamp(list, time, ptr::null_mut(), 0, ptr::null_mut())
                )
            })?;
        }
        let state = lock(&self.state);
        // SAFETY: list and event exist.
        unsafe { call!(root.api, zeCommandListAppendSignalEvent(state.immediate, event.event)) }
    }

    pub fn begin(&self, root: &Root) -> DriverResult<()> {
        let list = root.list()?;
        if let Some(old) = lock(&self.state).recording.replace(list) {
            root.destroy_list(old);
        }
        Ok(())
    }

    pub fn end(&self, root: &Root) -> DriverResult<Graph> {
        let list = lock(&self.state).recording.take();
        let list = list.ok_or_else(|| super::own_error("ending a recording", "none was begun".into()))?;
        // SAFETY: the list is open.
        match unsafe { call!(root.api, zeCommandListClose(list)) } {
            Ok(()) => Ok(Graph { list }),
            Err(error) => {
                root.destroy_list(list);
                Err(error)
            }
        }
    }

    /// Queues recorded work.
    pub fn launch(&self, root: &Root, graph: &Graph) -> DriverResult<()> {
        let mut state = lock(&self.state);
        if state.bridge.is_none() {
            state.bridge = Some(Bridge::new(root)?);
        }
        let State { immediate, bridge: Some(bridge), .. } = &*state else { return Ok(()) };
        let mut lists = [bridge.wait, graph.list, bridge.signal];
        let mut done = bridge.done.event;
        // SAFETY: lists, queue and events exist; the lists are closed. The two events are signalled and reset in turns, each by the
        // device, so launches may be queued behind one another.
        unsafe {
            call!(root.api, zeCommandListAppendSignalEvent(*immediate, bridge.reached.event))?;
            call!(
                root.api,
                zeCommandQueueExecuteCommandLists(bridge.queue, 3, lists.as_mut_ptr(), ptr::null_mut())
            )?;
            call!(root.api, zeCommandListAppendWaitOnEvents(*immediate, 1, &mut done))?;
            call!(root.api, zeCommandListAppendEventReset(*immediate, done))?;
        }
        barrier(root, *immediate)
    }
}

impl Bridge {
    fn new(root: &Root) -> DriverResult<Self> {
        // What was made before a failure stays until the context goes.
        let (description, mut queue) = (root.queue_description(), ptr::null_mut());
        // SAFETY: the structure says what it is.
        unsafe {
            call!(root.api, zeCommandQueueCreate(root.context, root.device, &description, &mut queue))?
        };
        let (reached, done) = (root.event()?, root.event()?);
        let (wait, signal) = (root.list()?, root.list()?);
        let mut event = reached.event;
        // SAFETY: lists and events exist, and the lists are open.
        unsafe {
            call!(root.api, zeCommandListAppendWaitOnEvents(wait, 1, &mut event))?;
            call!(root.api, zeCommandListAppendEventReset(wait, event))?;
            barrier(root, wait)?;
            call!(root.api, zeCommandListClose(wait))?;
            barrier(root, signal)?;
            call!(root.api, zeCommandListAppendSignalEvent(signal, done.event))?;
            call!(root.api, zeCommandListClose(signal))?;
        }
        Ok(Self { queue, reached, wait, done, signal })
    }
}

fn barrier(root: &Root, list: ze::ze_command_list_handle_t) -> DriverResult<()> {
    // SAFETY: the list exists and is open.
    unsafe { call!(root.api, zeCommandListAppendBarrier(list, ptr::null_mut(), 0, ptr::null_mut())) }
}

impl Graph {
    pub fn destroy(self, root: &Root) {
        root.destroy_list(self.list);
    }
}

impl Event {
    /// True when it is signalled.
    pub fn has_passed(&self, root: &Root) -> DriverResult<bool> {
        // SAFETY: the event exists.
        let code = unsafe { (root.api.zeEventQueryStatus)(self.event) };
        match code {
            ze::ZE_RESULT_NOT_READY => Ok(false),
            code => super::calls::check("zeEventQueryStatus", code).map(|()| true),
        }
    }
}
