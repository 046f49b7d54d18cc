//! C access to graphs: a reader and a builder, offered by the host as the interface `paceline.graph/1`.

use super::{Bytes, Status, Str};
use core::ffi::c_void;

/// An opened graph.
pub type GraphReaderHandle = *mut c_void;
/// A graph being built.
pub type GraphBuilderHandle = *mut c_void;

/// One value of a graph.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GraphValue {
    /// Size of this struct in bytes.
    pub size: usize,
    /// One of `VALUE_WEIGHT`, `VALUE_STATE`, `VALUE_PARAMETER` and `VALUE_NODE`.
    pub kind: u32,
    /// Data type, a GGUF type id such as `TYPE_F32`, or one that a plugin declares.
    pub dtype: u32,
    /// Number of dimensions, at most 4.
    pub rank: u32,
    /// Dimensions, outermost first.
    pub dims: [u32; 4],
    /// Id of the parameter that holds the live count of axis 0, or `u32::MAX`.
    pub live: u32,
    /// Offset in the parameter block, for parameters.
    pub offset: u32,
    /// One of `STATE_PER_POSITION` and the like; for states.
    pub state_kind: u32,
    /// Name, valid while the reader lives.
    pub name: Str,
}

/// One node of a graph.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GraphNode {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Version of the operation.
    pub version: u32,
    /// Number of attributes.
    pub attribute_count: u32,
    /// Name of the operation, valid while the reader lives.
    pub operation: Str,
    /// Ids of the inputs, valid while the reader lives.
    pub inputs: *const u32,
    /// Number of inputs.
    pub input_count: usize,
    /// Ids of the outputs, valid while the reader lives.
    pub outputs: *const u32,
    /// Number of outputs.
    pub output_count: usize,
}

/// One attribute of a node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GraphAttribute {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Name.
    pub key: Str,
    /// One of `ATTRIBUTE_INTEGER` and the like.
    pub kind: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Value of an integer attribute.
    pub integer: i64,
    /// Value of a float attribute.
    pub float: f64,
    /// Value of a text attribute.
    pub text: Str,
    /// Value of a list attribute, valid while the reader lives.
    pub list: *const i64,
    /// Length of the list.
    pub list_count: usize,
}

/// Functions of `paceline.graph/1`. A handle is used by one thread at a time.
#[repr(C)]
pub struct GraphTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Opens graph bytes after checking them.
    pub reader_open: Option<unsafe extern "C" fn(bytes: Bytes, out: *mut GraphReaderHandle) -> *mut Status>,
    /// Frees a reader.
    pub reader_free: Option<unsafe extern "C" fn(reader: GraphReaderHandle)>,
    /// Number of values.
    pub value_count: Option<unsafe extern "C" fn(reader: GraphReaderHandle) -> u32>,
    /// Number of nodes.
    pub node_count: Option<unsafe extern "C" fn(reader: GraphReaderHandle) -> u32>,
    /// Describes value `index`. The caller sets `out.size`.
    pub value: Option<
        unsafe extern "C" fn(reader: GraphReaderHandle, index: u32, out: *mut GraphValue) -> *mut Status,
    >,
    /// Describes node `index`. The caller sets `out.size`.
    pub node: Option<
        unsafe extern "C" fn(reader: GraphReaderHandle, index: u32, out: *mut GraphNode) -> *mut Status,
    >,
    /// Describes attribute `attribute` of node `node`. The caller sets `out.size`.
    pub attribute: Option<
        unsafe extern "C" fn(
            reader: GraphReaderHandle,
            node: u32,
            attribute: u32,
            out: *mut GraphAttribute,
        ) -> *mut Status,
    >,
    /// Number of results.
    pub result_count: Option<unsafe extern "C" fn(reader: GraphReaderHandle) -> u32>,
    /// Value id and offset of result `index`.
    pub result: Option<
        unsafe extern "C" fn(
            reader: GraphReaderHandle,
            index: u32,
            value: *mut u32,
            offset: *mut u32,
        ) -> *mut Status,
    >,
    /// Starts a graph.
    pub builder_new: Option<unsafe extern "C" fn() -> GraphBuilderHandle>,
    /// Adds a weight, state or parameter and returns its id in `out`.
    pub builder_value: Option<
        unsafe extern "C" fn(
            builder: GraphBuilderHandle,
            value: *const GraphValue,
            out: *mut u32,
        ) -> *mut Status,
    >,
    /// Adds a node; its outputs get the shapes that the operation defines and their ids come back in `outputs`.
    pub builder_node: Option<
        unsafe extern "C" fn(
            builder: GraphBuilderHandle,
            operation: Str,
            version: u32,
            inputs: *const u32,
            input_count: usize,
            attributes: *const GraphAttribute,
            attribute_count: usize,
            outputs: *mut u32,
            output_capacity: usize,
            output_count: *mut usize,
        ) -> *mut Status,
    >,
    /// Marks a node's output to appear in the result block.
    pub builder_result:
        Option<unsafe extern "C" fn(builder: GraphBuilderHandle, name: Str, value: u32) -> *mut Status>,
    /// Returns the canonical bytes, valid until the builder is freed or used again.
    pub builder_bytes:
        Option<unsafe extern "C" fn(builder: GraphBuilderHandle, out: *mut Bytes) -> *mut Status>,
    /// Frees a builder.
    pub builder_free: Option<unsafe extern "C" fn(builder: GraphBuilderHandle)>,
}

// SAFETY: the table is constant and its functions may be called from any thread.
unsafe impl Sync for GraphTable {}
