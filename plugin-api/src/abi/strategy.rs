//! Strategies: drafters (`paceline.drafter/1`) and rollback (`paceline.rollback/1`).
//!
//! A strategy never talks to a backend. It gets a [`SessionTable`], through which it reads facts of the models,
//! declares what it needs while it is made, and runs its programs later.

use super::{Bytes, SettingText, Status, Str};
use core::ffi::c_void;

/// Interface id of [`DrafterTable`].
pub const DRAFTER_INTERFACE: &str = "paceline.drafter/1";
/// Interface id of [`RollbackTable`].
pub const ROLLBACK_INTERFACE: &str = "paceline.rollback/1";

/// Files that a strategy can ask about.
pub mod source {
    /// The model that is run.
    pub const TARGET: u32 = 0;
    /// The drafter's own file, if one was given.
    pub const DRAFT: u32 = 1;
}

/// In place of a layer: the normed output of the last one.
pub const TAP_HIDDEN: u32 = u32::MAX;

/// What a drafter's draft is a sample of.
pub mod draft_kind {
    /// Certain tokens: no distribution.
    pub const POINT: u32 = 0;
    /// Every token comes with the distribution that it was drawn from.
    pub const DISTRIBUTION: u32 = 1;
}

/// What drafting costs.
pub mod draft_cost {
    /// Next to nothing: it is asked first.
    pub const FREE: u32 = 0;
    /// It runs programs.
    pub const DEVICE: u32 = 1;
}

/// Opaque: a drafter for one context.
pub type DrafterHandle = *mut c_void;
/// Opaque: a rollback strategy for one context.
pub type RollbackHandle = *mut c_void;

/// Facts of the context that a strategy is made for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextFacts {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Tokens of the target's vocabulary.
    pub vocabulary: u32,
    /// Width of the target's residual stream.
    pub hidden: u32,
    /// Layers of the target's trunk.
    pub layers: u32,
    /// Sequences at a time.
    pub sequences: u32,
    /// Positions of a sequence.
    pub positions: u32,
    /// Blocks of 256 positions that a sequence has.
    pub blocks_per_sequence: u32,
    /// Type of cached keys.
    pub key_type: u32,
    /// Type of cached values.
    pub value_type: u32,
    /// Rows per sequence of a state that a tap fills.
    pub staged_rows: u32,
    /// Rows that a sequence can be rolled back by: the longest draft that is verified in one run.
    pub rollback_depth: u32,
    /// Most rows of the target's runs.
    pub microbatch: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Id of the backend that runs the target's layers.
    pub backend: Str,
    /// Architecture of the target.
    pub architecture: Str,
}

/// Shape and type of a tensor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorFacts {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Type id.
    pub dtype: u32,
    /// Number of dimensions.
    pub rank: u32,
    /// Dimensions, outermost first.
    pub dims: [u32; 4],
}

/// Rows of one group of a strategy's program: consecutive positions of the run's sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GroupRows {
    /// Position of the first row.
    pub position: u32,
    /// Number of rows.
    pub count: u32,
    /// `count` token ids, or null where the graph makes them itself.
    pub tokens: *const u32,
}

/// What the host offers to a strategy. Functions may only be called during the call that the table was given to. The
/// `declare_` functions work while a strategy is made, `run` works afterwards.
#[repr(C)]
pub struct SessionTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// First argument of the functions below.
    pub context: *mut c_void,
    /// Entry `index` of a metadata key of whole numbers or switches, `UNSUPPORTED` if there is none. A single number
    /// has the entry 0.
    pub metadata_integer: Option<
        unsafe extern "C" fn(context: *mut c_void, source: u32, key: Str, index: u32, out: *mut i64) -> i32,
    >,
    /// A metadata key that is a number, `UNSUPPORTED` if there is none.
    pub metadata_number:
        Option<unsafe extern "C" fn(context: *mut c_void, source: u32, key: Str, out: *mut f64) -> i32>,
    /// A metadata key that is a text, valid during this call; `UNSUPPORTED` if there is none.
    pub metadata_text:
        Option<unsafe extern "C" fn(context: *mut c_void, source: u32, key: Str, out: *mut Str) -> i32>,
    /// Shape and type of a tensor, `UNSUPPORTED` if there is none.
    pub tensor: Option<
        unsafe extern "C" fn(context: *mut c_void, source: u32, name: Str, out: *mut TensorFacts) -> i32,
    >,
    /// 1 if the target's family has the fragment.
    pub has_fragment: Option<unsafe extern "C" fn(context: *mut c_void, name: Str) -> u32>,
    /// Has a hidden state of the target copied to a state after every run: `layer` is the layer whose input is
    /// wanted, or [`TAP_HIDDEN`].
    pub declare_tap: Option<unsafe extern "C" fn(context: *mut c_void, layer: u32) -> *mut Status>,
    /// Gives the strategy a ring of `blocks` blocks of 256 positions per sequence.
    pub declare_ring: Option<unsafe extern "C" fn(context: *mut c_void, blocks: u32) -> *mut Status>,
    /// Declares a program; `out` is its number.
    pub declare_program: Option<
        unsafe extern "C" fn(context: *mut c_void, name: Str, graph: Bytes, out: *mut u32) -> *mut Status,
    >,
    /// Runs a program for one sequence and waits for it. The result block stays readable until the next run.
    pub run: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            program: u32,
            sequence: u32,
            groups: *const GroupRows,
            group_count: usize,
            results: *mut Bytes,
        ) -> i32,
    >,
    /// The error of the last failed call of `run`, or null. The caller releases it.
    pub error: Option<unsafe extern "C" fn(context: *mut c_void) -> *mut Status>,
}

/// What a drafter says about itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DrafterInfo {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Longest draft that it makes.
    pub most: u32,
    /// One of [`draft_kind`].
    pub kind: u32,
    /// One of [`draft_cost`].
    pub cost: u32,
    /// 1 if a user fixed the length of drafts: the host does not adapt it.
    pub fixed: u32,
}

/// What is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProposeArgs {
    /// Size of this struct in bytes.
    pub size: usize,
    /// The sequence.
    pub sequence: u32,
    /// Positions that are processed: the anchor's position.
    pub frontier: u32,
    /// The last token of the text, which is not processed yet.
    pub anchor: u32,
    /// Most tokens that are wanted, at least 1.
    pub most: u32,
    /// Room for `most` tokens.
    pub tokens: *mut u32,
    /// Room for a probability of each token, by which drafts may be cut; NaN where the drafter has none.
    pub confidence: *mut f32,
    /// Room for `most` rows of the vocabulary's size, for drafters of the kind `DISTRIBUTION`; else null.
    pub distributions: *mut f32,
    /// Set by the drafter: number of tokens.
    pub count: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// What became of a round.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Outcome {
    /// Size of this struct in bytes.
    pub size: usize,
    /// The sequence.
    pub sequence: u32,
    /// Tokens of this drafter's draft that were verified; 0 if another one's draft, or none, was.
    pub verified: u32,
    /// How many of them were accepted.
    pub accepted: u32,
    /// Tokens that this drafter proposed.
    pub drafted: u32,
    /// Most tokens that were wanted.
    pub wanted: u32,
}

/// Functions of `paceline.drafter/1`. One thread at a time per handle.
#[repr(C)]
pub struct DrafterTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Makes a drafter for a context: checks that it can work there and declares its needs.
    pub create: Option<
        unsafe extern "C" fn(
            facts: *const ContextFacts,
            settings: *const SettingText,
            setting_count: usize,
            session: *const SessionTable,
            out: *mut DrafterHandle,
        ) -> *mut Status,
    >,
    /// Frees a drafter.
    pub free: Option<unsafe extern "C" fn(drafter: DrafterHandle)>,
    /// What the drafter is.
    pub info: Option<unsafe extern "C" fn(drafter: DrafterHandle, out: *mut DrafterInfo) -> *mut Status>,
    /// A sequence begins, empty.
    pub begin: Option<unsafe extern "C" fn(drafter: DrafterHandle, sequence: u32) -> i32>,
    /// The target has processed and kept `count` tokens at `position` and after.
    pub observe: Option<
        unsafe extern "C" fn(
            drafter: DrafterHandle,
            session: *const SessionTable,
            sequence: u32,
            position: u32,
            tokens: *const u32,
            count: usize,
        ) -> i32,
    >,
    /// Guesses what follows.
    pub propose: Option<
        unsafe extern "C" fn(
            drafter: DrafterHandle,
            session: *const SessionTable,
            args: *mut ProposeArgs,
        ) -> i32,
    >,
    /// What became of a round, before the rows that were kept are observed.
    pub resolve: Option<unsafe extern "C" fn(drafter: DrafterHandle, outcome: *const Outcome) -> i32>,
    /// Only the first `length` positions of the sequence remain.
    pub truncate: Option<unsafe extern "C" fn(drafter: DrafterHandle, sequence: u32, length: u32) -> i32>,
    /// What the drafter would tell a user about its choices; valid until the next call on the handle.
    pub explain: Option<unsafe extern "C" fn(drafter: DrafterHandle, out: *mut Str) -> *mut Status>,
    /// The text of the last failed call that returned a number, or null. The caller releases it.
    pub error: Option<unsafe extern "C" fn(drafter: DrafterHandle) -> *mut Status>,
    /// What the drafter keeps of a sequence besides its states, valid until the next call on the handle. May be absent:
    /// a restored sequence then begins anew for the drafter.
    pub save:
        Option<unsafe extern "C" fn(drafter: DrafterHandle, sequence: u32, out: *mut Bytes) -> *mut Status>,
    /// The reverse of `save`, after the states were restored: the sequence holds `count` tokens. Without bytes, nothing was
    /// saved of it.
    pub restore: Option<
        unsafe extern "C" fn(
            drafter: DrafterHandle,
            sequence: u32,
            tokens: *const u32,
            count: usize,
            saved: Bytes,
        ) -> i32,
    >,
}

// SAFETY: a table is constant for the life of the process and holds function pointers only.
unsafe impl Sync for DrafterTable {}

/// Sizes of a recurrent layer of the kind Gated DeltaNet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeltaNetShape {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Most rows of the graph.
    pub rows: u32,
    /// Most sequences of the graph.
    pub sequences: u32,
    /// State slots of the context.
    pub slots: u32,
    /// Rows that can be rolled back.
    pub depth: u32,
    /// Key heads.
    pub key_heads: u32,
    /// Value heads.
    pub value_heads: u32,
    /// Elements of a key head.
    pub key_width: u32,
    /// Elements of a value head.
    pub value_width: u32,
    /// What the output is multiplied by.
    pub scale: f32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// Functions of `paceline.rollback/1`. Any thread.
#[repr(C)]
pub struct RollbackTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Makes a strategy for a context.
    pub create: Option<
        unsafe extern "C" fn(
            facts: *const ContextFacts,
            settings: *const SettingText,
            setting_count: usize,
            session: *const SessionTable,
            out: *mut RollbackHandle,
        ) -> *mut Status,
    >,
    /// Frees a strategy.
    pub free: Option<unsafe extern "C" fn(rollback: RollbackHandle)>,
    /// The fragment of a Gated DeltaNet layer: a graph with the parameters `q`, `k`, `v`, `g`, `beta`, `sequences`
    /// and `rollback`, states of its own, and the result `o`. The bytes are valid until the next call on the handle.
    pub delta_net: Option<
        unsafe extern "C" fn(
            rollback: RollbackHandle,
            shape: *const DeltaNetShape,
            out: *mut Bytes,
        ) -> *mut Status,
    >,
    /// A graph with the parameters `sequences` and `rollback` and no rows that brings the state `delta` of a layer up to
    /// the records that are kept, so that it can be saved. The bytes are valid until the next call on the handle.
    pub settle: Option<
        unsafe extern "C" fn(
            rollback: RollbackHandle,
            shape: *const DeltaNetShape,
            out: *mut Bytes,
        ) -> *mut Status,
    >,
}

// SAFETY: a table is constant for the life of the process and holds function pointers only.
unsafe impl Sync for RollbackTable {}
