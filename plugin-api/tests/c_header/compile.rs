//! Runs small C and C++ programs over the header with the system's compilers.

use std::path::Path;
use std::process::Command;

/// A language that the header is for.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// Variable of the environment that names the compiler, and its usual name.
    compiler: (&'static str, &'static str),
    standard: &'static str,
    extension: &'static str,
}

/// Both languages.
pub const LANGUAGES: [Language; 2] = [
    Language { compiler: ("CC", "cc"), standard: "-std=c11", extension: "c" },
    Language { compiler: ("CXX", "c++"), standard: "-std=c++17", extension: "cpp" },
];

impl Language {
    /// Compiles a program without any warning, runs it and returns what it prints.
    pub fn run(self, name: &str, source: &str) -> String {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let stem = folder.join(format!("{name}_{}_{}", self.extension, std::process::id()));
        let (file, program) = (stem.with_extension(self.extension), stem.with_extension("out"));
        std::fs::write(&file, source).expect("the target folder can be written");
        let compiler = std::env::var(self.compiler.0).unwrap_or_else(|_| self.compiler.1.into());
        let compiled = Command::new(&compiler)
            .args([self.standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .arg("-o")
            .args([&program, &file])
            .output()
            .unwrap_or_else(|error| panic!("the compiler `{compiler}` cannot be run: {error}"));
        assert!(compiled.status.success(), "{compiler}: {}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&program).output().expect("the program runs");
        assert!(output.status.success(), "{} ends with {}", program.display(), output.status);
        for path in [file, program] {
            let _ = std::fs::remove_file(path);
        }
        String::from_utf8(output.stdout).expect("it prints text")
    }
}
