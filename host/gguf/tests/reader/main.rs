//! Reading, checking and writing GGUF files, by topic.

mod access;
mod alignment;
mod common;
mod header;
mod metadata;
mod mutation;
mod round_trip;
mod split;
mod tensors;
mod touch_everything;
mod truncation;
mod verify;
mod writer;
