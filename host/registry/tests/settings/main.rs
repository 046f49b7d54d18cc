//! Defaults that follow the backend in use.

mod check;
mod explain;
mod faults;
mod known_failures;
mod precedence;
mod properties;
mod shipped;
mod support;
