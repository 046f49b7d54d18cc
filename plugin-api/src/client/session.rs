//! A session of the host as the C table that a strategy is given.

use crate::abi::{self, Bytes, SessionTable, Str, code, source};
use crate::error::{Error, Result, catch};
use crate::graph::Graph;
use crate::graph::step::Tap;
use crate::shim::tensor_to_c;
use crate::strategy::{GroupRows, ProgramId, Session, Source};
use std::ffi::c_void;

/// What the context pointer of a session table points to.
struct SessionContext<'a> {
    session: &'a mut dyn Session,
    /// Keeps texts that were given out alive during the plugin's call.
    texts: Vec<String>,
    error: Option<Error>,
}

/// Gives a session to `call` as a C table.
pub(super) fn with_session<R>(session: &mut dyn Session, call: impl FnOnce(*const SessionTable) -> R) -> R {
    let mut context = SessionContext { session, texts: Vec::new(), error: None };
    let table = SessionTable {
        size: size_of::<SessionTable>(),
        context: (&raw mut context).cast(),
        metadata_integer: Some(metadata_integer),
        metadata_number: Some(metadata_number),
        metadata_text: Some(metadata_text),
        tensor: Some(tensor),
        has_fragment: Some(has_fragment),
        declare_tap: Some(declare_tap),
        declare_ring: Some(declare_ring),
        declare_program: Some(declare_program),
        run: Some(run),
        error: Some(error),
    };
    call(&raw const table)
}

/// # Safety
/// `context` must be the context of a session table during the call that it was made for.
unsafe fn session<'a>(context: *mut c_void) -> &'a mut SessionContext<'a> {
    // SAFETY: by the contract of this function; the plugin calls from one thread at a time.
    unsafe { &mut *context.cast::<SessionContext<'a>>() }
}

fn source_of(number: u32) -> Option<Source> {
    match number {
        source::TARGET => Some(Source::Target),
        source::DRAFT => Some(Source::Draft),
        _ => None,
    }
}

/// Writes a fact that was found.
///
/// # Safety
/// `out` must be null or writable.
unsafe fn found<T>(value: Option<T>, out: *mut T) -> i32 {
    match value {
        Some(value) if !out.is_null() => {
            // SAFETY: by the contract of this function.
            unsafe { out.write(value) };
            code::OK
        }
        _ => code::UNSUPPORTED,
    }
}

/// A panic of the host must not reach the plugin.
fn or_none<T>(call: impl FnOnce() -> Option<T>) -> Option<T> {
    catch(|| Ok(call())).ok().flatten()
}

/// # Safety
/// `text` must be readable.
unsafe fn text(text: Str) -> Option<String> {
    // SAFETY: by the contract of this function.
    std::str::from_utf8(unsafe { text.bytes() }).ok().map(str::to_owned)
}

unsafe extern "C" fn metadata_integer(
    context: *mut c_void,
    of: u32,
    key: Str,
    index: u32,
    out: *mut i64,
) -> i32 {
    // SAFETY: called by a plugin with the session that it was given, readable text and a place for the value.
    unsafe {
        let value = or_none(|| session(context).session.integer_at(source_of(of)?, &text(key)?, index));
        found(value, out)
    }
}

unsafe extern "C" fn metadata_number(context: *mut c_void, of: u32, key: Str, out: *mut f64) -> i32 {
    // SAFETY: as for `metadata_integer`.
    unsafe { found(or_none(|| session(context).session.number(source_of(of)?, &text(key)?)), out) }
}

unsafe extern "C" fn metadata_text(context: *mut c_void, of: u32, key: Str, out: *mut Str) -> i32 {
    // SAFETY: as for `metadata_integer`; the text stays in the context, which outlives the plugin's call.
    unsafe {
        let kept = or_none(|| {
            let context = session(context);
            let value = context.session.text(source_of(of)?, &text(key)?)?;
            context.texts.push(value);
            context.texts.last().map(|text| Str { ptr: text.as_ptr(), len: text.len() })
        });
        found(kept, out)
    }
}

unsafe extern "C" fn tensor(context: *mut c_void, of: u32, name: Str, out: *mut abi::TensorFacts) -> i32 {
    // SAFETY: as for `metadata_integer`.
    unsafe {
        let facts = or_none(|| {
            let facts = session(context).session.tensor(source_of(of)?, &text(name)?)?;
            tensor_to_c(&facts)
        });
        found(facts, out)
    }
}

unsafe extern "C" fn has_fragment(context: *mut c_void, name: Str) -> u32 {
    // SAFETY: as for `metadata_integer`.
    unsafe { or_none(|| session(context).session.has_fragment(&text(name)?).then_some(())) }.map_or(0, |()| 1)
}

/// A call that reports by a status.
fn status(call: impl FnOnce() -> Result<()>) -> *mut abi::Status {
    match catch(call) {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => error.into_status(),
    }
}

unsafe extern "C" fn declare_tap(context: *mut c_void, layer: u32) -> *mut abi::Status {
    let tap = if layer == abi::TAP_HIDDEN { Tap::Hidden } else { Tap::LayerInput(layer) };
    // SAFETY: called by a plugin with the session that it was given.
    status(|| unsafe { session(context) }.session.declare_tap(tap))
}

unsafe extern "C" fn declare_ring(context: *mut c_void, blocks: u32) -> *mut abi::Status {
    // SAFETY: as for `declare_tap`.
    status(|| unsafe { session(context) }.session.declare_ring(blocks))
}

unsafe extern "C" fn declare_program(
    context: *mut c_void,
    name: Str,
    graph: Bytes,
    out: *mut u32,
) -> *mut abi::Status {
    // SAFETY: as for `declare_tap`, with readable text and bytes and a place for the number.
    status(|| unsafe {
        let name = text(name).ok_or_else(|| Error::invalid("a program's name is not UTF-8"))?;
        let graph =
            Graph::from_bytes(graph.get()).map_err(|e| Error::invalid(format!("program `{name}`: {e}")))?;
        let id = session(context).session.declare_program(&name, &graph)?;
        if out.is_null() {
            return Err(Error::invalid("a place for a result is null"));
        }
        out.write(id.0);
        Ok(())
    })
}

unsafe extern "C" fn run(
    context: *mut c_void,
    program: u32,
    sequence: u32,
    groups: *const abi::GroupRows,
    group_count: usize,
    results: *mut Bytes,
) -> i32 {
    const MOST_GROUPS: usize = 32;
    // SAFETY: as for `declare_tap`, with `group_count` groups, their tokens, and a place for the results.
    unsafe {
        let context = session(context);
        let done = catch(|| {
            if results.is_null() || group_count > MOST_GROUPS || (groups.is_null() && group_count > 0) {
                return Err(Error::invalid("a run has at most 32 groups and a place for results"));
            }
            let mut rows = [GroupRows { position: 0, count: 0, tokens: None }; MOST_GROUPS];
            for (index, row) in rows.iter_mut().take(group_count).enumerate() {
                let group = *groups.add(index);
                let tokens = (!group.tokens.is_null())
                    .then(|| std::slice::from_raw_parts(group.tokens, group.count as usize));
                *row = GroupRows { position: group.position, count: group.count, tokens };
            }
            let bytes = context.session.run(ProgramId(program), sequence, &rows[..group_count])?;
            results.write(Bytes::new(bytes));
            Ok(())
        });
        match done {
            Ok(()) => code::OK,
            Err(error) => {
                let number = error.kind.code();
                context.error = Some(error);
                number
            }
        }
    }
}

unsafe extern "C" fn error(context: *mut c_void) -> *mut abi::Status {
    // SAFETY: as for `declare_tap`.
    unsafe { session(context) }.error.take().map_or(std::ptr::null_mut(), Error::into_status)
}
