//! The strategy ngram-adaptive as a shared library.

paceline_plugin_api::export_plugin!(
    paceline_strategy_ngram_adaptive::plugin_entry,
    paceline_strategy_ngram_adaptive::DESCRIPTOR
);
#[cfg(feature = "layouts")]
paceline_abi_stable::carry_layouts!(paceline_plugin_entry_v1);
