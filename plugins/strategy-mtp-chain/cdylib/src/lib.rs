//! The strategy mtp-chain as a shared library.

paceline_plugin_api::export_plugin!(
    paceline_strategy_mtp_chain::plugin_entry,
    paceline_strategy_mtp_chain::DESCRIPTOR
);
#[cfg(feature = "layouts")]
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
