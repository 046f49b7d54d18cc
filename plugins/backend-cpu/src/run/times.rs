//! What each kernel takes, for whoever listens to this module's target at the level of traces when a program is loaded.
//! Nothing is measured otherwise.

use crate::program::{ExpertMatrix, ExpertStage, ExpertsWork, Kernel, Program};
use paceline_plugin_api::graph::Graph;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The target of the events.
const TARGET: &str = "paceline_backend_cpu::kernel_times";

/// Times of the kernels of a program, summed over runs and threads.
pub(crate) struct KernelTimes {
    runs: AtomicU64,
    /// Where the kernels of each phase begin in `kernels`.
    starts: Vec<usize>,
    kernels: Vec<Time>,
}

#[derive(Default)]
struct Time {
    chunks: AtomicU64,
    nanoseconds: AtomicU64,
}

impl KernelTimes {
    /// Counters for a program, if anybody listens.
    pub fn if_wanted(program: &Program) -> Option<Self> {
        tracing::enabled!(target: TARGET, tracing::Level::TRACE).then(|| {
            let mut kernels = Vec::new();
            let starts = program.phases.iter().map(|phase| {
                let start = kernels.len();
                kernels.extend(phase.iter().map(|_| Time::default()));
                start
            });
            Self { runs: AtomicU64::new(0), starts: starts.collect(), kernels }
        })
    }

    /// A run begins.
    pub fn begin(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a chunk of kernel `index` of a phase.
    pub fn measure(&self, phase: usize, index: usize, chunk: impl FnOnce()) {
        let start = Instant::now();
        chunk();
        let time = &self.kernels[self.starts[phase] + index];
        time.chunks.fetch_add(1, Ordering::Relaxed);
        time.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// One event for each kernel that did something: `KEY=VALUE` parts with `; ` between. `bytes` are those of the
    /// weight, which each run reads once; `nanoseconds` are those of all runs and threads.
    pub fn report(&self, program: &Program, graph: &Graph) {
        let runs = self.runs.load(Ordering::Relaxed);
        let kernels = program.phases.iter().flatten();
        for (kernel, time) in kernels.zip(&self.kernels) {
            let [chunks, nanoseconds] =
                [&time.chunks, &time.nanoseconds].map(|count| count.load(Ordering::Relaxed));
            if chunks == 0 {
                continue;
            }
            let of = kernel.writes().into_iter().find_map(|id| name(graph, id)).unwrap_or_default();
            let (of, layout, bytes) = match kernel {
                Kernel::Linear(work) => (
                    name(graph, work.weight).unwrap_or(of),
                    format!("{} in panels, {} x {}", work.kind, work.n, work.k),
                    crate::weights::packed_bytes(work.kind, work.n, work.k).unwrap_or(0),
                ),
                Kernel::Experts(stage, work) => match stage {
                    ExpertStage::Inner => experts(graph, work, &work.gate),
                    ExpertStage::Outer => experts(graph, work, &work.down),
                    _ => (of, String::new(), 0),
                },
                _ => (of, String::new(), 0),
            };
            tracing::trace!(
                target: TARGET,
                "kernel={}; of={of}; layout={layout}; bytes={bytes}; runs={runs}; chunks={chunks}; \
                 nanoseconds={nanoseconds}",
                kernel.name()
            );
        }
    }
}

/// Name, layout and bytes of the matrices of all experts; a run of few rows reads few of them.
fn experts(graph: &Graph, work: &ExpertsWork, matrix: &ExpertMatrix) -> (String, String, usize) {
    let (kind, n, k, count) = (matrix.kind, matrix.n, matrix.k, work.grouping.experts);
    let layout = format!("{kind} in panels, {count} x {n} x {k}");
    let bytes = crate::weights::packed_bytes(kind, n * count, k).unwrap_or(0);
    (name(graph, matrix.weight).unwrap_or_default(), layout, bytes)
}

/// The name of a value of the graph, unless it has none or lowering added it.
fn name(graph: &Graph, id: usize) -> Option<String> {
    graph.values().get(id).map(|value| value.name.clone()).filter(|name| !name.is_empty())
}
