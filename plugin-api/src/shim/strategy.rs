//! From the traits of [`crate::strategy`] to the C tables.

use super::arguments::{slice, utf8, write};
use super::handle::Handle;
use crate::abi::{self, Bytes, DrafterTable, RollbackTable, SessionTable, Status, Str, code, source};
use crate::abi_function;
use crate::error::{Error, ErrorKind, Result, guard, read_argument, write_sized};
use crate::graph::step::{ContextShape, Tap};
use crate::graph::{DType, Graph, Shape};
use crate::strategy::{
    DeltaNetShape, Draft, Drafter, DrafterPlugin, Facts, GroupRows, Outcome, ProgramId, Request, Rollback,
    RollbackPlugin, Session, Source, TensorFacts,
};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// Ties a drafter plugin to its one instance in this library.
pub trait DrafterInstance: 'static {
    /// The plugin.
    type Plugin: DrafterPlugin;
    /// The instance, made on first use.
    fn get() -> &'static Self::Plugin;
}

/// Ties a rollback plugin to its one instance in this library.
pub trait RollbackInstance: 'static {
    /// The plugin.
    type Plugin: RollbackPlugin;
    /// The instance, made on first use.
    fn get() -> &'static Self::Plugin;
}

/// The host's session table as a [`Session`].
struct TableSession<'a> {
    table: *const SessionTable,
    call: PhantomData<&'a SessionTable>,
}

impl TableSession<'_> {
    /// # Safety
    /// `table` must be null or a session table that is valid during this call.
    unsafe fn new(table: *const SessionTable) -> Result<Self> {
        if table.is_null() || !table.is_aligned() {
            return Err(Error::invalid("the session is null or not aligned"));
        }
        Ok(Self { table, call: PhantomData })
    }

    fn context(&self) -> *mut c_void {
        // SAFETY: the table is valid during the call; its first two fields are in every version.
        unsafe { (*self.table).context }
    }
}

fn source_code(of: Source) -> u32 {
    match of {
        Source::Target => source::TARGET,
        Source::Draft => source::DRAFT,
    }
}

fn missing(what: &str) -> Error {
    Error::unsupported(format!("this host lacks the session's function `{what}`"))
}

impl Session for TableSession<'_> {
    fn integer_at(&self, of: Source, key: &str, index: u32) -> Option<i64> {
        let get = abi_function!(self.table, SessionTable, metadata_integer)?;
        let mut value = 0;
        // SAFETY: text and place outlive the call.
        let found = unsafe { get(self.context(), source_code(of), Str::new(key), index, &raw mut value) };
        (found == code::OK).then_some(value)
    }

    fn number(&self, of: Source, key: &str) -> Option<f64> {
        let get = abi_function!(self.table, SessionTable, metadata_number)?;
        let mut value = 0.0;
        // SAFETY: text and place outlive the call.
        let found = unsafe { get(self.context(), source_code(of), Str::new(key), &raw mut value) };
        (found == code::OK).then_some(value)
    }

    fn text(&self, of: Source, key: &str) -> Option<String> {
        let get = abi_function!(self.table, SessionTable, metadata_text)?;
        let mut value = Str::EMPTY;
        // SAFETY: text and place outlive the call; what is given is valid during the plugin's call.
        unsafe {
            let found = get(self.context(), source_code(of), Str::new(key), &raw mut value);
            (found == code::OK).then(|| value.to_text())
        }
    }

    fn tensor(&self, of: Source, name: &str) -> Option<TensorFacts> {
        let get = abi_function!(self.table, SessionTable, tensor)?;
        let mut facts =
            abi::TensorFacts { size: size_of::<abi::TensorFacts>(), dtype: 0, rank: 0, dims: [0; 4] };
        // SAFETY: text and place outlive the call.
        let found = unsafe { get(self.context(), source_code(of), Str::new(name), &raw mut facts) };
        let dims = facts.dims.get(..facts.rank as usize)?;
        (found == code::OK).then(|| TensorFacts { dtype: DType(facts.dtype), dims: dims.to_vec() })
    }

    fn has_fragment(&self, name: &str) -> bool {
        // SAFETY: the text outlives the call.
        abi_function!(self.table, SessionTable, has_fragment)
            .is_some_and(|has| unsafe { has(self.context(), Str::new(name)) } != 0)
    }

    fn declare_tap(&mut self, tap: Tap) -> Result<()> {
        let declare =
            abi_function!(self.table, SessionTable, declare_tap).ok_or_else(|| missing("declare_tap"))?;
        let layer = match tap {
            Tap::Hidden => abi::TAP_HIDDEN,
            Tap::LayerInput(layer) => layer,
        };
        // SAFETY: the table is valid during the call.
        unsafe { Error::take(declare(self.context(), layer)) }
    }

    fn declare_ring(&mut self, blocks: u32) -> Result<()> {
        let declare =
            abi_function!(self.table, SessionTable, declare_ring).ok_or_else(|| missing("declare_ring"))?;
        // SAFETY: the table is valid during the call.
        unsafe { Error::take(declare(self.context(), blocks)) }
    }

    fn declare_program(&mut self, name: &str, graph: &Graph) -> Result<ProgramId> {
        let declare = abi_function!(self.table, SessionTable, declare_program)
            .ok_or_else(|| missing("declare_program"))?;
        let bytes = graph.to_bytes();
        let mut id = 0;
        // SAFETY: text, bytes and place outlive the call.
        unsafe {
            Error::take(declare(self.context(), Str::new(name), Bytes::new(&bytes), &raw mut id))?;
        }
        Ok(ProgramId(id))
    }

    fn run(&mut self, program: ProgramId, sequence: u32, groups: &[GroupRows<'_>]) -> Result<&[u8]> {
        const MOST_GROUPS: usize = 32;
        let run = abi_function!(self.table, SessionTable, run).ok_or_else(|| missing("run"))?;
        let empty = abi::GroupRows { position: 0, count: 0, tokens: std::ptr::null() };
        let mut rows = [empty; MOST_GROUPS];
        let rows = rows
            .get_mut(..groups.len())
            .ok_or_else(|| Error::invalid(format!("a run has at most {MOST_GROUPS} groups")))?;
        for (row, group) in rows.iter_mut().zip(groups) {
            let tokens = group.tokens.map_or(std::ptr::null(), <[u32]>::as_ptr);
            if group.tokens.is_some_and(|tokens| tokens.len() != group.count as usize) {
                return Err(Error::invalid("a group has another number of tokens than of rows"));
            }
            *row = abi::GroupRows { position: group.position, count: group.count, tokens };
        }
        let mut results = Bytes::new(&[]);
        // SAFETY: groups, tokens and place outlive the call; results are readable until the next run, which needs
        // `&mut self`.
        let done = unsafe {
            let done = run(self.context(), program.0, sequence, rows.as_ptr(), rows.len(), &raw mut results);
            if done == code::OK {
                return Ok(results.get());
            }
            done
        };
        let text = abi_function!(self.table, SessionTable, error)
            // SAFETY: the session is valid during the call.
            .map_or(std::ptr::null_mut(), |error| unsafe { error(self.context()) });
        // SAFETY: a status of the host.
        unsafe { Error::take(text)? };
        Err(Error::new(ErrorKind::from_code(done), "the host could not run the strategy's program"))
    }
}

/// # Safety
/// `facts` must be null or readable, with readable texts.
unsafe fn read_facts(facts: *const abi::ContextFacts) -> Result<Facts> {
    // SAFETY: by the contract of this function.
    unsafe {
        let facts = read_argument(facts)?;
        Ok(Facts {
            vocabulary: facts.vocabulary,
            hidden: facts.hidden,
            layers: facts.layers,
            context: ContextShape {
                sequences: facts.sequences,
                positions: facts.positions,
                blocks_per_sequence: facts.blocks_per_sequence,
                kv_types: [DType(facts.key_type), DType(facts.value_type)],
                staged_rows: facts.staged_rows,
                rollback_depth: facts.rollback_depth,
            },
            microbatch: facts.microbatch,
            backend: facts.backend.to_text(),
            architecture: facts.architecture.to_text(),
        })
    }
}

/// # Safety
/// `settings` must be null, with `count` 0, or point to `count` settings with readable strings.
pub(super) unsafe fn read_settings(
    settings: *const abi::SettingText,
    count: usize,
) -> Result<Vec<(String, String)>> {
    // SAFETY: by the contract of this function.
    unsafe {
        slice(settings, count)?
            .iter()
            .map(|s| Ok((utf8(s.key)?.to_owned(), utf8(s.value)?.to_owned())))
            .collect()
    }
}

/// What a drafter's handle holds.
struct Cell<D> {
    drafter: Mutex<D>,
    explanation: Mutex<String>,
    saved: Mutex<Vec<u8>>,
    /// Width of the rows of distributions.
    vocabulary: usize,
}

/// A lock that a panic left is of no matter: the handle is poisoned then.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The C table of a drafter.
pub fn drafter_table<I: DrafterInstance>() -> &'static DrafterTable {
    const { &Drafters::<I>::TABLE }
}

struct Drafters<I>(PhantomData<I>);

type Made<I> = <<I as DrafterInstance>::Plugin as DrafterPlugin>::Drafter;

impl<I: DrafterInstance> Drafters<I> {
    const TABLE: DrafterTable = DrafterTable {
        size: size_of::<DrafterTable>(),
        create: Some(Self::create),
        free: Some(Self::free),
        info: Some(Self::info),
        begin: Some(Self::begin),
        observe: Some(Self::observe),
        propose: Some(Self::propose),
        resolve: Some(Self::resolve),
        truncate: Some(Self::truncate),
        explain: Some(Self::explain),
        error: Some(Self::error),
        save: Some(Self::save),
        restore: Some(Self::restore),
    };

    unsafe extern "C" fn create(
        facts: *const abi::ContextFacts,
        settings: *const abi::SettingText,
        setting_count: usize,
        session: *const SessionTable,
        out: *mut abi::DrafterHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes readable facts, settings and a session.
            let (facts, settings, mut session) = unsafe {
                (read_facts(facts)?, read_settings(settings, setting_count)?, TableSession::new(session)?)
            };
            let drafter = I::get().create(&facts, &settings, &mut session)?;
            let vocabulary = facts.vocabulary as usize;
            let cell = Cell {
                drafter: Mutex::new(drafter),
                explanation: Mutex::default(),
                saved: Mutex::default(),
                vocabulary,
            };
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(cell)) }
        })
    }

    unsafe extern "C" fn free(drafter: abi::DrafterHandle) {
        // SAFETY: the caller passes a drafter that it does not use again.
        unsafe { Handle::<Cell<Made<I>>>::free(drafter) };
    }

    /// A hot call on the drafter.
    ///
    /// # Safety
    /// `drafter` must be null or a live drafter of this plugin.
    unsafe fn hot(drafter: abi::DrafterHandle, call: impl FnOnce(&mut Made<I>) -> Result<()>) -> i32 {
        // SAFETY: by the contract of this function.
        match unsafe { Handle::<Cell<Made<I>>>::get(drafter) } {
            Ok(handle) => handle.hot(|cell| call(&mut lock(&cell.drafter))),
            Err(_) => code::INVALID,
        }
    }

    unsafe extern "C" fn info(drafter: abi::DrafterHandle, out: *mut abi::DrafterInfo) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live drafter.
            let info = unsafe { Handle::<Cell<Made<I>>>::get(drafter)? }
                .call(|cell| Ok(lock(&cell.drafter).info()))?;
            let info = abi::DrafterInfo {
                size: 0,
                most: info.most,
                kind: info.kind,
                cost: info.cost,
                fixed: info.fixed.into(),
            };
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, info) }
        })
    }

    unsafe extern "C" fn begin(drafter: abi::DrafterHandle, sequence: u32) -> i32 {
        // SAFETY: the caller passes a live drafter.
        unsafe { Self::hot(drafter, |d| d.begin(sequence)) }
    }

    unsafe extern "C" fn observe(
        drafter: abi::DrafterHandle,
        session: *const SessionTable,
        sequence: u32,
        position: u32,
        tokens: *const u32,
        count: usize,
    ) -> i32 {
        // SAFETY: the caller passes a live drafter, a session and `count` tokens.
        unsafe {
            Self::hot(drafter, |d| {
                let mut session = TableSession::new(session)?;
                d.observe(&mut session, sequence, position, slice(tokens, count)?)
            })
        }
    }

    unsafe extern "C" fn propose(
        drafter: abi::DrafterHandle,
        session: *const SessionTable,
        args: *mut abi::ProposeArgs,
    ) -> i32 {
        // SAFETY: the caller passes a live drafter, a session and arguments with room for what they state.
        unsafe {
            let Ok(handle) = Handle::<Cell<Made<I>>>::get(drafter) else { return code::INVALID };
            handle.hot(|cell| {
                let mut session = TableSession::new(session)?;
                let given = read_argument(args.cast_const())?;
                let most = given.most as usize;
                if most == 0 || given.tokens.is_null() || given.confidence.is_null() {
                    return Err(Error::invalid("a draft needs room for its tokens"));
                }
                let tokens = std::slice::from_raw_parts_mut(given.tokens, most);
                let confidence = std::slice::from_raw_parts_mut(given.confidence, most);
                let distributions = (!given.distributions.is_null())
                    .then(|| std::slice::from_raw_parts_mut(given.distributions, most * cell.vocabulary));
                let mut draft = Draft::new(tokens, confidence, distributions);
                let request = Request {
                    sequence: given.sequence,
                    frontier: given.frontier,
                    anchor: given.anchor,
                    most: given.most,
                };
                lock(&cell.drafter).propose(&mut session, request, &mut draft)?;
                (*args).count = draft.len() as u32;
                Ok(())
            })
        }
    }

    unsafe extern "C" fn resolve(drafter: abi::DrafterHandle, outcome: *const abi::Outcome) -> i32 {
        // SAFETY: the caller passes a live drafter and readable arguments.
        unsafe {
            Self::hot(drafter, |d| {
                let given = read_argument(outcome)?;
                d.resolve(Outcome {
                    sequence: given.sequence,
                    verified: given.verified,
                    accepted: given.accepted,
                    drafted: given.drafted,
                    wanted: given.wanted,
                })
            })
        }
    }

    unsafe extern "C" fn truncate(drafter: abi::DrafterHandle, sequence: u32, length: u32) -> i32 {
        // SAFETY: the caller passes a live drafter.
        unsafe { Self::hot(drafter, |d| d.truncate(sequence, length)) }
    }

    unsafe extern "C" fn explain(drafter: abi::DrafterHandle, out: *mut Str) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live drafter and a place for the text.
            unsafe {
                Handle::<Cell<Made<I>>>::get(drafter)?.call(|cell| {
                    let mut kept = lock(&cell.explanation);
                    *kept = lock(&cell.drafter).explain();
                    write(out, Str::new(&kept))
                })
            }
        })
    }

    unsafe extern "C" fn save(drafter: abi::DrafterHandle, sequence: u32, out: *mut Bytes) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live drafter and a place for the bytes.
            unsafe {
                Handle::<Cell<Made<I>>>::get(drafter)?.call(|cell| {
                    let saved = lock(&cell.drafter).save(sequence)?;
                    let saved =
                        saved.ok_or_else(|| Error::unsupported("the drafter does not save sequences"))?;
                    let mut kept = lock(&cell.saved);
                    *kept = saved;
                    write(out, Bytes::new(&kept))
                })
            }
        })
    }

    unsafe extern "C" fn restore(
        drafter: abi::DrafterHandle,
        sequence: u32,
        tokens: *const u32,
        count: usize,
        saved: Bytes,
    ) -> i32 {
        // SAFETY: the caller passes a live drafter, `count` tokens and readable bytes.
        unsafe { Self::hot(drafter, |d| d.restore(sequence, slice(tokens, count)?, saved.get())) }
    }

    unsafe extern "C" fn error(drafter: abi::DrafterHandle) -> *mut Status {
        // SAFETY: the caller passes a live drafter.
        match unsafe { Handle::<Cell<Made<I>>>::get(drafter) } {
            Ok(handle) => handle.take_last_error().map_or(std::ptr::null_mut(), Error::into_status),
            Err(_) => std::ptr::null_mut(),
        }
    }
}

/// The C table of a rollback strategy.
pub fn rollback_table<I: RollbackInstance>() -> &'static RollbackTable {
    const { &Rollbacks::<I>::TABLE }
}

struct Rollbacks<I>(PhantomData<I>);

type Rolled<I> = <<I as RollbackInstance>::Plugin as RollbackPlugin>::Rollback;

/// What a rollback strategy's handle holds: the strategy and the bytes of the last fragment.
struct RollbackCell<R> {
    rollback: R,
    bytes: Mutex<Vec<u8>>,
}

impl<I: RollbackInstance> Rollbacks<I> {
    const TABLE: RollbackTable = RollbackTable {
        size: size_of::<RollbackTable>(),
        create: Some(Self::create),
        free: Some(Self::free),
        delta_net: Some(Self::delta_net),
        settle: Some(Self::settle),
    };

    unsafe extern "C" fn create(
        facts: *const abi::ContextFacts,
        settings: *const abi::SettingText,
        setting_count: usize,
        session: *const SessionTable,
        out: *mut abi::RollbackHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes readable facts, settings and a session.
            let (facts, settings, mut session) = unsafe {
                (read_facts(facts)?, read_settings(settings, setting_count)?, TableSession::new(session)?)
            };
            let rollback = I::get().create(&facts, &settings, &mut session)?;
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(RollbackCell { rollback, bytes: Mutex::default() })) }
        })
    }

    unsafe extern "C" fn free(rollback: abi::RollbackHandle) {
        // SAFETY: the caller passes a strategy that it does not use again.
        unsafe { Handle::<RollbackCell<Rolled<I>>>::free(rollback) };
    }

    /// A graph of the strategy for a layer.
    ///
    /// # Safety
    /// As the table's functions.
    unsafe fn graph(
        rollback: abi::RollbackHandle,
        shape: *const abi::DeltaNetShape,
        out: *mut Bytes,
        make: impl FnOnce(&Rolled<I>, &DeltaNetShape) -> Result<Graph>,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live strategy, readable arguments and a place for the bytes.
            unsafe {
                let given = read_argument(shape)?;
                let shape = DeltaNetShape {
                    rows: given.rows,
                    sequences: given.sequences,
                    slots: given.slots,
                    depth: given.depth,
                    key_heads: given.key_heads,
                    value_heads: given.value_heads,
                    key_width: given.key_width,
                    value_width: given.value_width,
                    scale: given.scale,
                };
                Handle::<RollbackCell<Rolled<I>>>::get(rollback)?.call(|cell| {
                    let mut kept = lock(&cell.bytes);
                    *kept = make(&cell.rollback, &shape)?.to_bytes();
                    write(out, Bytes::new(&kept))
                })
            }
        })
    }

    unsafe extern "C" fn delta_net(
        rollback: abi::RollbackHandle,
        shape: *const abi::DeltaNetShape,
        out: *mut Bytes,
    ) -> *mut Status {
        // SAFETY: the same contract.
        unsafe { Self::graph(rollback, shape, out, |strategy, shape| strategy.delta_net(shape)) }
    }

    unsafe extern "C" fn settle(
        rollback: abi::RollbackHandle,
        shape: *const abi::DeltaNetShape,
        out: *mut Bytes,
    ) -> *mut Status {
        // SAFETY: the same contract.
        unsafe { Self::graph(rollback, shape, out, |strategy, shape| strategy.settle(shape)) }
    }
}

/// The dimensions of a tensor as the ABI carries them, `None` if they are too many.
pub(crate) fn tensor_to_c(facts: &TensorFacts) -> Option<abi::TensorFacts> {
    let shape = Shape::new(&facts.dims)?;
    Some(abi::TensorFacts {
        size: size_of::<abi::TensorFacts>(),
        dtype: facts.dtype.0,
        rank: shape.rank() as u32,
        dims: shape.raw(),
    })
}
