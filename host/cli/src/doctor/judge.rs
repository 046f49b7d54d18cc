//! From facts to findings. Looks at nothing but the facts.

use super::variables::{fault_of, meaning_of};
use super::{Driver, Facts, Folder, FolderState, PluginFact};
use crate::text;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be, or neither good nor bad.
    Fine,
    /// Something to put right.
    Problem,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it belongs to.
    pub section: &'static str,
    /// What it is about.
    pub name: String,
    /// How it is.
    pub value: String,
    /// Whether that is good.
    pub level: Level,
    /// For a problem: what is wrong.
    pub fault: Option<String>,
    /// For a problem: what to do.
    pub remedy: Option<String>,
}

/// All findings, in the order in which they are shown.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![
        fine("program", "version", &facts.version),
        fine("program", "plugin ABI", &facts.abi),
        fine("machine", "system", &facts.system),
    ];
    machine(facts, &mut findings);
    findings.extend(facts.variables.iter().map(|(name, value)| variable(name, value)));
    findings.extend(facts.drivers.iter().map(driver));
    findings.extend(facts.folders.iter().map(|it| folder("plugin folders", it)));
    if let Some([fault, remedy]) = &facts.lock_fault {
        findings.push(problem("plugin folders", "plugins.lock", "not usable", fault, remedy));
    }
    match &facts.cache {
        Some(cache) => findings.push(folder("cache", cache)),
        None => findings.push(problem(
            "cache",
            "folder",
            "none",
            "every plugin is tried anew by every command",
            "set `HOME` or `XDG_CACHE_HOME` to an absolute path",
        )),
    }
    findings.extend(facts.plugins.iter().map(plugin));
    findings
}

fn fine(section: &'static str, name: &str, value: &str) -> Finding {
    Finding {
        section,
        name: name.to_owned(),
        value: value.to_owned(),
        level: Level::Fine,
        fault: None,
        remedy: None,
    }
}

fn problem(section: &'static str, name: &str, value: &str, fault: &str, remedy: &str) -> Finding {
    let (fault, remedy) = (Some(fault.to_owned()), Some(remedy.to_owned()));
    Finding { level: Level::Problem, fault, remedy, ..fine(section, name, value) }
}

fn machine(facts: &Facts, findings: &mut Vec<Finding>) {
    const SECTION: &str = "machine";
    let mut add = |name: &str, value: &str| findings.push(fine(SECTION, name, value));
    if let Some(processor) = &facts.processor {
        add("processor", processor);
    }
    let features =
        if facts.features.is_empty() { "none that is known".to_owned() } else { facts.features.join(" ") };
    add("features", &features);
    add("CPU backend", facts.cpu_backend.as_deref().unwrap_or("this program was built without it"));
    match facts.threads {
        [Some(usable), Some(all)] if usable < all => {
            add("threads", &format!("{usable} of {all}: the process is bound to some, or has a quota"));
        }
        [Some(usable), _] => add("threads", &usable.to_string()),
        [None, _] => add("threads", "unknown"),
    }
    let memory = &facts.memory;
    let bytes = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), text::bytes);
    add("memory", &format!("{}, of which {} are available", bytes(memory.total), bytes(memory.available)));
    if let Some(limit) = memory.limit {
        add("memory limit", &format!("{} for this control group", text::bytes(limit)));
    }
    match memory.huge_pages.as_deref() {
        Some("never") => findings.push(problem(
            SECTION,
            "huge pages",
            "never",
            "weights are read through small pages, which costs speed",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )),
        Some(given) => findings.push(fine(SECTION, "huge pages", given)),
        None => {}
    }
}

fn variable(name: &str, value: &str) -> Finding {
    const SECTION: &str = "variables";
    let meaning = meaning_of(name).map_or_else(String::new, |it| format!(" ({}; {})", it.does, it.here));
    let shown = format!("{}{meaning}", if value.is_empty() { "empty" } else { value });
    match fault_of(name, value) {
        Some([fault, remedy]) => problem(SECTION, name, &shown, &fault, &remedy),
        None => fine(SECTION, name, &shown),
    }
}

fn driver(driver: &Driver) -> Finding {
    const SECTION: &str = "drivers";
    let Driver { known, library, device, found } = driver;
    let others: Vec<&str> = known.libraries.iter().map(String::as_str).filter(|it| it != library).collect();
    match (found, device) {
        (Ok(path), _) => fine(SECTION, library, path),
        (Err(_), None) if others.is_empty() => fine(SECTION, library, "not there"),
        (Err(_), None) => fine(SECTION, library, &format!("not there, nor {}", others.join(" or "))),
        (Err(error), Some(device)) => problem(
            SECTION,
            library,
            "not usable",
            &format!("the system shows {device}, but {library} {error}"),
            &format!("install {}, or add its folder to LD_LIBRARY_PATH", known.driver),
        ),
    }
}

fn folder(section: &'static str, folder: &Folder) -> Finding {
    match &folder.state {
        FolderState::Missing => fine(section, &folder.path, "not there"),
        FolderState::Fine(None) => fine(section, &folder.path, "usable"),
        FolderState::Fine(Some(mode)) => fine(section, &folder.path, &format!("usable, mode {mode:04o}")),
        FolderState::Faulty(fault, remedy) => problem(section, &folder.path, "not usable", fault, remedy),
    }
}

fn plugin(plugin: &PluginFact) -> Finding {
    const SECTION: &str = "plugins";
    let PluginFact { name, origin, state, hash, fault } = plugin;
    let hash = hash.map_or_else(String::new, |hash| format!("; {hash}"));
    match fault {
        None => fine(SECTION, name, &format!("{state}; {origin}{hash}")),
        Some(remedy) => {
            let remedy =
                remedy.as_deref().unwrap_or("remove the file, or see `paceline plugins verify FILE`");
            problem(SECTION, name, origin, state, remedy)
        }
    }
}

#[cfg(test)]
mod tests;
