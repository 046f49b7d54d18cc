//! The smallest program that uses plugins which it has not been told of. The tests start it as the process in which
//! plugins are tried, and as a host that a plugin may take down.
//!
//! ```text
//! small_host list DIRECTORY CACHE           says what came of every file
//! small_host load DIRECTORY CACHE ID        loads one plugin
//! small_host devices DIRECTORY CACHE ID     and asks it for its devices
//! small_host probe COUNTER PHASE FILE       what it starts itself; adds a byte to the file COUNTER
//! ```

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use paceline_registry::{Candidates, DiscoverConfig, Error, Phase, Prober, Registry, probe_main};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        ["probe", counter, phase, _] => {
            if let Ok(mut counter) = std::fs::OpenOptions::new().append(true).open(counter) {
                let _ = counter.write_all(b"1");
            }
            match Phase::from_word(phase) {
                Some(phase) => probe_main(phase, arguments[3].as_ref()),
                None => usage(),
            }
        }
        ["list", directory, cache] => {
            for candidate in discover(directory, cache).list() {
                println!("{}: {}", candidate.path.display(), candidate.state);
            }
            ExitCode::SUCCESS
        }
        ["load", directory, cache, id] => shown(load(directory, cache, id)),
        ["devices", directory, cache, id] => shown(devices(directory, cache, id)),
        _ => usage(),
    }
}

fn discover(directory: &str, cache: &str) -> Candidates {
    let program = std::env::current_exe().unwrap_or_default();
    Registry::discover(&DiscoverConfig {
        directories: vec![PathBuf::from(directory)],
        cache: Some(PathBuf::from(cache)),
        prober: Some(Prober::new(program, ["probe".into(), "/dev/null".into()])),
        ..DiscoverConfig::default()
    })
}

fn load(directory: &str, cache: &str, id: &str) -> Result<String, Error> {
    let candidates = discover(directory, cache);
    let mut registry = Registry::new()?;
    let plugin = registry.load(&candidates, id)?;
    Ok(format!("{} {}", plugin.id(), plugin.client.version()))
}

fn devices(directory: &str, cache: &str, id: &str) -> Result<String, Error> {
    let mut candidates = discover(directory, cache);
    let backend = Registry::new()?.load_backend(&mut candidates, id)?;
    Ok(backend.plugin().to_owned())
}

fn shown(result: Result<String, Error>) -> ExitCode {
    match result {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("see the comment at the top of this program");
    ExitCode::from(2)
}
