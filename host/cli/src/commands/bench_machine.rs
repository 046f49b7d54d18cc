//! `bench --machine`: what this machine can do at best, to hold speeds against.

use serde_json::json;

use crate::app::App;
use crate::args::BenchArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::Columns;

/// What some threads do at best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    threads: usize,
    /// Bytes read from memory per second.
    pub read: f64,
    /// Products of 8-bit integers per second.
    products: f64,
}

impl Limits {
    /// Measures, with the CPU backend's own instructions; takes about a second.
    ///
    /// # Errors
    /// If that backend is no part of this program.
    #[cfg(feature = "backend-cpu")]
    pub fn measure(threads: usize) -> Result<Self, Failure> {
        use paceline_backend_cpu::level::Level;
        use paceline_backend_cpu::machine::{integer_rate, read_rate};
        Ok(Self { threads, read: read_rate(threads), products: integer_rate(Level::detect(), threads) })
    }

    #[cfg(not(feature = "backend-cpu"))]
    pub fn measure(_: usize) -> Result<Self, Failure> {
        Err(Failure::new(
            Exit::Failed,
            "this program was built without the CPU backend, which measures the machine",
        )
        .hint("build it with the feature `backend-cpu`"))
    }
}

/// Runs the command.
pub fn run(args: &BenchArgs, app: &mut App) -> Result<Exit, Failure> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, all];
    counts.dedup();
    let limits: Vec<Limits> = {
        let _working = app.printer.working("measuring");
        counts.into_iter().map(Limits::measure).collect::<Result<_, _>>()?
    };
    if args.output.json {
        let rows: Vec<_> = limits
            .iter()
            .map(|it| {
                json!({
                    "threads": it.threads,
                    "read_bytes_per_second": it.read,
                    "int8_products_per_second": it.products,
                })
            })
            .collect();
        app.printer.json(&json!({ "limits": rows }))?;
        return Ok(Exit::Ok);
    }
    let mut columns = Columns::new(&["threads", "read", "int8 products"], &[0, 1, 2]);
    for it in &limits {
        columns.row([
            it.threads.to_string(),
            format!("{:.1} GB/s", it.read / 1e9),
            format!("{:.0} G/s", it.products / 1e9),
        ]);
    }
    columns.print(&mut app.printer, "")?;
    Ok(Exit::Ok)
}
