//! Finds plugins, built in or in shared libraries, and opens them through the ABI.
