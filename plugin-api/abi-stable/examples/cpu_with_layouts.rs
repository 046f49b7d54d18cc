//! The library of the CPU backend, with its layouts.

paceline_plugin_api::export_plugin!(paceline_backend_cpu::plugin_entry, paceline_backend_cpu::DESCRIPTOR);
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
