//! What sets the backend of one vendor apart from the others.

use crate::driver::{DeviceFacts, Driver};
use paceline_kernels::images::Image;
use paceline_plugin_api::Error;
use paceline_plugin_api::settings::Setting;

/// Why there is no driver to work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDriver {
    /// It is not installed: there are no devices, which is no fault. The text says what was looked for and what to install.
    Missing(String),
    /// It is there and does not work.
    Failed(Error),
}

/// Compiled kernels of one form: machine code, or what a driver compiles.
pub struct Images {
    /// What they are, for messages: "the machine code for sm_90".
    pub what: String,
    /// True if a kernel of this form waits by itself for the results of the one in front of it.
    pub overlaps: bool,
    /// Unpacks or compiles the modules; asked for only when it is this form's turn.
    make: Box<dyn Fn() -> Result<Vec<Image>, String>>,
}

impl Images {
    /// Images that are made when they are needed. `make` gives all modules, or says why it cannot.
    pub fn new(
        what: impl Into<String>,
        overlaps: bool,
        make: impl Fn() -> Result<Vec<Image>, String> + 'static,
    ) -> Self {
        Self { what: what.into(), overlaps, make: Box::new(make) }
    }

    /// The modules.
    ///
    /// # Errors
    /// Why they cannot be made.
    pub fn modules(&self) -> Result<Vec<Image>, String> {
        (self.make)()
    }
}

/// A vendor's driver, devices, kernels and words. Everything else is the same for all.
pub trait Platform: Send + Sync {
    /// The plugin's id; devices are `id:0`, `id:1`.
    fn id(&self) -> &'static str;

    /// The settings of a device. The keys of [`SETTINGS`](crate::capabilities::SETTINGS) are among them; `overlap` may be.
    fn settings(&self) -> &'static [Setting];

    /// The driver, started once in a process.
    ///
    /// # Errors
    /// It is not installed, or does not work.
    fn driver(&self) -> Result<&'static dyn Driver, NoDriver>;

    /// Puts devices in the order in which they are numbered; they come in that of the driver, with its numbers.
    fn order(&self, _devices: &mut [(u32, DeviceFacts)]) {}

    /// The environment variable that hides devices, if it is set.
    fn hidden_by(&self) -> Option<&'static str>;

    /// Why there are no kernels for devices of this target; none if there are.
    fn refuses(&self, target: &str) -> Option<String>;

    /// All forms of the kernels for a target, the best first.
    fn images(&self, target: &str) -> Vec<Images>;

    /// The module that has a kernel.
    fn module_of(&self, entry: &str) -> Option<&'static str>;

    /// Whether there are products of rows in bf16 for a target.
    fn has_bf16(&self, _target: &str) -> bool {
        false
    }

    /// Bytes of dynamic shared memory that this platform's form of a kernel for so many threads wants, where launches do
    /// not say so.
    fn shared_bytes(&self, _entry: &str, _threads: u32) -> u32 {
        0
    }
}
