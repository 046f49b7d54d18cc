//! The host's end of the log bridge: events and spans of plugins go through the host's `tracing`.
//!
//! `tracing` wants to know a callsite's target when the program is compiled, and a plugin's target is known only
//! when it logs. So there is one callsite per level, and the plugin's target is a field of it. Filters are asked
//! with the plugin's own target, so that `my_plugin=debug` works as for the host's code.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_plugin_api::abi::level;
use tracing::dispatcher::get_default;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Level, Metadata, Span};
use tracing_core::callsite::{Callsite, Identifier};
use tracing_core::field::{Field, FieldSet, Value, display};
use tracing_core::{Interest, Kind};

/// Target of all callsites here, for subscribers that look at the callsite alone.
const BRIDGE_TARGET: &str = "paceline::plugin";
const FIELDS: &[&str] = &["message", "plugin_target", "plugin_fields"];

struct Site {
    metadata: Metadata<'static>,
}

impl Callsite for Site {
    // Interest is not remembered: it depends on the target, which differs from call to call.
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &self.metadata
    }
}

const fn site(level: Level, kind: Kind, this: &'static Site) -> Site {
    Site { metadata: metadata("plugin", BRIDGE_TARGET, level, kind, this) }
}

const fn metadata<'a>(
    name: &'static str,
    target: &'a str,
    level: Level,
    kind: Kind,
    site: &'static Site,
) -> Metadata<'a> {
    Metadata::new(name, target, level, None, None, None, FieldSet::new(FIELDS, Identifier(site)), kind)
}

macro_rules! sites {
    ($function:ident, $kind:expr) => {
        /// The callsite of a level's number; `None` for a number that is no level.
        fn $function(code: u32) -> Option<&'static Site> {
            static ERROR: Site = site(Level::ERROR, $kind, &ERROR);
            static WARN: Site = site(Level::WARN, $kind, &WARN);
            static INFO: Site = site(Level::INFO, $kind, &INFO);
            static DEBUG: Site = site(Level::DEBUG, $kind, &DEBUG);
            static TRACE: Site = site(Level::TRACE, $kind, &TRACE);
            Some(match code {
                level::ERROR => &ERROR,
                level::WARN => &WARN,
                level::INFO => &INFO,
                level::DEBUG => &DEBUG,
                level::TRACE => &TRACE,
                _ => return None,
            })
        }
    };
}

sites!(event_site, Kind::EVENT);
sites!(span_site, Kind::SPAN);

/// Asks the host's filters with the plugin's own target.
fn passes(dispatch: &Dispatch, site: &'static Site, target: &str) -> bool {
    let level = *site.metadata.level();
    let kind = if site.metadata.is_span() { Kind::SPAN } else { Kind::EVENT };
    level <= LevelFilter::current() && dispatch.enabled(&metadata("plugin", target, level, kind, site))
}

/// Calls `record` with the values of a callsite's fields.
fn with_values<R>(
    site: &'static Site,
    message: &str,
    target: &str,
    fields: &[(String, String)],
    record: impl FnOnce(&'static Metadata<'static>, &tracing_core::field::ValueSet<'_>) -> R,
) -> Option<R> {
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let fields = fields.join(" ");
    let (target, shown_fields) = (display(target), display(&fields));
    let set = site.metadata.fields();
    let field = |name: &str| -> Option<Field> { set.field(name) };
    let (message_field, target_field, fields_field) =
        (field("message")?, field("plugin_target")?, field("plugin_fields")?);
    let values: [(&Field, Option<&dyn Value>); 3] = [
        (&message_field, Some(&message)),
        (&target_field, Some(&target)),
        (&fields_field, if fields.is_empty() { None } else { Some(&shown_fields) }),
    ];
    Some(record(&site.metadata, &set.value_set(&values)))
}

/// Whether an event of this level and target would be recorded.
pub(crate) fn enabled(level: u32, target: &str) -> bool {
    event_site(level).is_some_and(|site| get_default(|dispatch| passes(dispatch, site, target)))
}

/// Records an event of a plugin.
pub(crate) fn event(level: u32, target: &str, message: &str, fields: &[(String, String)]) {
    let Some(site) = event_site(level) else { return };
    // Asked again although the plugin asked: filters of single layers keep the answer for the event that follows.
    get_default(|dispatch| {
        if passes(dispatch, site, target) {
            with_values(site, message, target, fields, |metadata, values| {
                dispatch.event(&Event::new(metadata, values));
            });
        }
    });
}

/// Open spans of plugins. Ids are given out here and looked up, so that a wrong one finds nothing: subscribers
/// panic at ids that they did not make.
struct Spans {
    next: u64,
    open: BTreeMap<u64, Span>,
}

/// 0 means no span, and plugins cannot store that: they turn it into 1.
static SPANS: Mutex<Spans> = Mutex::new(Spans { next: 2, open: BTreeMap::new() });

fn spans() -> MutexGuard<'static, Spans> {
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a span under the current one and returns its id, 0 if nobody wants it.
pub(crate) fn new_span(level: u32, target: &str, name: &str, fields: &[(String, String)]) -> u64 {
    let Some(site) = span_site(level) else { return 0 };
    let wanted = get_default(|dispatch| passes(dispatch, site, target));
    let span = wanted.then(|| with_values(site, name, target, fields, Span::new)).flatten();
    let Some(span) = span.filter(|span| !span.is_disabled()) else { return 0 };
    let mut spans = spans();
    let id = spans.next;
    spans.next += 1;
    spans.open.insert(id, span);
    id
}

/// Enters a span on this thread.
pub(crate) fn enter_span(id: u64) {
    on_span(id, |span, dispatch| dispatch.enter(span));
}

/// Leaves a span on this thread.
pub(crate) fn exit_span(id: u64) {
    on_span(id, |span, dispatch| dispatch.exit(span));
}

/// Ends a span.
pub(crate) fn close_span(id: u64) {
    // Dropped after the lock is given back: a subscriber may log while it closes the span.
    let closed = spans().open.remove(&id);
    drop(closed);
}

fn on_span(id: u64, call: impl FnOnce(&tracing::span::Id, &Dispatch)) {
    // A clone, so that the lock is not held while the subscriber runs.
    let span = spans().open.get(&id).cloned();
    if let Some(span) = span {
        span.with_subscriber(|(id, dispatch)| call(id, dispatch));
    }
}
