//! Which of several files is used for one plugin.
//!
//! A file that the user named wins over all others, then one that is pinned by its path, then the highest version
//! among those that a pin, or what the lock file chooses, allows. The order of files and directories decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Candidate, Pin, Source, State};
use crate::identity::sha256;
use crate::{Error, FileFault};

/// Refuses what pins do not allow, and leaves at most one usable file for every id.
pub(super) fn choose(list: &mut [Candidate], pins: &BTreeMap<String, Pin>, disabled: &BTreeSet<String>) {
    for candidate in list.iter_mut() {
        let Some(id) = candidate.id().map(str::to_owned) else { continue };
        if disabled.contains(&id) {
            // Also if it could not be used anyway: that is nobody's concern now.
            candidate.state = State::Disabled;
            continue;
        }
        if !is_usable(candidate) {
            continue;
        }
        if let Source::Pinned(wanted) = &candidate.source
            && *wanted != id
        {
            let wanted = wanted.clone();
            candidate.refuse(FileFault::OtherPlugin { found: id, wanted });
            continue;
        }
        if let Some(pin) = pins.get(&id) {
            hold_against(candidate, &id, pin);
        }
    }
    let ids: BTreeSet<String> =
        list.iter().filter(|it| is_usable(it)).filter_map(|it| it.id().map(str::to_owned)).collect();
    for id in ids {
        let mut rivals: Vec<&mut Candidate> =
            list.iter_mut().filter(|it| is_usable(it) && it.id() == Some(&id)).collect();
        pick(&id, &mut rivals);
    }
}

fn is_usable(candidate: &Candidate) -> bool {
    matches!(candidate.state, State::Usable(_))
}

/// Refuses a file that is not what a pin asks for.
fn hold_against(candidate: &mut Candidate, id: &str, pin: &Pin) {
    if let (Some(wanted), Some(descriptor)) = (&pin.version, &candidate.descriptor)
        && !wanted.matches(&descriptor.version)
    {
        let found = format!("{} has version {}", candidate.path.display(), descriptor.version);
        let error = Error::Pin { id: id.to_owned(), wanted: format!("version {wanted}"), found };
        candidate.state = State::Refused(error);
        return;
    }
    // A pin of the content is about this very content, so it is read and not remembered.
    if let Some(wanted) = &pin.sha256 {
        match sha256(&candidate.path) {
            Ok(found) if found.eq_ignore_ascii_case(wanted) => {}
            Ok(found) => candidate.refuse(FileFault::OtherContent { found, wanted: wanted.clone() }),
            Err(error) => candidate.refuse(FileFault::io("read it", error)),
        }
    }
}

/// Leaves one of several usable files for one id, or none if nothing tells which.
fn pick(id: &str, rivals: &mut [&mut Candidate]) {
    let rank = |candidate: &Candidate| match candidate.source {
        Source::Named => 2,
        Source::Pinned(_) => 1,
        Source::Found => 0,
    };
    let version = |candidate: &Candidate| candidate.descriptor.as_ref().map(|it| it.version.clone());
    let Some(highest_rank) = rivals.iter().map(|it| rank(it)).max() else { return };
    let of_rank: Vec<usize> =
        (0..rivals.len()).filter(|index| rank(rivals[*index]) == highest_rank).collect();
    // Between two files that the user named there is no order; of those that were found, the newest is wanted.
    let best: Vec<usize> = if highest_rank == 0 {
        let highest = of_rank.iter().map(|index| version(rivals[*index])).max().flatten();
        of_rank.into_iter().filter(|index| version(rivals[*index]) == highest).collect()
    } else {
        of_rank
    };
    let paths: Vec<PathBuf> = best.iter().map(|index| rivals[*index].path.clone()).collect();
    let [first, rest @ ..] = paths.as_slice() else { return };
    let reason = match highest_rank {
        2 => "was named",
        1 => "is pinned",
        _ if rivals.iter().any(|rival| rival.chosen) => "is the newest of those that were chosen",
        _ => "is newer",
    };
    if rest.is_empty() {
        for (index, rival) in rivals.iter_mut().enumerate() {
            if index != best[0] {
                rival.state = State::Passed { by: first.clone(), reason };
            }
        }
        return;
    }
    let error = |other: &PathBuf| match version(rivals[best[0]]) {
        Some(version) if highest_rank == 0 => Error::SameVersion {
            id: id.to_owned(),
            version: version.to_string(),
            first: first.clone(),
            second: other.clone(),
        },
        _ => Error::SameId { id: id.to_owned(), first: first.clone(), second: other.clone() },
    };
    let error = error(&rest[0]);
    for (index, rival) in rivals.iter_mut().enumerate() {
        rival.state = if best.contains(&index) {
            State::Refused(error.clone())
        } else {
            State::Passed { by: first.clone(), reason }
        };
    }
}
