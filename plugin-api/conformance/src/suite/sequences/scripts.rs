//! Which rows of which sequences run together, step by step.

/// Rows of one sequence in one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Number of the sequence, which decides its content.
    pub stream: u32,
    /// Slot of its states.
    pub slot: u32,
    /// Number of rows.
    pub rows: u32,
}

/// Runs one after the other.
pub(super) struct Script {
    pub name: &'static str,
    pub steps: Vec<Vec<Piece>>,
    /// Row maximum of the graph, if more than the largest run needs.
    room: u32,
}

impl Script {
    /// Rows of the largest run, or more.
    pub fn max_rows(&self) -> u32 {
        self.steps.iter().map(|step| step.iter().map(|p| p.rows).sum()).max().unwrap_or(1).max(self.room)
    }
}

pub(super) const fn piece(stream: u32, slot: u32, rows: u32) -> Piece {
    Piece { stream, slot, rows }
}

/// One sequence in runs of these lengths.
pub(super) fn alone(stream: u32, slot: u32, lengths: &[u32]) -> Vec<Vec<Piece>> {
    lengths.iter().map(|&rows| vec![piece(stream, slot, rows)]).collect()
}

/// Scripts whose results are compared with the reference. `capacity` is the longest that a sequence can be.
pub(super) fn accuracy_scripts(capacity: Option<u32>) -> Vec<Script> {
    let script = |name, room, steps| Script { name, steps, room };
    // Long enough for three blocks of a cache, or for errors to add up.
    let long = capacity.map_or(200, |capacity| capacity.min(540));
    let mut in_chunks = vec![40; long as usize / 40];
    in_chunks.extend([1, 16, 17, 2, 1]);
    vec![
        script("a prompt and tokens", 40, alone(0, 1, &[5, 1, 1, 3, 1, 17, 33, 8, 2, 1])),
        script("tokens only, graph for one row", 1, alone(0, 3, &[1; 12])),
        script("runs as long as the graph allows", 1, alone(0, 0, &[16, 16, 16])),
        script(
            "two sequences of different lengths",
            40,
            vec![
                vec![piece(0, 1, 4), piece(1, 0, 3)],
                vec![piece(1, 0, 1), piece(0, 1, 1)],
                vec![piece(1, 0, 2)],
                vec![piece(0, 1, 7), piece(1, 0, 1)],
            ],
        ),
        script(
            "a slot is used again",
            40,
            vec![
                vec![piece(0, 2, 9), piece(1, 1, 2)],
                vec![piece(2, 2, 3), piece(1, 1, 1)],
                vec![piece(2, 2, 1), piece(1, 1, 1)],
                vec![piece(3, 1, 1), piece(2, 2, 5)],
            ],
        ),
        script(
            "three sequences, one begins while others go on",
            40,
            vec![
                vec![piece(0, 3, 17)],
                vec![piece(1, 0, 8), piece(0, 3, 1), piece(2, 1, 13)],
                vec![piece(2, 1, 1), piece(1, 0, 1), piece(0, 3, 1)],
            ],
        ),
        script("a long sequence in chunks", 40, alone(0, 2, &in_chunks)),
    ]
}
