//! Measures what plugins cost at the start of a program: `start_time DIRECTORY CACHE`, with the directory full of
//! copies of plugins. Takes the best of many runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use paceline_registry::{DiscoverConfig, Phase, Prober, Registry, probe_main};

const RUNS: usize = 20;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [probe, phase, file] if probe == "probe" => match phase.to_str().and_then(Phase::from_word) {
            Some(phase) => probe_main(phase, file.as_ref()),
            None => ExitCode::FAILURE,
        },
        [directory, cache] => {
            measure(directory.into(), cache.into());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("give a directory of plugins, and one for the cache");
            ExitCode::FAILURE
        }
    }
}

fn measure(directory: PathBuf, cache: PathBuf) {
    let program = std::env::current_exe().unwrap_or_default();
    let config = |directories, cache| DiscoverConfig {
        directories,
        cache,
        prober: Some(Prober::new(&program, ["probe".into()])),
        ..DiscoverConfig::default()
    };
    let empty = config(Vec::new(), Some(cache.clone()));
    let uncached = config(vec![directory.clone()], None);
    let cached = config(vec![directory], Some(cache));

    let files = Registry::discover(&cached).list().len();
    // Until then the times of new files say too little, and they are hashed again.
    std::thread::sleep(Duration::from_millis(200));
    Registry::discover(&cached);
    println!("{files} plugins, best of {RUNS}");
    println!("nothing to find     {:8.3} ms", best(&empty));
    println!("all known           {:8.3} ms", best(&cached));
    let all = best(&uncached);
    println!("all new             {all:8.3} ms, {:.3} ms each", all / files.max(1) as f64);
}

/// The shortest time of a discovery, in milliseconds.
fn best(config: &DiscoverConfig) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        std::hint::black_box(Registry::discover(config));
        start.elapsed().as_secs_f64() * 1e3
    });
    times.fold(f64::INFINITY, f64::min)
}
