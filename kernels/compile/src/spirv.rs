//! SPIR-V from what clang makes: llvm-spirv 15 stops at some of what the optimiser writes, and leaves blocks in an order
//! that SPIR-V does not allow. Both are put right here, as text before it and as words after it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Words of a header.
const HEADER: usize = 5;

/// Numbers of instructions.
mod op {
    pub const SOURCE_CONTINUED: u32 = 2;
    pub const SOURCE: u32 = 3;
    pub const NAME: u32 = 5;
    pub const MEMBER_NAME: u32 = 6;
    pub const STRING: u32 = 7;
    pub const FUNCTION: u32 = 54;
    pub const FUNCTION_END: u32 = 56;
    pub const VARIABLE: u32 = 59;
    pub const LOOP_MERGE: u32 = 246;
    pub const SELECTION_MERGE: u32 = 247;
    pub const LABEL: u32 = 248;
    pub const BRANCH: u32 = 249;
    pub const BRANCH_CONDITIONAL: u32 = 250;
    pub const SWITCH: u32 = 251;
}

/// The value of a register without any promise about it, by an instruction that SPIR-V has: `freeze` has none.
fn thawed(line: &str) -> Result<String, String> {
    let unknown = || format!("there is no other form of `{}`", line.trim());
    let (name, rest) = line.trim().split_once(" = freeze ").ok_or_else(unknown)?;
    let (kind, value) = match rest.strip_prefix('<') {
        Some(vector) => {
            let (inner, value) = vector.split_once("> ").ok_or_else(unknown)?;
            (format!("<{inner}>"), value)
        }
        None => rest.split_once(' ').map(|(kind, value)| (kind.to_owned(), value)).ok_or_else(unknown)?,
    };
    let or = |kind: &str, none: &str| format!("  {name} = or {kind} {value}, {none}");
    match kind.as_str() {
        "i1" => Ok(or("i1", "false")),
        "i8" | "i16" | "i32" | "i64" => Ok(or(&kind, "0")),
        _ if kind.starts_with('<') && kind.ends_with("i32>") => Ok(or(&kind, "zeroinitializer")),
        _ if kind.ends_with("float") || kind.ends_with("float>") => {
            let bits = kind.replace("float", "i32");
            let own = format!("%thawed.{}", name.trim_start_matches('%'));
            Ok(format!(
                "  {own} = bitcast {kind} {value} to {bits}\n  {name} = bitcast {bits} {own} to {kind}"
            ))
        }
        _ => Err(unknown()),
    }
}

/// The width of an integer type that SPIR-V has not, if a line begins a truncation to it or a switch over it.
fn odd_width(kind: &str) -> Option<u32> {
    let width = kind.strip_prefix('i')?.parse().ok()?;
    (![1, 8, 16, 32, 64].contains(&width) && width < 32).then_some(width)
}

/// LLVM's text with other forms for what llvm-spirv cannot translate: `freeze`, and switches over a few bits.
///
/// # Errors
/// A form of these that is not known; anything else is llvm-spirv's to refuse.
pub fn translatable(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut switched: Option<u32> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if line.contains(" = freeze ") {
            out.push_str(&thawed(line)?);
        } else if let Some((left, kind)) =
            line.rsplit_once(" to ").filter(|(left, _)| left.contains(" = trunc i32 "))
            && let Some(width) = odd_width(kind.trim())
        {
            let masked = left.replace(" = trunc i32 ", " = and i32 ");
            let _ = write!(out, "{masked}, {}", (1u32 << width) - 1);
        } else if words.next() == Some("switch")
            && let Some(width) = words.next().and_then(odd_width)
        {
            switched = Some(width);
            out.push_str(&line.replacen(&format!("i{width}"), "i32", 1));
        } else if let Some(width) = switched {
            if line.trim() == "]" {
                switched = None;
                out.push_str(line);
            } else {
                let wrong = || format!("`{}` is no case of a switch", line.trim());
                let (value, target) = line.split_once(',').ok_or_else(wrong)?;
                let value = value.trim().strip_prefix(&format!("i{width} ")).ok_or_else(wrong)?;
                let value: i64 = value.parse().map_err(|_| wrong())?;
                let _ = write!(out, "    i32 {},{target}", value.rem_euclid(1 << width));
            }
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    Ok(out)
}

/// The words of a module.
///
/// # Errors
/// Bytes that are no module.
fn words_of(module: &[u8]) -> Result<Vec<u32>, String> {
    let words: Vec<u32> =
        module.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    match words.first() {
        Some(0x0723_0203) if words.len() > HEADER => Ok(words),
        _ => Err("llvm-spirv wrote no SPIR-V".into()),
    }
}

/// Instructions, with their operands.
fn instructions(words: &[u32]) -> impl Iterator<Item = (u32, &[u32])> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let length = ((first >> 16) as usize).clamp(1, rest.len());
        let (own, behind) = rest.split_at(length);
        rest = behind;
        Some((first & 0xFFFF, own))
    })
}

/// One block of a function: its label, its words, where it may go.
struct Block<'a> {
    label: u32,
    words: Vec<&'a [u32]>,
    targets: Vec<u32>,
}

fn targets(operation: u32, own: &[u32], labels: &HashSet<u32>) -> Vec<u32> {
    match operation {
        op::BRANCH => vec![own[1]],
        op::BRANCH_CONDITIONAL => own[2..4].to_vec(),
        op::SWITCH => {
            let cases = |words: usize| -> Vec<u32> {
                own[3..].chunks(words).filter_map(|case| case.get(words - 1).copied()).collect()
            };
            // Cases of 64 bits have two words and a label.
            let short = cases(2);
            let is_short = short.iter().all(|label| labels.contains(label));
            std::iter::once(own[2]).chain(if is_short { short } else { cases(3) }).collect()
        }
        _ => Vec::new(),
    }
}

/// Blocks so that each comes after the one that dominates it: in reverse post-order, what is unreachable at the end.
fn order(blocks: &[Block<'_>]) -> Vec<usize> {
    let index: HashMap<u32, usize> = blocks.iter().enumerate().map(|(i, block)| (block.label, i)).collect();
    let mut seen = vec![false; blocks.len()];
    let mut post = Vec::with_capacity(blocks.len());
    let mut path = vec![(0, 0)];
    seen[0] = true;
    while let Some((at, next)) = path.pop() {
        match blocks[at].targets.get(next) {
            Some(label) => {
                path.push((at, next + 1));
                if let Some(&target) = index.get(label)
                    && !seen[target]
                {
                    seen[target] = true;
                    path.push((target, 0));
                }
            }
            None => post.push(at),
        }
    }
    post.reverse();
    post.extend((0..blocks.len()).filter(|&i| !seen[i]));
    post
}

/// A module with its blocks in order, without names and without hints about loops, which no device needs.
///
/// # Errors
/// Bytes that are no module.
pub fn ordered(module: &[u8]) -> Result<Vec<u8>, String> {
    let words = words_of(module)?;
    let labels: HashSet<u32> =
        instructions(&words[HEADER..]).filter(|(o, _)| *o == op::LABEL).map(|(_, own)| own[1]).collect();
    let mut out: Vec<u32> = words[..HEADER].to_vec();
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut in_function = false;
    for (operation, own) in instructions(&words[HEADER..]) {
        match operation {
            op::NAME | op::MEMBER_NAME | op::STRING | op::SOURCE | op::SOURCE_CONTINUED => {}
            op::LOOP_MERGE | op::SELECTION_MERGE => {}
            op::FUNCTION => {
                in_function = true;
                out.extend(own);
            }
            op::LABEL => blocks.push(Block { label: own[1], words: vec![own], targets: Vec::new() }),
            op::FUNCTION_END => {
                if !blocks.is_empty() {
                    order(&blocks)
                        .into_iter()
                        .for_each(|i| blocks[i].words.iter().for_each(|w| out.extend(*w)));
                }
                blocks.clear();
                in_function = false;
                out.extend(own);
            }
            _ => match blocks.last_mut().filter(|_| in_function) {
                // Variables stand at the beginning, behind the label of the first block.
                Some(_) if operation == op::VARIABLE => blocks[0].words.insert(1, own),
                Some(block) => {
                    block.words.push(own);
                    block.targets.extend(targets(operation, own, &labels));
                }
                None => out.extend(own),
            },
        }
    }
    Ok(out.iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_llvm_spirv_refuses_gets_another_form() {
        let text = "  %7 = freeze i1 %6\n  %8 = freeze <4 x float> %5\n  %9 = trunc i32 %3 to i2\n  switch i2 %9, label \
                    %1 [\n    i2 0, label %2\n    i2 -1, label %3\n  ]\n  %10 = trunc i32 %3 to i8\n";
        let expected = "  %7 = or i1 %6, false\n  %thawed.8 = bitcast <4 x float> %5 to <4 x i32>\n  %8 = bitcast <4 x \
                        i32> %thawed.8 to <4 x float>\n  %9 = and i32 %3, 3\n  switch i32 %9, label %1 [\n    i32 0, \
                        label %2\n    i32 3, label %3\n  ]\n  %10 = trunc i32 %3 to i8\n";
        assert_eq!(translatable(text).unwrap(), expected);
        assert!(translatable("  %7 = freeze double %6\n").unwrap_err().contains("freeze double"));
    }

    /// A function whose last block comes before the one that leads to it, which has a variable.
    #[test]
    fn blocks_come_after_those_that_dominate_them() {
        let instruction = |o: u32, operands: &[u32]| {
            let mut own = vec![(operands.len() as u32 + 1) << 16 | o];
            own.extend(operands);
            own
        };
        let header = vec![0x0723_0203, 0x0001_0200, 0, 20, 0];
        let start = [header, instruction(op::FUNCTION, &[1, 2, 0, 3])].concat();
        let entry = [instruction(op::LABEL, &[10]), instruction(op::BRANCH, &[12])].concat();
        let end = [instruction(op::LABEL, &[11]), instruction(253, &[])].concat();
        let variable = instruction(op::VARIABLE, &[5, 6, 7]);
        let middle = [
            instruction(op::LABEL, &[12]),
            variable.clone(),
            instruction(op::LOOP_MERGE, &[11, 12, 0]),
            instruction(op::BRANCH_CONDITIONAL, &[4, 12, 11]),
        ]
        .concat();
        let plain =
            [instruction(op::LABEL, &[12]), instruction(op::BRANCH_CONDITIONAL, &[4, 12, 11])].concat();
        let stop = instruction(op::FUNCTION_END, &[]);
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let given = [start.clone(), entry.clone(), end.clone(), middle, stop.clone()].concat();
        let (label, branch) = entry.split_at(2);
        let expected = [&start, label, &variable, branch, &plain, &end, &stop].concat();
        assert_eq!(ordered(&bytes(&given)).unwrap(), bytes(&expected));
        assert!(ordered(b"nothing").is_err());
    }
}
