//! SPIR-V modules made ready for a device: sub-groups of its width, and one kernel by itself, so that a driver compiles
//! what is used and nothing else.

use std::collections::HashSet;
use std::fmt;

/// Widths of sub-groups that the kernels can run with.
pub const WIDTHS: [u32; 3] = [8, 16, 32];

/// The specialisation constant that holds the width.
const WIDTH_CONSTANT: u32 = 0;
const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;

/// Numbers of instructions and operands, from the specification of SPIR-V.
mod op {
    pub const NAME: u32 = 5;
    pub const MEMBER_NAME: u32 = 6;
    pub const ENTRY_POINT: u32 = 15;
    pub const EXECUTION_MODE: u32 = 16;
    pub const CONSTANT: u32 = 43;
    pub const SPEC_CONSTANT: u32 = 50;
    pub const FUNCTION: u32 = 54;
    pub const FUNCTION_END: u32 = 56;
    pub const FUNCTION_CALL: u32 = 57;
    pub const VARIABLE: u32 = 59;
    pub const DECORATE: u32 = 71;
    pub const SUBGROUP_SIZE: u32 = 35;
    pub const SPEC_ID: u32 = 1;
    pub const LINKAGE: u32 = 41;
}

/// What is wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpirvError {
    /// It is not SPIR-V of this machine's byte order, or ends in the middle of an instruction.
    Malformed,
    /// It has no kernel of this name.
    NoKernel(String),
    /// Sub-groups of this width are not among [`WIDTHS`].
    Width(u32),
}

impl fmt::Display for SpirvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "the module is not SPIR-V, or was cut off"),
            Self::NoKernel(name) => write!(f, "the module has no kernel `{name}`"),
            Self::Width(width) => {
                write!(f, "the kernels do not run with sub-groups of {width} lanes; 8, 16 and 32 are known")
            }
        }
    }
}

impl std::error::Error for SpirvError {}

/// One instruction: its number and its words, the first of which holds number and length.
#[derive(Clone, Copy)]
struct Instruction<'a> {
    operation: u32,
    words: &'a [u32],
}

impl Instruction<'_> {
    fn word(&self, index: usize) -> u32 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// The text that begins at a word, four bytes a word, zero at its end.
    fn text(&self, index: usize) -> Vec<u8> {
        let bytes = self.words.iter().skip(index).flat_map(|word| word.to_le_bytes());
        bytes.take_while(|&byte| byte != 0).collect()
    }
}

fn words_of(module: &[u8]) -> Result<Vec<u32>, SpirvError> {
    let words: Vec<u32> =
        module.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    match module.len().is_multiple_of(4) && words.len() >= HEADER && words[0] == MAGIC {
        true => Ok(words),
        false => Err(SpirvError::Malformed),
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn instructions(words: &[u32]) -> Result<Vec<Instruction<'_>>, SpirvError> {
    let mut list = Vec::new();
    let mut rest = &words[HEADER..];
    while let Some(&first) = rest.first() {
        let length = (first >> 16) as usize;
        if length == 0 || length > rest.len() {
            return Err(SpirvError::Malformed);
        }
        let (own, behind) = rest.split_at(length);
        list.push(Instruction { operation: first & 0xFFFF, words: own });
        rest = behind;
    }
    Ok(list)
}

/// A module whose kernels run with sub-groups of `width` lanes.
///
/// # Errors
/// [`SpirvError::Malformed`], [`SpirvError::Width`].
pub fn with_width(module: &[u8], width: u32) -> Result<Vec<u8>, SpirvError> {
    if !WIDTHS.contains(&width) {
        return Err(SpirvError::Width(width));
    }
    let words = words_of(module)?;
    let list = instructions(&words)?;
    let is_constant = |i: &Instruction<'_>| {
        i.operation == op::DECORATE && i.word(2) == op::SPEC_ID && i.word(3) == WIDTH_CONSTANT
    };
    let constants: HashSet<u32> = list.iter().filter(|i| is_constant(i)).map(|i| i.word(1)).collect();
    let mut out = words[..HEADER].to_vec();
    for i in &list {
        match i.operation {
            op::DECORATE if is_constant(i) => {}
            op::SPEC_CONSTANT if constants.contains(&i.word(2)) => {
                out.extend([4 << 16 | op::CONSTANT, i.word(1), i.word(2), width]);
            }
            op::EXECUTION_MODE if i.word(2) == op::SUBGROUP_SIZE => {
                out.extend([i.words[0], i.word(1), op::SUBGROUP_SIZE, width]);
            }
            _ => out.extend(i.words),
        }
    }
    Ok(bytes_of(&out))
}

/// A function: its id, where it begins and ends in the list, what it calls.
struct Function {
    id: u32,
    range: std::ops::Range<usize>,
    calls: Vec<u32>,
}

fn functions(list: &[Instruction<'_>]) -> Result<Vec<Function>, SpirvError> {
    let mut found: Vec<Function> = Vec::new();
    for (at, i) in list.iter().enumerate() {
        match (i.operation, found.last_mut()) {
            (op::FUNCTION, _) => {
                found.push(Function { id: i.word(2), range: at..at + 1, calls: Vec::new() });
            }
            (op::FUNCTION_CALL, Some(function)) => function.calls.push(i.word(3)),
            (op::FUNCTION_END, Some(function)) => function.range.end = at + 1,
            _ => {}
        }
    }
    let is_whole = found.last().is_none_or(|function| function.range.end == list.len());
    if is_whole { Ok(found) } else { Err(SpirvError::Malformed) }
}

/// A module with one kernel of another, and what that kernel needs.
///
/// # Errors
/// [`SpirvError::Malformed`], [`SpirvError::NoKernel`].
pub fn kernel(module: &[u8], name: &str) -> Result<Vec<u8>, SpirvError> {
    let words = words_of(module)?;
    let list = instructions(&words)?;
    let is_entry = |i: &&Instruction<'_>| i.operation == op::ENTRY_POINT && i.text(3) == name.as_bytes();
    let entry = list.iter().find(is_entry).ok_or_else(|| SpirvError::NoKernel(name.to_owned()))?.word(2);

    let functions = functions(&list)?;
    let mut kept: HashSet<u32> = HashSet::from([entry]);
    let mut open = vec![entry];
    while let Some(id) = open.pop() {
        let calls =
            functions.iter().filter(|function| function.id == id).flat_map(|function| &function.calls);
        calls.for_each(|&id| {
            if kept.insert(id) {
                open.push(id);
            }
        });
    }
    let (own, others): (Vec<&Function>, Vec<&Function>) =
        functions.iter().partition(|function| kept.contains(&function.id));
    let end_of_globals = functions.first().map_or(list.len(), |function| function.range.start);
    let globals = &list[..end_of_globals];
    let body = |function: &Function| list[function.range.clone()].iter();

    // A number that only looks like an id keeps too much, never too little.
    let mut used: HashSet<u32> =
        own.iter().flat_map(|function| body(function)).flat_map(|i| &i.words[1..]).copied().collect();
    let is_variable = |i: &&Instruction<'_>| i.operation == op::VARIABLE;
    used.extend(globals.iter().filter(is_variable).flat_map(|i| i.words.iter().skip(4)));
    let unused: HashSet<u32> =
        globals.iter().filter(is_variable).map(|i| i.word(2)).filter(|id| !used.contains(id)).collect();
    // What functions that go define: the id of a result is a label's only operand, else the second, behind a type.
    let gone: HashSet<u32> = others
        .iter()
        .flat_map(|function| body(function))
        .flat_map(|i| [i.word(1), i.word(2)])
        .filter(|id| !used.contains(id))
        .collect();

    let mut out = words[..HEADER].to_vec();
    for i in globals {
        let is_kept = match i.operation {
            op::ENTRY_POINT | op::EXECUTION_MODE => {
                i.word(if i.operation == op::ENTRY_POINT { 2 } else { 1 }) == entry
            }
            op::NAME | op::MEMBER_NAME => false,
            op::VARIABLE => !unused.contains(&i.word(2)),
            // Whatever is linked to nothing else needs no linkage.
            op::DECORATE if i.word(2) == op::LINKAGE && others.iter().any(|f| f.id == i.word(1)) => false,
            op::DECORATE => {
                !unused.contains(&i.word(1)) && (!gone.contains(&i.word(1)) || is_global(globals, i))
            }
            _ => true,
        };
        if is_kept {
            match i.operation {
                op::ENTRY_POINT => out.extend(without(i, &unused)),
                _ => out.extend(i.words),
            }
        }
    }
    own.iter().flat_map(|function| body(function)).for_each(|i| out.extend(i.words));
    Ok(bytes_of(&out))
}

/// True if what a decoration is about is a type, constant or variable of the module.
fn is_global(globals: &[Instruction<'_>], decoration: &Instruction<'_>) -> bool {
    let id = decoration.word(1);
    globals.iter().any(|i| match i.operation {
        19..=40 => i.word(1) == id,
        41..=60 => i.word(2) == id,
        _ => false,
    })
}

/// An entry point without variables that are not there any more.
fn without(entry: &Instruction<'_>, unused: &HashSet<u32>) -> Vec<u32> {
    let name_words = entry.text(3).len() / 4 + 1;
    let (start, interface) = entry.words.split_at((3 + name_words).min(entry.words.len()));
    let mut out = start.to_vec();
    out.extend(interface.iter().filter(|id| !unused.contains(id)));
    out[0] = (out.len() as u32) << 16 | op::ENTRY_POINT;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::spirv;

    fn names(module: &[u8]) -> Vec<String> {
        let words = words_of(module).unwrap();
        let list = instructions(&words).unwrap();
        let entries = list.iter().filter(|i| i.operation == op::ENTRY_POINT);
        entries.map(|i| String::from_utf8(i.text(3)).unwrap()).collect()
    }

    fn widths(module: &[u8]) -> Vec<u32> {
        let words = words_of(module).unwrap();
        let list = instructions(&words).unwrap();
        let modes = list.iter().filter(|i| i.operation == op::EXECUTION_MODE);
        modes.filter(|i| i.word(2) == op::SUBGROUP_SIZE).map(|i| i.word(3)).collect()
    }

    #[test]
    fn every_kernel_can_be_taken_by_itself_at_every_width() {
        for image in spirv::images() {
            for width in WIDTHS {
                let module = with_width(&image.bytes, width).unwrap();
                let all = names(&module);
                assert!(all.len() > 20 && widths(&module).iter().all(|&found| found == width));
                for name in all {
                    let own = kernel(&module, &name).unwrap();
                    assert_eq!((names(&own), widths(&own)), (vec![name], vec![width]));
                    assert!(own.len() * 5 < module.len());
                }
            }
        }
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let image = &spirv::images()[0].bytes;
        assert_eq!(kernel(image, "nothing"), Err(SpirvError::NoKernel("nothing".into())));
        assert_eq!(with_width(image, 64), Err(SpirvError::Width(64)));
        assert_eq!(kernel(&image[..image.len() - 8], "scale"), Err(SpirvError::Malformed));
        assert_eq!(with_width(b"", 8), Err(SpirvError::Malformed));
        assert_eq!(with_width(&[0; 64], 8), Err(SpirvError::Malformed));
    }
}
