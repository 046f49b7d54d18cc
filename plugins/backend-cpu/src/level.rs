//! Instruction levels of the kernels.
//!
//! Every level gives the same bits; a level only decides how fast they come.

use std::fmt;
use std::str::FromStr;

/// An instruction set the kernels are written for, ordered from the slowest to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust; runs on every processor.
    Scalar,
    /// 256-bit vectors: AVX2, FMA and F16C.
    Avx2,
    /// 512-bit vectors with 8-bit dot products: AVX-512 F, BW, VL, DQ and VNNI.
    Avx512Vnni,
    /// 128-bit vectors of 64-bit ARM processors, with 8-bit dot products. Kernels that are not matrix products use NEON
    /// at every level there.
    Neon,
}

impl Level {
    /// All levels, slowest first.
    pub const ALL: [Level; 4] = [Level::Scalar, Level::Avx2, Level::Avx512Vnni, Level::Neon];

    /// The fastest level this processor runs.
    pub fn detect() -> Level {
        Level::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Level::Scalar)
    }

    /// The levels this processor runs, slowest first.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|level| level.is_available()).collect()
    }

    /// Whether this processor runs the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Avx2 => has_avx2(),
            Level::Avx512Vnni => has_avx2() && has_avx512_vnni(),
            Level::Neon => has_neon(),
        }
    }

    /// The level itself where the processor runs it, else the fastest that it does run.
    ///
    /// Kernels pass every level they are given through this, so that a wrong choice costs speed
    /// and never an illegal instruction.
    pub fn usable(self) -> Level {
        if self.is_available() { self } else { Level::detect() }
    }

    /// The name that [`FromStr`] reads back.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512Vnni => "avx512-vnni",
            Level::Neon => "neon",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A level name that is none of `scalar`, `avx2`, `avx512-vnni`, `neon`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel(String);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown level {:?}; levels are scalar, avx2, avx512-vnni and neon", self.0)
    }
}

impl std::error::Error for UnknownLevel {}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Level, UnknownLevel> {
        Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| UnknownLevel(name.to_owned()))
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512_vnni() -> bool {
    false
}

#[cfg(target_arch = "aarch64")]
fn has_neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon") && std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(not(target_arch = "aarch64"))]
fn has_neon() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("avx512".parse::<Level>().is_err());
    }

    #[test]
    fn detected_level_is_the_last_available() {
        assert_eq!(Level::available().last(), Some(&Level::detect()));
        assert_eq!(Level::available().first(), Some(&Level::Scalar));
        assert!(Level::ALL.into_iter().all(|level| level.usable().is_available()));
    }
}
