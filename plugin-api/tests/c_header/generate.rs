//! Makes the C header with cbindgen, a tool that may be missing.

use std::path::Path;
use std::process::Command;

/// Version of cbindgen that the kept header was made with; others lay text out differently.
const CBINDGEN: &str = "cbindgen 0.29.";

/// Longest line of a comment.
const WIDTH: usize = 120;

/// The header as the sources give it now.
///
/// # Errors
/// Why it cannot be made here: cbindgen is missing or of another version.
pub fn header() -> Result<String, String> {
    let tool = std::env::var("CBINDGEN").unwrap_or_else(|_| "cbindgen".into());
    let version = Command::new(&tool).arg("--version").output();
    let version = version.map_err(|error| format!("`{tool}` cannot be run: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if !version.starts_with(CBINDGEN) {
        return Err(format!("`{tool}` is {version:?}, the header is made with {CBINDGEN}x"));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(&tool)
        .args(["--quiet", "--config"])
        .arg(folder.join("cbindgen.toml"))
        .arg(folder)
        .output()
        .expect("it ran a moment ago");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "cbindgen failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(polish(&text))
}

/// Puts what cbindgen prints into its final form.
fn polish(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        // cbindgen ends the include guard before its trailer.
        let is_guard_end = line.starts_with("#endif") && line.contains("PACELINE_PLUGIN_H");
        let is_second_blank = line.is_empty() && lines.last().is_none_or(String::is_empty);
        if is_guard_end || is_second_blank {
            continue;
        }
        // `class` is a keyword of C++.
        let line = line.replace("uint32_t class,", "uint32_t arena_class,");
        lines.push(if line.trim_start().starts_with("//") { comment(&line, text) } else { line });
    }
    lines.push("\n#endif // PACELINE_PLUGIN_H".into());
    lines.join("\n") + "\n"
}

/// A comment with the names that things have in the header.
fn comment(line: &str, header: &str) -> String {
    let line = line.replace("`u32::MAX`", "`UINT32_MAX`").replace("that this crate", "that this header");
    let mut parts = line.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let (Some(name), Some(rest)) = (parts.next(), parts.next()) {
        let is_reference = out.ends_with('[') && rest.starts_with(']');
        let rest = if is_reference { &rest[1..] } else { rest };
        if is_reference {
            out.pop();
        }
        out.push_str(&format!("`{}`{rest}", name_in_c(name, is_reference, header)));
    }
    wrap(out)
}

/// The longer names can make a line too long.
fn wrap(line: String) -> String {
    let indent = line.len() - line.trim_start().len();
    match line.get(..WIDTH).and_then(|start| start.rfind(' ')) {
        Some(end) if line.len() > WIDTH => format!("{}\n{:indent$}//{}", &line[..end], "", &line[end..]),
        _ => line,
    }
}

/// What a name in the sources is called in the header.
fn name_in_c(name: &str, is_reference: bool, header: &str) -> String {
    let is_upper = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let constant = |group: &str| format!("PACELINE_{group}{name}");
    for group in ["", "CODE_"] {
        if is_upper && header.contains(&format!("#define {} ", constant(group))) {
            return constant(group);
        }
    }
    match name.chars().next() {
        Some(first) if is_reference && first.is_ascii_uppercase() => format!("Paceline{name}"),
        // A module of constants.
        Some(_) if is_reference => format!("PACELINE_{}_*", name.to_ascii_uppercase()),
        _ => name.to_owned(),
    }
}
