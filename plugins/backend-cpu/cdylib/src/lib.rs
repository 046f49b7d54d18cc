//! The CPU backend as a shared library.
