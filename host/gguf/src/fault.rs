//! Everything that can be wrong with a GGUF file, in words for the person who has to fix it.

use std::fmt;

use crate::TensorType;

/// One thing wrong with a file, or with a request made of it.
///
/// Offsets count bytes from the start of the file. Names from the file are shown quoted, with
/// control characters escaped and long names shortened, so that a hostile file cannot write to
/// the terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A directory, pipe or device was named.
    #[error("not a regular file; give the path of a .gguf file")]
    NotAFile,
    /// The bytes are something other than a GGUF file.
    #[error("not a GGUF file: byte 0 starts {found}; {advice}")]
    NotGguf {
        /// What the bytes look like.
        found: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The file was written on (or for) a big-endian machine.
    #[error(
        "big-endian GGUF file (version field at byte 4 reads {version:#010x}); only little-endian is \
         supported, so download or convert a little-endian copy"
    )]
    BigEndian {
        /// The version field as read in little-endian order.
        version: u32,
    },
    /// A GGUF version this reader does not know.
    #[error("GGUF version {version} (at byte 4) is not supported, only 2 and 3; {advice}")]
    Version {
        /// The version the file states.
        version: u32,
        /// What to do about it.
        advice: &'static str,
    },
    /// The file ends inside its header, metadata or tensor table.
    #[error(
        "cut short: {what} at byte {offset} needs {needed} bytes and the file has {left} left; download \
         the file again"
    )]
    CutShort {
        /// What was being read.
        what: String,
        /// Where it starts.
        offset: u64,
        /// How many bytes it needs.
        needed: u128,
        /// How many bytes are left.
        left: u64,
    },
    /// A count above the limit.
    #[error("{what} at byte {offset} is {count}, above the limit of {limit}; the file is damaged or hostile")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// Where the count stands.
        offset: u64,
        /// The count the file states.
        count: u64,
        /// The largest count accepted.
        limit: u64,
    },
    /// A string longer than the limit.
    #[error(
        "{what} at byte {offset} is {length} bytes long, above the limit of {limit}; the file is damaged \
         or hostile"
    )]
    TooLong {
        /// Which string.
        what: String,
        /// Where its length stands.
        offset: u64,
        /// The length the file states, bytes.
        length: u64,
        /// The longest accepted, bytes.
        limit: u64,
    },
    /// Text that is not UTF-8.
    #[error("{what} at byte {offset} is not valid UTF-8; the file is damaged or written by a faulty tool")]
    NotUtf8 {
        /// Which text.
        what: String,
        /// Where it starts.
        offset: u64,
    },
    /// A metadata value of a type GGUF does not define.
    #[error("metadata key {} has unknown value type {id} at byte {offset}", quoted(key))]
    UnknownValueType {
        /// The key.
        key: String,
        /// The type number in the file.
        id: u32,
        /// Where the type number stands.
        offset: u64,
    },
    /// An array whose elements are arrays.
    #[error("metadata key {} is an array of arrays at byte {offset}, which is not supported", quoted(key))]
    NestedArray {
        /// The key.
        key: String,
        /// Where the element type stands.
        offset: u64,
    },
    /// A truth value that is neither 0 nor 1.
    #[error(
        "metadata key {} has the truth value {byte} at byte {offset}; only 0 and 1 are valid",
        quoted(key)
    )]
    BadBool {
        /// The key.
        key: String,
        /// The byte found.
        byte: u8,
        /// Where it stands.
        offset: u64,
    },
    /// Two entries with the same key.
    #[error("metadata key {} appears twice, the second time at byte {offset}", quoted(key))]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where the later entry starts.
        offset: u64,
    },
    /// `general.alignment` is unusable.
    #[error("metadata key 'general.alignment' is {found}; it must be {expected}")]
    BadAlignment {
        /// What the file has.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// A key that the caller needs is absent.
    #[error(
        "metadata key {} is missing ({expected} expected); the file lacks what this model needs",
        quoted(key)
    )]
    MissingKey {
        /// The key.
        key: String,
        /// The type asked for.
        expected: &'static str,
    },
    /// A value of another type than asked for.
    #[error("metadata key {} is {found} where {expected} is expected", quoted(key))]
    WrongType {
        /// The key.
        key: String,
        /// The type asked for.
        expected: &'static str,
        /// The type in the file.
        found: String,
    },
    /// A number that does not fit the type asked for.
    #[error("metadata key {}{} is {value}, which does not fit {expected}", quoted(key), at_index(*index))]
    OutOfRange {
        /// The key.
        key: String,
        /// Which array element, when the value is an array.
        index: Option<usize>,
        /// The value in the file.
        value: String,
        /// The type asked for.
        expected: &'static str,
    },
    /// A tensor with no dimensions or too many.
    #[error("tensor {} has {rank} dimensions at byte {offset}; 1 to 4 are possible", quoted(name))]
    TensorRank {
        /// The tensor.
        name: String,
        /// How many dimensions the file states.
        rank: u32,
        /// Where that number stands.
        offset: u64,
    },
    /// Dimensions that cannot be: zero, too large, or not a whole number of blocks.
    #[error("tensor {} of shape {dims:?} and type {tensor_type}: {problem}", quoted(name))]
    TensorShape {
        /// The tensor.
        name: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
        /// Its type.
        tensor_type: TensorType,
        /// What is wrong.
        problem: String,
    },
    /// A tensor whose data does not start on the file's alignment.
    #[error(
        "tensor {} starts {relative} bytes into the data section, not a multiple of the alignment {alignment}",
        quoted(name)
    )]
    TensorMisaligned {
        /// The tensor.
        name: String,
        /// Its offset from the start of the data section.
        relative: u64,
        /// The file's alignment, bytes.
        alignment: u64,
    },
    /// A tensor whose data starts before the end of an earlier tensor in the table.
    #[error(
        "tensor {} starts {relative} bytes into the data section, before the end of tensor {} at {other_end}; \
         the table is damaged, or the file uses a type number for a format of its own",
        quoted(name),
        quoted(other)
    )]
    TensorOverlap {
        /// The tensor.
        name: String,
        /// Its offset from the start of the data section.
        relative: u64,
        /// The earlier tensor.
        other: String,
        /// Where the earlier tensor ends, from the start of the data section.
        other_end: u128,
    },
    /// A tensor whose data lies beyond the end of the file.
    #[error(
        "file seems cut short: tensor {} ends at byte {end}, all tensors need {file_needs} bytes and the \
         file has {file_has}; download the file again",
        quoted(name)
    )]
    TensorCutShort {
        /// The first tensor that does not fit.
        name: String,
        /// Where its data would end.
        end: u128,
        /// The file length that all tensors need.
        file_needs: u128,
        /// The file length there is.
        file_has: u64,
    },
    /// Two tensors with the same name.
    #[error("tensor {} appears twice{}", quoted(name), elsewhere(other))]
    DuplicateTensor {
        /// The tensor.
        name: String,
        /// The other file of a split model that has it too.
        other: Option<String>,
    },
    /// The bytes of a tensor were asked for, and its type's layout is not known.
    #[error(
        "tensor {} has unknown type {id}{}; use a copy quantised to a known type, or a plugin that \
         provides this type",
        quoted(name), retired(*id)
    )]
    UnknownTensorType {
        /// The tensor.
        name: String,
        /// The type number in the file.
        id: u32,
    },
    /// The bytes of a tensor were asked for in a layout that needs more than there are.
    #[error(
        "tensor {} of type {id} needs {needed} bytes in the layout that is declared for this type, and has room for \
         {room}; use the plugin that the file was made for",
        quoted(name)
    )]
    DeclaredTypeTooLarge {
        /// The tensor.
        name: String,
        /// The type number in the file.
        id: u32,
        /// Bytes that its shape takes.
        needed: u64,
        /// Bytes up to the next tensor or the end of the file.
        room: u64,
    },
    /// A tensor that the caller needs is absent.
    #[error("tensor {} is missing; the file lacks what this model needs", quoted(name))]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// Bytes of a tensor that this model does not hold.
    #[error("tensor {} does not belong to this model", quoted(name))]
    ForeignTensor {
        /// The tensor.
        name: String,
    },
    /// A second GGUF file follows the first one's data.
    #[error(
        "another GGUF file starts at byte {offset}: shards seem to have been joined with cat; keep the \
         shards apart, or merge them with a GGUF split tool"
    )]
    Joined {
        /// Where the second file starts.
        offset: u64,
    },
    /// Shards of a split model that are not beside the one named.
    #[error("split model of {total} files, of which {} missing: {}; put all of them in one folder",
        if *missing == 1 { "1 is".to_owned() } else { format!("{missing} are") },
        shard_list(names, *missing))]
    ShardsMissing {
        /// The first missing file names.
        names: Vec<String>,
        /// How many are missing in all.
        missing: usize,
        /// How many files the model has.
        total: u32,
    },
    /// A name that announces more files than a model may have.
    #[error(
        "the file's name says it is one of {total} files, above the limit of {limit}; rename it if it is not"
    )]
    TooManyShards {
        /// How many files the name announces.
        total: u32,
        /// The most accepted.
        limit: u32,
    },
    /// A shard whose metadata contradicts its name or its siblings.
    #[error(
        "metadata key '{key}' is {found}, but {expected} by the file's name and its siblings; the file was \
         renamed or belongs to another model"
    )]
    ShardMismatch {
        /// The key.
        key: &'static str,
        /// What the file has.
        found: String,
        /// What fits.
        expected: String,
    },
    /// A part of a split model that was not opened as one.
    #[error("metadata key 'split.count' says this is one part of {count}; {advice}")]
    LoneShard {
        /// How many parts the model has.
        count: u64,
        /// What to do about it.
        advice: &'static str,
    },
    /// A well-formed file whose metadata no model can have.
    #[error("metadata key {}: {problem}", quoted(key))]
    Model {
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The writer was asked for a file that would not be valid.
    #[error("cannot write: {what}")]
    CannotWrite {
        /// What is wrong with the request.
        what: String,
    },
}

/// The longest piece of a name that a message shows, characters.
const SHOWN_CHARACTERS: usize = 96;

/// Quotes a name from a file so that it can go to a terminal.
pub(crate) fn quoted(name: &str) -> impl fmt::Display {
    let mut shown: String = name.chars().take(SHOWN_CHARACTERS).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN_CHARACTERS).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}

fn at_index(index: Option<usize>) -> String {
    index.map_or_else(String::new, |index| format!(" element {index}"))
}

fn elsewhere(other: &Option<String>) -> String {
    other.as_ref().map_or_else(String::new, |other| format!(", also in {other}"))
}

fn retired(id: u32) -> String {
    TensorType::retired_name(id).map_or_else(String::new, |name| format!(" (the retired {name})"))
}

fn shard_list(names: &[String], missing: usize) -> String {
    let mut list = names.join(", ");
    if missing > names.len() {
        list.push_str(", ...");
    }
    list
}
