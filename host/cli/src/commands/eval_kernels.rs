//! `eval kernels`: which kernels run a model, and what each takes of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use paceline_engine::{Engine, Rows, Want};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::bench_machine::Limits;
use crate::app::App;
use crate::args::KernelsArgs;
use crate::engine_setup::Setup;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::strategies::Strategies;
use crate::table::Columns;
use crate::text;

/// Target of the events with which a backend tells what its kernels took.
const TARGET: &str = "kernel_times";

/// What a kernel took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kernel {
    kernel: String,
    of: String,
    layout: String,
    /// Bytes of its weight.
    bytes: u64,
    runs: u64,
    /// Of all runs and threads.
    nanoseconds: u64,
    /// Kernels that this is the sum of.
    count: u64,
}

/// Runs the command.
pub fn run(args: &KernelsArgs, app: &mut App) -> Result<Exit, Failure> {
    let mut setup = Setup::new(&args.model, &args.engine, args.ctx, app)?;
    let mut context = setup.context(Strategies::default(), setup.given.clone())?;
    let settings = context.of_backend().to_vec();
    let threads = setup.device(&settings).1.max(1);
    let listener = Listener::new();
    let lines = Arc::clone(&listener.lines);
    // The backend asks whether somebody listens when a program is loaded, and tells when it is unloaded.
    let time = tracing::subscriber::with_default(listener, || -> Result<Duration, Failure> {
        let mut engine = setup.engine(&mut context, None, app)?;
        measure(&mut engine, args).map_err(|error| setup.failure(error))
    })?;
    let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    let kernels: Vec<Kernel> = lines.iter().filter_map(|line| Kernel::parse(line)).collect();
    if kernels.is_empty() {
        return Err(Failure::new(Exit::Failed, "the backend does not tell what its kernels take")
            .hint("`--backend cpu` does"));
    }
    let kernels = if args.all { kernels } else { together(kernels) };
    let limits = Limits::measure(threads as usize)?;
    if args.output.json {
        let rows: Vec<Value> = kernels.iter().map(|kernel| kernel.to_json(threads, &limits)).collect();
        app.printer.json(&json!({
            "threads": threads,
            "rows": args.rows,
            "runs": args.runs,
            "seconds_per_run": time.as_secs_f64() / f64::from(args.runs),
            "read_bytes_per_second": limits.read,
            "kernels": rows,
        }))?;
        return Ok(Exit::Ok);
    }
    print(&kernels, threads, &limits, app)?;
    app.printer.flush()?;
    app.printer.status(format_args!(
        "{} of {} each, {} a run with the clock in it; limit {:.1} GB/s with {}",
        text::counted(args.runs.into(), "run"),
        text::counted(args.rows.into(), "row"),
        text::duration(time / args.runs),
        limits.read / 1e9,
        text::counted(threads.into(), "thread"),
    ));
    Ok(Exit::Ok)
}

/// Runs of `rows` rows each, one after the other in one sequence, which is emptied when the context is full.
fn measure(engine: &mut Engine, args: &KernelsArgs) -> paceline_engine::Result<Duration> {
    let vocabulary = engine.model().shape().vocabulary;
    let tokens: Vec<u32> = (0..args.rows).map(|i| i.wrapping_mul(2_654_435_761) % vocabulary).collect();
    let sequence = engine.new_sequence()?;
    let start = Instant::now();
    for _ in 0..args.runs {
        if engine.sequence_length(sequence) + tokens.len() > engine.context_length() {
            engine.clear_sequence(sequence);
        }
        engine.run(&[Rows { sequence, tokens: &tokens, outputs: 1 }], Want::Ids)?;
    }
    Ok(start.elapsed())
}

impl Kernel {
    /// Reads `KEY=VALUE` parts with `; ` between.
    fn parse(line: &str) -> Option<Self> {
        let mut kernel = Self { count: 1, ..Self::default() };
        for part in line.split("; ") {
            let (key, value) = part.split_once('=')?;
            match key {
                "kernel" => value.clone_into(&mut kernel.kernel),
                "of" => value.clone_into(&mut kernel.of),
                "layout" => value.clone_into(&mut kernel.layout),
                "bytes" => kernel.bytes = value.parse().ok()?,
                "runs" => kernel.runs = value.parse().ok()?,
                "nanoseconds" => kernel.nanoseconds = value.parse().ok()?,
                _ => {}
            }
        }
        (kernel.runs > 0).then_some(kernel)
    }

    /// Seconds of a run, with all threads at work.
    fn seconds(&self, threads: u32) -> f64 {
        self.nanoseconds as f64 / 1e9 / self.runs as f64 / f64::from(threads)
    }

    /// Bytes of weights per second.
    fn rate(&self, threads: u32) -> f64 {
        self.bytes as f64 / self.seconds(threads).max(1e-12)
    }

    fn to_json(&self, threads: u32, limits: &Limits) -> Value {
        let has_bytes = self.bytes > 0;
        json!({
            "kernel": self.kernel,
            "of": self.of,
            "layout": self.layout,
            "kernels": self.count,
            "bytes": self.bytes,
            "seconds": self.seconds(threads),
            "bytes_per_second": has_bytes.then(|| self.rate(threads)),
            "share_of_limit": has_bytes.then(|| self.rate(threads) / limits.read),
        })
    }
}

/// Kernels that do the same with weights of the same layout, as one each; what takes longest comes first.
fn together(kernels: Vec<Kernel>) -> Vec<Kernel> {
    let mut sums: BTreeMap<(String, String), Kernel> = BTreeMap::new();
    for kernel in kernels {
        let sum = sums.entry((kernel.kernel.clone(), kernel.layout.clone())).or_insert_with(|| Kernel {
            bytes: 0,
            nanoseconds: 0,
            count: 0,
            ..kernel.clone()
        });
        // Programs of one model run at different times; their kernels are of the same runs only within a program.
        sum.runs = sum.runs.max(kernel.runs);
        sum.bytes += kernel.bytes;
        sum.nanoseconds += kernel.nanoseconds;
        sum.count += 1;
    }
    let mut sums: Vec<Kernel> = sums.into_values().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.nanoseconds));
    sums
}

fn print(kernels: &[Kernel], threads: u32, limits: &Limits, app: &mut App) -> Result<(), Failure> {
    let all: f64 = kernels.iter().map(|kernel| kernel.seconds(threads)).sum();
    let header = ["kernel", "of", "layout", "bytes", "us a run", "share", "GB/s", "of limit"];
    let mut columns = Columns::new(&header, &[3, 4, 5, 6, 7]);
    for kernel in kernels {
        let of = if kernel.count > 1 {
            format!("{} of them", kernel.count)
        } else {
            text::name(&kernel.of).into()
        };
        let with_bytes = |text: String| if kernel.bytes > 0 { text } else { String::new() };
        let seconds = kernel.seconds(threads);
        columns.row([
            kernel.kernel.clone(),
            of,
            kernel.layout.clone(),
            with_bytes(text::bytes(kernel.bytes)),
            format!("{:.1}", seconds * 1e6),
            format!("{:.1} %", 100.0 * seconds / all.max(1e-12)),
            with_bytes(format!("{:.1}", kernel.rate(threads) / 1e9)),
            with_bytes(format!("{:.0} %", 100.0 * kernel.rate(threads) / limits.read)),
        ]);
    }
    columns.print(&mut app.printer, "")
}

/// Keeps what backends tell of their kernels, whether they are linked in or libraries, and leaves the rest to the log.
struct Listener {
    lines: Arc<Mutex<Vec<String>>>,
    log: Dispatch,
}

impl Listener {
    fn new() -> Self {
        Self { lines: Arc::default(), log: tracing::dispatcher::get_default(Clone::clone) }
    }
}

/// The message of an event, and the target that the log bridge puts into a field.
#[derive(Default)]
struct Message {
    text: String,
    plugin_target: String,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            "plugin_target" => self.plugin_target = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && metadata.target().ends_with(TARGET) || self.log.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.log.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.log.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.log.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        if [event.metadata().target(), &message.plugin_target].iter().any(|target| target.ends_with(TARGET)) {
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(message.text);
        } else {
            self.log.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.log.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.log.exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.log.clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        self.log.try_close(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_summed_by_kernel_and_layout() {
        let line = |of: &str, bytes: u64, nanoseconds: u64| {
            format!(
                "kernel=linear; of={of}; layout=Q8_0; bytes={bytes}; runs=2; chunks=4; nanoseconds={nanoseconds}"
            )
        };
        let kernels: Vec<_> =
            [line("a", 300, 2000), line("b", 100, 2000), "kernel=x".into(), "no".into(), line("c", 0, 1)]
                .iter()
                .filter_map(|line| Kernel::parse(line))
                .collect();
        assert_eq!(kernels.len(), 3);
        let sums = together(kernels);
        assert_eq!(sums.len(), 1);
        assert_eq!((sums[0].count, sums[0].bytes, sums[0].nanoseconds), (3, 400, 4001));
        let seconds = sums[0].seconds(2);
        assert!((seconds - 1.0e-6).abs() < 1e-9, "{seconds}");
        assert!((sums[0].rate(2) - 4e8).abs() < 1e6);
    }
}
