//! A library that carries no layouts, as most plugins do.

paceline_plugin_api::export_plugin!(paceline_backend_cpu::plugin_entry, paceline_backend_cpu::DESCRIPTOR);
