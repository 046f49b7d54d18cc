//! The simulated devices as a shared library.

paceline_plugin_api::export_plugin!(paceline_backend_sim::plugin_entry, paceline_backend_sim::DESCRIPTOR);
