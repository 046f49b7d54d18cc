//! A stand-in for `libze_loader.so.1`: a shared library that a backend opens like the real one, with one device whose memory is
//! the host's and whose kernels are the real ones, built for the processor.
//!
//! It is as asynchronous as Level Zero allows. Every immediate list and every queue has a thread; what stands between two barriers
//! runs in reverse, an event that is signalled without a barrier before it comes too early, and every step takes a while. So
//! whoever forgets a barrier, a wait or a reset is found out by wrong results.
//!
//! Handles are checked: one that does not exist, was destroyed, or is of another kind is refused. [`control`] has functions for
//! tests: calls that fail, a device that is lost, how often a call was made, and what is left over.
//!
//! One copy of the library is one machine. Tests that want their own open a copy of the file.

#![allow(non_snake_case, reason = "the names are those of the specification of Level Zero")]
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "the specification of Level Zero says what may be passed"
)]

pub mod api;
pub mod control;
mod objects;
mod work;
mod world;
