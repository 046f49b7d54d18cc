//! Makes plugins out of `fixtures/plugin.c`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use paceline_plugin_api::descriptor::MAGIC;

/// Id of the plugin that lies beside the bad ones.
pub const GOOD: &str = "good";

/// A plugin to be compiled.
pub struct CPlugin {
    id: String,
    version: String,
    descriptor: Option<String>,
    more_descriptor: String,
    damage: fn(&mut Vec<u8>),
    macros: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl CPlugin {
    /// A plugin that is all right unless something else is asked for.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            version: "1.0.0".to_owned(),
            descriptor: None,
            more_descriptor: String::new(),
            damage: |_| {},
            macros: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Sets the version, in the descriptor and the table.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Sets the whole descriptor.
    pub fn descriptor(mut self, text: &str) -> Self {
        self.descriptor = Some(text.to_owned());
        self
    }

    /// Adds lines to the descriptor.
    pub fn with_lines(mut self, lines: &str) -> Self {
        self.more_descriptor.push_str(lines);
        self
    }

    /// Changes the bytes of the section.
    pub fn damage(mut self, damage: fn(&mut Vec<u8>)) -> Self {
        self.damage = damage;
        self
    }

    /// Defines a macro of the source.
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.macros.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument of the compiler.
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The descriptor's text.
    pub fn text(&self) -> String {
        let usual = || {
            format!(
                "id = \"{}\"\nversion = \"{}\"\nkind = \"backend\"\nabi = {{ oldest = \"1.0\", built = \"1.0\" }}\n",
                self.id, self.version
            )
        };
        self.descriptor.clone().unwrap_or_else(usual) + &self.more_descriptor
    }

    /// Compiles it.
    pub fn build(&self, path: &Path) {
        let headers = tempfile::tempdir().unwrap();
        let mut bytes = section(&self.text());
        (self.damage)(&mut bytes);
        let mut header = String::from("#define DESCRIPTOR_BYTES ");
        bytes.iter().for_each(|byte| write!(header, "{byte},").unwrap());
        std::fs::write(headers.path().join("descriptor.h"), header + "\n").unwrap();
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O0", "-Wall", "-Werror"])
            .arg("-I")
            .arg(headers.path())
            .arg("-I")
            .arg(root.join("../../plugin-api/include"))
            .arg(format!("-DID=\"{}\"", self.id))
            .arg(format!("-DVERSION=\"{}\"", self.version))
            .args(self.macros.iter().map(|(name, value)| format!("-D{name}={value}")))
            .arg(root.join("tests/fixtures/plugin.c"))
            .args(&self.arguments)
            .arg("-o")
            .arg(path)
            .output()
            .expect("there is a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
}

/// The section for a descriptor.
pub fn section(text: &str) -> Vec<u8> {
    let length = (text.len() as u64).to_le_bytes();
    let checksum = crc32(text.as_bytes()).to_le_bytes();
    [MAGIC.as_slice(), &length, &checksum, &[0; 4], text.as_bytes()].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}
