//! Ctrl-C: asks a command to end, or ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Exit;
use crate::failure::Failure;

/// Whether Ctrl-C was pressed.
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    /// The command looks at `requested`.
    heeded: AtomicBool,
    requested: AtomicBool,
}

impl Interrupt {
    /// Starts to watch for Ctrl-C. It still ends the program, until [`Interrupt::heed`] is called. To be called once.
    pub fn watch() -> Result<Self, Failure> {
        let state = Arc::<State>::default();
        let pressed = Arc::clone(&state);
        ctrlc::set_handler(move || {
            // Whoever presses it twice does not want to wait for what takes so long.
            let again = pressed.requested.swap(true, Ordering::Relaxed);
            if again || !pressed.heeded.load(Ordering::Relaxed) {
                std::process::exit(Exit::Interrupted as i32);
            }
        })
        .map_err(|error| Failure::new(Exit::Failed, "cannot watch for Ctrl-C").caused_by(&error))?;
        Ok(Self(state))
    }

    /// From now on the caller looks at [`Interrupt::requested`] now and then, and there is something to finish.
    pub fn heed(&self) {
        self.0.heeded.store(true, Ordering::Relaxed);
    }

    /// There is nothing to finish any more: Ctrl-C ends the program again, and what was pressed before is forgotten.
    pub fn disregard(&self) {
        self.0.heeded.store(false, Ordering::Relaxed);
        self.0.requested.store(false, Ordering::Relaxed);
    }

    /// Whether the command should end.
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }
}
