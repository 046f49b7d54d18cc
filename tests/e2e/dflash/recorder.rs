//! dflash, with what it proposes written down.

use paceline_plugin_api::drafter_plugin;
use paceline_strategy_dflash::Dflash;
use paceline_tests::recorder::Recorder;
use paceline_tests::test_strategy;

drafter_plugin!(test_strategy!("dflash-recorded"), Recorder<Dflash>, Recorder(Dflash));
