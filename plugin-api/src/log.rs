//! The log bridge: a plugin's `tracing` events and spans go to the host.
//!
//! A shared library has its own copy of the globals of `tracing`, so without a bridge its events vanish.
//! [`connect`], which `export_plugin!` calls, installs a small subscriber that forwards over the host's table; a
//! plugin that is linked in shares the host's subscriber. Events are for control: figures of every step go through
//! [`crate::abi::Counters`].

use crate::abi::{HostTable, LogField, Str, level};
use std::fmt::{Debug, Write};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, Level, Metadata, Subscriber};

/// The number of a level.
pub fn level_code(level: &Level) -> u32 {
    match *level {
        Level::ERROR => level::ERROR,
        Level::WARN => level::WARN,
        Level::INFO => level::INFO,
        Level::DEBUG => level::DEBUG,
        Level::TRACE => level::TRACE,
    }
}

/// Forwards events to `host` from now on, unless this copy of `tracing` already has a subscriber.
///
/// # Safety
/// `host` must be a host table that is valid for the life of the process.
pub unsafe fn connect(host: *const HostTable) {
    // A failure means that the library has a subscriber already: its own, or from an earlier entry.
    let _ = tracing_core::dispatcher::set_global_default(Dispatch::new(Forwarder { host: HostRef(host) }));
}

#[derive(Clone, Copy)]
struct HostRef(*const HostTable);

// SAFETY: the host's table is constant and its functions may be called from any thread.
unsafe impl Send for HostRef {}
// SAFETY: as above.
unsafe impl Sync for HostRef {}

struct Forwarder {
    host: HostRef,
}

/// Fields as text; the field `message` apart.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.push((field.name(), format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.others.push((field.name(), value.to_owned()));
        }
    }
}

impl Fields {
    fn to_c(&self) -> Vec<LogField> {
        self.others
            .iter()
            .map(|(key, value)| LogField { key: Str::new(key), value: Str::new(value) })
            .collect()
    }
}

impl Forwarder {
    fn with_fields<R>(
        &self,
        record: impl FnOnce(&mut Fields),
        call: impl FnOnce(&HostTable, Str, *const LogField, usize) -> R,
    ) -> R {
        let mut fields = Fields::default();
        record(&mut fields);
        let list = fields.to_c();
        // SAFETY: the table is valid for the life of the process.
        call(unsafe { &*self.host.0 }, Str::new(&fields.message), list.as_ptr(), list.len())
    }

    fn span_call(&self, select: impl Fn(&HostTable) -> Option<SpanFn>, id: &Id) {
        // SAFETY: the table is valid for the life of the process.
        let host = unsafe { &*self.host.0 };
        if let Some(function) = select(host) {
            // SAFETY: the host's functions take any span id.
            unsafe { function(host.context, id.into_u64()) };
        }
    }
}

type SpanFn = unsafe extern "C" fn(context: *mut std::ffi::c_void, span: u64);

impl Subscriber for Forwarder {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The host's filters may change at any time.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // SAFETY: the table is valid for the life of the process.
        let host = unsafe { &*self.host.0 };
        host.log_enabled.is_some_and(|enabled| {
            // SAFETY: the text outlives the call.
            unsafe { enabled(host.context, level_code(metadata.level()), Str::new(metadata.target())) != 0 }
        })
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        let id = self.with_fields(
            |fields| span.record(fields),
            |host, _, list, count| {
                let (target, name) = (Str::new(metadata.target()), Str::new(metadata.name()));
                host.span_new.map_or(0, |new| {
                    // SAFETY: all texts outlive the call.
                    unsafe { new(host.context, level_code(metadata.level()), target, name, list, count) }
                })
            },
        );
        Id::from_u64(id.max(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        self.with_fields(
            |fields| event.record(fields),
            |host, message, list, count| {
                if let Some(log) = host.log_event {
                    let target = Str::new(metadata.target());
                    // SAFETY: all texts outlive the call.
                    unsafe { log(host.context, level_code(metadata.level()), target, message, list, count) };
                }
            },
        );
    }

    fn enter(&self, span: &Id) {
        self.span_call(|host| host.span_enter, span);
    }

    fn exit(&self, span: &Id) {
        self.span_call(|host| host.span_exit, span);
    }

    fn try_close(&self, span: Id) -> bool {
        self.span_call(|host| host.span_close, &span);
        true
    }
}
