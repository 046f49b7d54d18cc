//! Kernels into phases.

use super::{Id, Kernel};
use std::collections::HashMap;

/// Puts each kernel into the earliest phase in which everything that it needs is there, then joins row kernels that
/// follow each other on the same rows: a thread takes its rows through the whole chain without meeting the others.
pub(super) fn phases(kernels: Vec<Kernel>) -> Vec<Vec<Kernel>> {
    levels(join_chains(kernels))
}

/// Joins a row kernel to an earlier chain on the same rows when nothing between them stands in the way.
///
/// Kernel B may run at the end of chain A, instead of later, if all that B reads is made before A or, by a kernel
/// that works row by row, in A itself; and if nothing between A and B touches what B writes or writes what B reads.
/// To keep phases wide, B joins only if it reads something that A makes.
fn join_chains(kernels: Vec<Kernel>) -> Vec<Kernel> {
    let mut joined: Vec<Kernel> = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        match chain_for(&joined, &kernel) {
            Some(index) => {
                if let (Kernel::Rows { chain, .. }, Kernel::Rows { chain: more, .. }) =
                    (&mut joined[index], kernel)
                {
                    chain.extend(more);
                }
            }
            None => joined.push(kernel),
        }
    }
    joined
}

fn chain_for(joined: &[Kernel], kernel: &Kernel) -> Option<usize> {
    let Kernel::Rows { live, chain } = kernel else { return None };
    if !chain.iter().all(|(k, _)| k.is_local()) {
        return None;
    }
    let (reads, writes) = (kernel.reads(), kernel.writes());
    for (index, earlier) in joined.iter().enumerate().rev() {
        let made = earlier.writes();
        let feeds = made.iter().any(|id| reads.contains(id));
        if feeds {
            let same_rows = matches!(earlier, Kernel::Rows { live: other, .. } if other == live);
            return same_rows.then_some(index);
        }
        let conflicts =
            made.iter().any(|id| writes.contains(id)) || earlier.reads().iter().any(|id| writes.contains(id));
        if conflicts {
            return None;
        }
    }
    None
}

/// The phase of each kernel: after the writers of all that it reads, and after all who touch what it writes.
fn levels(kernels: Vec<Kernel>) -> Vec<Vec<Kernel>> {
    let mut written: HashMap<Id, usize> = HashMap::new();
    let mut read: HashMap<Id, usize> = HashMap::new();
    let mut phases: Vec<Vec<Kernel>> = Vec::new();
    for kernel in kernels {
        let (reads, writes) = (kernel.reads(), kernel.writes());
        let after = |map: &HashMap<Id, usize>, ids: &[Id]| {
            ids.iter().filter_map(|id| map.get(id)).map(|phase| phase + 1).max().unwrap_or(0)
        };
        let phase = after(&written, &reads).max(after(&written, &writes)).max(after(&read, &writes));
        for id in reads {
            let last = read.entry(id).or_insert(phase);
            *last = (*last).max(phase);
        }
        for id in writes {
            written.insert(id, phase);
        }
        if phases.len() <= phase {
            phases.resize_with(phase + 1, Vec::new);
        }
        phases[phase].push(kernel);
    }
    phases
}
