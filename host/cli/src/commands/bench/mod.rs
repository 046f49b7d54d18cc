//! `bench`: what strategies gain, measured.
//!
//! - `prompts` reads what is continued, `arms` what is compared;
//! - `model` is the data of a benchmark: runs, the machine, the cost of verifying;
//! - `statistics` has medians and intervals, `summary` applies them to the runs of an arm;
//! - `tables` puts everything into tables, which `markdown` and `html` write; `plots` draws for `html`;
//! - `csv` and `json` write everything for programs.

mod arms;
mod csv;
#[cfg(test)]
mod example;
mod html;
mod json;
mod markdown;
mod model;
mod plots;
mod prompts;
mod statistics;
mod summary;
mod tables;
