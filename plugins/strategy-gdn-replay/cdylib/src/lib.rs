//! The strategy gdn-replay as a shared library.

paceline_plugin_api::export_plugin!(
    paceline_strategy_gdn_replay::plugin_entry,
    paceline_strategy_gdn_replay::DESCRIPTOR
);
#[cfg(feature = "layouts")]
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
