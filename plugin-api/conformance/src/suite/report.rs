//! What came out of a suite.

use std::fmt;

/// What came out of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// As it must be.
    Passed {
        /// The largest error as a part of what the tolerance allows, 0 for cases without one.
        worst: f64,
    },
    /// Wrong.
    Failed {
        /// What, and where.
        what: String,
    },
    /// The backend says that it cannot do this.
    Refused {
        /// Its reason.
        reason: String,
    },
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The operation, or the part of the contract.
    pub group: String,
    /// Name of the case, unique in its group.
    pub case: String,
    /// What came out.
    pub outcome: Outcome,
}

/// Counts of one group.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Tally {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that the backend refused.
    pub refused: usize,
    /// The largest error of a case that passed, as a part of what its tolerance allows.
    pub worst: f64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed { worst } => {
                self.passed += 1;
                self.worst = self.worst.max(*worst);
            }
            Outcome::Failed { .. } => self.failed += 1,
            Outcome::Refused { .. } => self.refused += 1,
        }
    }
}

/// All cases of a suite. Its `Display` is a table, followed by failures and refusals.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Report {
    entries: Vec<Entry>,
}

impl Report {
    pub(super) fn add(&mut self, group: &str, case: &str, outcome: Outcome) {
        self.entries.push(Entry { group: group.into(), case: case.into(), outcome });
    }

    /// All cases in the order in which they ran.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn tally_of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Tally {
        let mut tally = Tally::default();
        entries.for_each(|entry| tally.add(&entry.outcome));
        tally
    }

    /// Counts of all cases.
    pub fn total(&self) -> Tally {
        Self::tally_of(self.entries.iter())
    }

    /// Counts of one group; zeros for one that did not run.
    pub fn tally(&self, group: &str) -> Tally {
        Self::tally_of(self.entries.iter().filter(|entry| entry.group == group))
    }

    /// The groups in the order in which they ran.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if !groups.contains(&entry.group.as_str()) {
                groups.push(&entry.group);
            }
        }
        groups
    }

    /// Number of cases that passed.
    pub fn passed(&self) -> usize {
        self.total().passed
    }

    /// Number of cases that failed.
    pub fn failed(&self) -> usize {
        self.total().failed
    }

    /// Number of cases that the backend refused.
    pub fn refused(&self) -> usize {
        self.total().refused
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Failed { .. }))
    }

    /// The cases that the backend refused.
    pub fn refusals(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Refused { .. }))
    }
}

/// Refusals and failures shown of each group; a missing type is refused in many cases.
const SHOWN: usize = 6;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, tally: Tally| {
            let Tally { passed, failed, refused, worst } = tally;
            writeln!(f, "{name:<20}{passed:>8}{failed:>8}{refused:>9}{:>18.1}", worst * 100.0)
        };
        writeln!(f, "{:<20}{:>8}{:>8}{:>9}{:>18}", "", "passed", "failed", "refused", "% of tolerance")?;
        for group in self.groups() {
            line(f, group, self.tally(group))?;
        }
        line(f, "all", self.total())?;
        for group in self.groups() {
            let of_group = |entry: &&Entry| entry.group == group;
            let lists = [
                ("failed", self.failures().filter(of_group).collect::<Vec<_>>()),
                ("refused", self.refusals().filter(of_group).collect()),
            ];
            for (what, entries) in lists {
                for Entry { group, case, outcome } in entries.iter().take(SHOWN) {
                    let (Outcome::Failed { what: text } | Outcome::Refused { reason: text }) = outcome else {
                        continue;
                    };
                    writeln!(f, "{what}: {group}, {case}: {text}")?;
                }
                if entries.len() > SHOWN {
                    writeln!(f, "{what}: {group}: {} more", entries.len() - SHOWN)?;
                }
            }
        }
        Ok(())
    }
}
