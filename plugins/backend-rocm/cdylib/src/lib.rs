//! The backend for AMD GPUs as a shared library.

paceline_plugin_api::export_plugin!(paceline_backend_rocm::plugin_entry, paceline_backend_rocm::DESCRIPTOR);
#[cfg(feature = "layouts")]
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
