//! The backend for Intel GPUs as a shared library.

paceline_plugin_api::export_plugin!(paceline_backend_sycl::plugin_entry, paceline_backend_sycl::DESCRIPTOR);
#[cfg(feature = "layouts")]
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
