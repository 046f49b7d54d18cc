//! What commands share.

use std::path::PathBuf;

use paceline_registry::Registry;

use crate::builtins::BUILTINS;
use crate::failure::Failure;
use crate::printer::Printer;

/// The printer, and the plugins that were asked for.
pub struct App {
    /// Writes all output.
    pub printer: Printer,
    plugin_files: Vec<PathBuf>,
}

impl App {
    /// An app that will load these plugin files.
    pub fn new(printer: Printer, plugin_files: Vec<PathBuf>) -> Self {
        Self { printer, plugin_files }
    }

    /// The plugins: built-in ones and files. Commands that need none do not pay for them.
    pub fn registry(&self) -> Result<Registry, Failure> {
        let mut registry = Registry::new()?;
        registry.expect_builtins(BUILTINS)?;
        for path in &self.plugin_files {
            registry.load_file(path)?;
        }
        Ok(registry)
    }
}
