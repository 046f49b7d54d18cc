//! A stand-in for `libamdhip64.so`: virtual AMD GPUs, for tests of whatever opens the HIP library at run time.
//!
//! Device memory is host memory, and kernels are the real ones, compiled for the processor, at the wave width of the
//! device. Everything else behaves as strictly as the library, or more:
//!
//! - a stream is a thread: what is queued runs later, copies from host memory read it then, and whoever does not wait
//!   reads old bytes; work of a stream begins after a pause, so that this shows;
//! - memory is checked: copies in the wrong direction, beyond an allocation or of memory that was freed are refused, or
//!   end the device if they are found when they run;
//! - code objects are read: one for another chip is refused, unknown kernels are not found, the structure that a kernel
//!   takes is as long as its metadata says;
//! - copies between devices want peer access, unless they are `hipMemcpyPeerAsync`; whoever enables it twice is told;
//! - a stream that is captured records; waiting for it, or allocating meanwhile, makes the capture invalid;
//! - calls can be made to fail, and devices to be lost.
//!
//! Variables of the environment say what there is, read at the first call; [`hip_double_set`](api::control) does the same
//! for one copy of the library.
//!
//! | variable | meaning |
//! |---|---|
//! | `HIP_DOUBLE_DEVICES` | `gfx1101:16GiB,gfx906:4GiB`: chips and memory; without it there is no device. `:integrated` marks one that shares the processor's memory |
//! | `HIP_VISIBLE_DEVICES` | as for the library: numbers of the devices to show; empty hides all |
//! | `HIP_DOUBLE_NO_PEER` | `0-1,0-2`: pairs of devices without access to each other |
//! | `HIP_DOUBLE_VERSION` | what `hipRuntimeGetVersion` answers, 10,000,000 · major + 100,000 · minor + patch |
//! | `HIP_DOUBLE_FAULTS` | `hipMalloc:3:2`: the call fails once with code 2 after it succeeded three times; `kernel` is a kernel when it runs |
//! | `HIP_DOUBLE_DELAY_US` | microseconds before a stream begins to work; 50 |
//!
//! `hiprtc…` compiles with `clang-19`, where it is installed.

// Names and arguments are those of the library.
#![allow(non_snake_case)]

pub mod api;
mod capture;
mod code;
mod config;
mod memory;
mod stream;
mod world;
