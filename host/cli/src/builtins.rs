//! The plugins that are linked into this program.

// A crate that nothing refers to is dropped by the linker, and its plugin with it.
#[cfg(feature = "backend-cpu")]
use paceline_backend_cpu as _;
#[cfg(feature = "cuda")]
use paceline_backend_cuda as _;
#[cfg(feature = "rocm")]
use paceline_backend_rocm as _;
#[cfg(feature = "sycl")]
use paceline_backend_sycl as _;
#[cfg(feature = "strategies")]
use {
    paceline_strategy_dflash as _, paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// Their ids.
pub const BUILTINS: &[&str] = &[
    #[cfg(feature = "backend-cpu")]
    "cpu",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "strategies")]
    "dflash",
    #[cfg(feature = "strategies")]
    "gdn-replay",
    #[cfg(feature = "strategies")]
    "mtp-chain",
    #[cfg(feature = "strategies")]
    "ngram-adaptive",
    #[cfg(feature = "rocm")]
    "rocm",
    #[cfg(feature = "sycl")]
    "sycl",
];
