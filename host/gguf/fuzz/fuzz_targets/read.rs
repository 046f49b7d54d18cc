//! Feeds arbitrary bytes to the reader and to `verify`, and touches all they offer.
//!
//! `cargo run --bin seeds` writes a few small files to start from; then, with cargo-fuzz and a
//! nightly compiler, `cargo +nightly fuzz run read`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/reader/touch_everything.rs"]
mod touch_everything;

fuzz_target!(|bytes: &[u8]| touch_everything::touch_everything(bytes));
