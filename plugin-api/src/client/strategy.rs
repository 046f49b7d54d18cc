//! Strategies behind their tables.

use super::missing;
use super::session::with_session;
use crate::abi::{self, Bytes, DrafterTable, RollbackTable, SessionTable, SettingText, Str, code};
use crate::abi_function;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::strategy::{DeltaNetShape, DrafterInfo, Facts, Outcome, Request, Session};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// Facts as the ABI carries them; borrows their texts.
fn facts_to_c(facts: &Facts) -> abi::ContextFacts {
    abi::ContextFacts {
        size: size_of::<abi::ContextFacts>(),
        vocabulary: facts.vocabulary,
        hidden: facts.hidden,
        layers: facts.layers,
        sequences: facts.context.sequences,
        positions: facts.context.positions,
        blocks_per_sequence: facts.context.blocks_per_sequence,
        key_type: facts.context.kv_types[0].0,
        value_type: facts.context.kv_types[1].0,
        staged_rows: facts.context.staged_rows,
        rollback_depth: facts.context.rollback_depth,
        microbatch: facts.microbatch,
        reserved: 0,
        backend: Str::new(&facts.backend),
        architecture: Str::new(&facts.architecture),
    }
}

fn settings_to_c(settings: &[(String, String)]) -> Vec<SettingText> {
    settings.iter().map(|(key, value)| SettingText { key: Str::new(key), value: Str::new(value) }).collect()
}

/// Calls a plugin's `create`.
fn create_handle(
    create: unsafe extern "C" fn(
        facts: *const abi::ContextFacts,
        settings: *const SettingText,
        setting_count: usize,
        session: *const SessionTable,
        out: *mut *mut c_void,
    ) -> *mut abi::Status,
    facts: &Facts,
    settings: &[(String, String)],
    session: &mut dyn Session,
) -> Result<*mut c_void> {
    let (facts, settings) = (facts_to_c(facts), settings_to_c(settings));
    let mut handle = std::ptr::null_mut();
    with_session(session, |session| {
        // SAFETY: all arguments outlive the call.
        unsafe {
            Error::take(create(&raw const facts, settings.as_ptr(), settings.len(), session, &raw mut handle))
        }
    })?;
    if handle.is_null() {
        return Err(Error::new(ErrorKind::Internal, "the plugin says that it succeeded, but gave no handle"));
    }
    Ok(handle)
}

/// Checks the size that a table states.
fn checked<T>(plugin: &str, table: *const c_void) -> Result<Table<T>> {
    let table = table.cast::<T>();
    if !table.is_aligned() {
        return Err(Error::invalid(format!("the table of strategy `{plugin}` is not aligned")));
    }
    // SAFETY: a table begins with its size.
    let size = unsafe { *table.cast::<usize>() };
    if size < size_of::<usize>() * 2 {
        return Err(Error::invalid(format!(
            "the table of strategy `{plugin}` states a size of {size} bytes"
        )));
    }
    Ok(Table(table))
}

/// A table that lives as long as the process. It may be shorter than this host knows it, so fields are only read through
/// `abi_function!`.
struct Table<T>(*const T);

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<T> {}

// SAFETY: tables are constant, and their functions may be called from any thread, one at a time per handle.
unsafe impl<T> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Table<T> {}

/// The drafters of a plugin.
#[derive(Clone)]
pub struct DrafterPluginClient {
    plugin: Arc<str>,
    table: Table<DrafterTable>,
}

impl DrafterPluginClient {
    pub(super) fn new(plugin: String, table: *const c_void) -> Result<Self> {
        Ok(Self { table: checked(&plugin, table)?, plugin: plugin.into() })
    }

    /// Id of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Makes a drafter for a context.
    ///
    /// # Errors
    /// Why it cannot work there; settings that it refuses.
    pub fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<DrafterClient> {
        let create = abi_function!(self.table.0, DrafterTable, create).ok_or_else(|| missing("create"))?;
        let handle = create_handle(create, facts, settings, session)?;
        let mut drafter = DrafterClient { plugin: self.clone(), handle, info: DrafterInfo::default() };
        drafter.info = drafter.read_info()?;
        Ok(drafter)
    }
}

/// A drafter of a context.
pub struct DrafterClient {
    plugin: DrafterPluginClient,
    handle: abi::DrafterHandle,
    info: DrafterInfo,
}

// SAFETY: a drafter may be called from any thread, one at a time: its calls take `&mut self`.
unsafe impl Send for DrafterClient {}

impl DrafterClient {
    /// Id of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin.plugin
    }

    /// What the drafter is.
    pub fn info(&self) -> DrafterInfo {
        self.info
    }

    fn read_info(&self) -> Result<DrafterInfo> {
        let info = abi_function!(self.plugin.table.0, DrafterTable, info).ok_or_else(|| missing("info"))?;
        let mut given =
            abi::DrafterInfo { size: size_of::<abi::DrafterInfo>(), most: 0, kind: 0, cost: 0, fixed: 0 };
        // SAFETY: the handle is live, and the place outlives the call.
        unsafe { Error::take(info(self.handle, &raw mut given))? };
        if given.kind > abi::draft_kind::DISTRIBUTION || given.cost > abi::draft_cost::DEVICE {
            return Err(Error::new(
                ErrorKind::Internal,
                "the drafter is of a kind that this host does not know",
            ));
        }
        Ok(DrafterInfo { most: given.most, kind: given.kind, cost: given.cost, fixed: given.fixed != 0 })
    }

    fn done(&self, number: i32) -> Result<()> {
        if number == code::OK {
            return Ok(());
        }
        let text = abi_function!(self.plugin.table.0, DrafterTable, error)
            // SAFETY: the handle is live.
            .map_or(std::ptr::null_mut(), |error| unsafe { error(self.handle) });
        // SAFETY: a status of the plugin.
        unsafe { Error::take(text)? };
        Err(Error::new(ErrorKind::from_code(number), format!("the strategy failed with code {number}")))
    }

    /// A sequence begins, empty.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn begin(&mut self, sequence: u32) -> Result<()> {
        let begin =
            abi_function!(self.plugin.table.0, DrafterTable, begin).ok_or_else(|| missing("begin"))?;
        // SAFETY: the handle is live.
        let number = unsafe { begin(self.handle, sequence) };
        self.done(number)
    }

    /// The target has kept these tokens.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()> {
        let observe =
            abi_function!(self.plugin.table.0, DrafterTable, observe).ok_or_else(|| missing("observe"))?;
        let number = with_session(session, |session| {
            // SAFETY: the handle is live, and all arguments outlive the call.
            unsafe { observe(self.handle, session, sequence, position, tokens.as_ptr(), tokens.len()) }
        });
        self.done(number)
    }

    /// Guesses into the buffers, which have room for `request.most` tokens, and gives how many were guessed.
    /// `distributions` has room for as many rows of the vocabulary, for a drafter that gives them.
    ///
    /// # Errors
    /// A failure of the drafter; one that claims to have guessed more than was wanted.
    pub fn propose(
        &mut self,
        session: &mut dyn Session,
        request: Request,
        tokens: &mut [u32],
        confidence: &mut [f32],
        distributions: Option<&mut [f32]>,
    ) -> Result<usize> {
        let propose =
            abi_function!(self.plugin.table.0, DrafterTable, propose).ok_or_else(|| missing("propose"))?;
        let most = request.most as usize;
        assert!(tokens.len() >= most && confidence.len() >= most, "room for the draft");
        let mut args = abi::ProposeArgs {
            size: size_of::<abi::ProposeArgs>(),
            sequence: request.sequence,
            frontier: request.frontier,
            anchor: request.anchor,
            most: request.most,
            tokens: tokens.as_mut_ptr(),
            confidence: confidence.as_mut_ptr(),
            distributions: distributions.map_or(std::ptr::null_mut(), <[f32]>::as_mut_ptr),
            count: 0,
            reserved: 0,
        };
        let number = with_session(session, |session| {
            // SAFETY: the handle is live, and all arguments outlive the call.
            unsafe { propose(self.handle, session, &raw mut args) }
        });
        self.done(number)?;
        if args.count > request.most {
            return Err(Error::new(
                ErrorKind::Internal,
                format!(
                    "the drafter says that it guessed {} tokens, {} were wanted",
                    args.count, request.most
                ),
            ));
        }
        Ok(args.count as usize)
    }

    /// What became of a round.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        let Some(resolve) = abi_function!(self.plugin.table.0, DrafterTable, resolve) else { return Ok(()) };
        let given = abi::Outcome {
            size: size_of::<abi::Outcome>(),
            sequence: outcome.sequence,
            verified: outcome.verified,
            accepted: outcome.accepted,
            drafted: outcome.drafted,
            wanted: outcome.wanted,
        };
        // SAFETY: the handle is live, and the argument outlives the call.
        let number = unsafe { resolve(self.handle, &raw const given) };
        self.done(number)
    }

    /// Only the first `length` positions remain.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        let truncate =
            abi_function!(self.plugin.table.0, DrafterTable, truncate).ok_or_else(|| missing("truncate"))?;
        // SAFETY: the handle is live.
        let number = unsafe { truncate(self.handle, sequence, length) };
        self.done(number)
    }

    /// What the drafter keeps of a sequence; `None` if it does not save sequences.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn save(&self, sequence: u32) -> Result<Option<Vec<u8>>> {
        let Some(save) = abi_function!(self.plugin.table.0, DrafterTable, save) else { return Ok(None) };
        let mut bytes = Bytes::new(&[]);
        // SAFETY: the handle is live; the bytes are copied before the next call.
        unsafe {
            match Error::take(save(self.handle, sequence, &raw mut bytes)) {
                Ok(()) => Ok(Some(bytes.get().to_vec())),
                Err(error) if error.kind == ErrorKind::Unsupported => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// The reverse of [`DrafterClient::save`]; the sequence holds `tokens`.
    ///
    /// # Errors
    /// Bytes that are not the drafter's.
    pub fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> Result<()> {
        let restore =
            abi_function!(self.plugin.table.0, DrafterTable, restore).ok_or_else(|| missing("restore"))?;
        // SAFETY: the handle is live, and all arguments outlive the call.
        let number =
            unsafe { restore(self.handle, sequence, tokens.as_ptr(), tokens.len(), Bytes::new(saved)) };
        self.done(number)
    }

    /// What the drafter would tell a user; empty if it says nothing.
    ///
    /// # Errors
    /// A failure of the drafter.
    pub fn explain(&self) -> Result<String> {
        let Some(explain) = abi_function!(self.plugin.table.0, DrafterTable, explain) else {
            return Ok(String::new());
        };
        let mut text = Str::EMPTY;
        // SAFETY: the handle is live; the text is valid until the next call.
        unsafe {
            Error::take(explain(self.handle, &raw mut text))?;
            Ok(text.to_text())
        }
    }
}

impl Drop for DrafterClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.plugin.table.0, DrafterTable, free) {
            // SAFETY: the drafter is not used again.
            unsafe { free(self.handle) };
        }
    }
}

/// The rollback strategies of a plugin.
#[derive(Clone)]
pub struct RollbackPluginClient {
    plugin: Arc<str>,
    table: Table<RollbackTable>,
}

impl RollbackPluginClient {
    pub(super) fn new(plugin: String, table: *const c_void) -> Result<Self> {
        Ok(Self { table: checked(&plugin, table)?, plugin: plugin.into() })
    }

    /// Id of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Makes a strategy for a context.
    ///
    /// # Errors
    /// Why it cannot work there; settings that it refuses.
    pub fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<RollbackClient> {
        let create = abi_function!(self.table.0, RollbackTable, create).ok_or_else(|| missing("create"))?;
        let handle = create_handle(create, facts, settings, session)?;
        Ok(RollbackClient { plugin: self.clone(), handle, one_call: Mutex::default() })
    }
}

/// A rollback strategy of a context.
pub struct RollbackClient {
    plugin: RollbackPluginClient,
    handle: abi::RollbackHandle,
    /// Bytes that a call gives are valid until the next one.
    one_call: Mutex<()>,
}

// SAFETY: a rollback strategy may be called from any thread.
unsafe impl Send for RollbackClient {}
// SAFETY: as above, and calls that give bytes exclude one another.
unsafe impl Sync for RollbackClient {}

impl RollbackClient {
    /// Id of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin.plugin
    }

    /// The fragment of a Gated DeltaNet layer.
    ///
    /// # Errors
    /// A layer that the strategy cannot roll back; bytes that are no graph.
    pub fn delta_net(&self, shape: &DeltaNetShape) -> Result<Graph> {
        let get = abi_function!(self.plugin.table.0, RollbackTable, delta_net)
            .ok_or_else(|| missing("delta_net"))?;
        self.graph(shape, get)
    }

    /// What brings a layer's state up to the records that are kept.
    ///
    /// # Errors
    /// A layer that the strategy cannot roll back; bytes that are no graph; a strategy that lacks the function.
    pub fn settle(&self, shape: &DeltaNetShape) -> Result<Graph> {
        let get =
            abi_function!(self.plugin.table.0, RollbackTable, settle).ok_or_else(|| missing("settle"))?;
        self.graph(shape, get)
    }

    fn graph(
        &self,
        shape: &DeltaNetShape,
        get: unsafe extern "C" fn(
            rollback: abi::RollbackHandle,
            shape: *const abi::DeltaNetShape,
            out: *mut Bytes,
        ) -> *mut abi::Status,
    ) -> Result<Graph> {
        let shape = abi::DeltaNetShape {
            size: size_of::<abi::DeltaNetShape>(),
            rows: shape.rows,
            sequences: shape.sequences,
            slots: shape.slots,
            depth: shape.depth,
            key_heads: shape.key_heads,
            value_heads: shape.value_heads,
            key_width: shape.key_width,
            value_width: shape.value_width,
            scale: shape.scale,
            reserved: 0,
        };
        let _one = self.one_call.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Bytes::new(&[]);
        // SAFETY: the handle is live, arguments outlive the call, and the bytes are read before the next one.
        unsafe {
            Error::take(get(self.handle, &raw const shape, &raw mut bytes))?;
            Graph::from_bytes(bytes.get()).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
        }
    }
}

impl Drop for RollbackClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.plugin.table.0, RollbackTable, free) {
            // SAFETY: the strategy is not used again.
            unsafe { free(self.handle) };
        }
    }
}
