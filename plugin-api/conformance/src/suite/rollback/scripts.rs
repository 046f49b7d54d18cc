//! Which rows run, and how many of them are taken back.

/// Rows of one sequence in one run.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Slot of the sequence.
    pub slot: u32,
    pub rows: u32,
    /// The last of them, which are taken back before the sequence's next run.
    pub dropped: u32,
    /// The sequence begins.
    pub begins: bool,
}

/// Runs one after the other.
pub struct Script {
    pub name: &'static str,
    /// The most rows that can be taken back: records of a bank, and planes less one.
    pub depth: u32,
    pub steps: Vec<Vec<Round>>,
}

const fn round(slot: u32, rows: u32, dropped: u32) -> Round {
    Round { slot, rows, dropped, begins: false }
}

const fn begin(slot: u32, rows: u32, dropped: u32) -> Round {
    Round { slot, rows, dropped, begins: true }
}

/// One sequence: rows and dropped rows of each run.
fn alone(slot: u32, rounds: &[(u32, u32)]) -> Vec<Vec<Round>> {
    let step = |(index, &(rows, dropped)): (usize, &(u32, u32))| {
        vec![Round { begins: index == 0, ..round(slot, rows, dropped) }]
    };
    rounds.iter().enumerate().map(step).collect()
}

impl Script {
    /// The script with at most `rows` rows in a run.
    pub fn within(mut self, rows: u32) -> Self {
        for step in &mut self.steps {
            let share = rows / step.len() as u32;
            for round in step.iter_mut() {
                round.rows = round.rows.min(share);
                round.dropped = round.dropped.min(round.rows).min(self.depth);
            }
        }
        self
    }

    /// Rows of the largest run.
    pub fn max_rows(&self) -> u32 {
        self.steps.iter().map(|step| step.iter().map(|round| round.rows).sum()).max().unwrap_or(1)
    }
}

/// From 1 to 17 rows, of which every number is kept.
pub fn every_number() -> Script {
    let rounds: Vec<(u32, u32)> =
        (1..=17).flat_map(|rows| (0..=rows).map(move |dropped| (rows, dropped))).collect();
    // In an order that mixes lengths: 7 has no factor in common with their number, 170.
    let mixed: Vec<(u32, u32)> = (0..rounds.len()).map(|index| rounds[index * 7 % rounds.len()]).collect();
    Script { name: "every number of kept rows", depth: 17, steps: alone(2, &mixed) }
}

/// Short scripts.
pub fn scripts() -> Vec<Script> {
    let long = [(13, 0), (5, 4), (5, 2), (1, 0), (17, 3), (9, 4), (4, 4), (4, 0), (6, 1)];
    let singles =
        [(4, 2), (1, 0), (1, 0), (4, 4), (1, 0), (3, 0), (1, 1), (1, 0), (2, 1), (1, 1), (3, 3), (2, 0)];
    let scripts = vec![
        Script { name: "more rows than can be taken back", depth: 4, steps: alone(1, &long) },
        Script { name: "at most one row back", depth: 1, steps: alone(3, &long) },
        Script { name: "single rows between others", depth: 4, steps: alone(2, &singles) },
        Script {
            name: "sequences that keep different numbers",
            depth: 4,
            steps: vec![
                vec![begin(3, 5, 0), begin(1, 3, 1)],
                vec![round(1, 4, 3), begin(2, 2, 2), round(3, 4, 1)],
                vec![begin(2, 5, 2), round(1, 4, 0), round(3, 1, 1)],
                // What is to be replayed stays so while others run, and a sequence without rows is replayed too.
                vec![round(3, 2, 1)],
                vec![round(1, 0, 0), round(2, 3, 1)],
                vec![round(1, 3, 2), round(3, 3, 3), round(2, 1, 0)],
                vec![round(3, 2, 0), round(1, 2, 1)],
            ],
        },
        Script {
            name: "a sequence begins where another was rolled back",
            depth: 4,
            steps: vec![
                vec![begin(2, 3, 2), begin(3, 4, 1)],
                vec![begin(2, 2, 1), round(3, 3, 3)],
                vec![round(2, 2, 2), begin(3, 7, 2)],
                vec![round(2, 1, 0), round(3, 1, 0)],
                vec![begin(2, 3, 3)],
                vec![begin(2, 3, 1), round(3, 2, 2)],
                vec![round(3, 1, 0), round(2, 1, 0)],
            ],
        },
    ];
    // What is dropped must be among what can be taken back.
    scripts.into_iter().map(|script| script.within(u32::MAX)).collect()
}
