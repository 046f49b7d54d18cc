//! A launch that does not end in time. In a process of its own, since what a hanging launch may still use is never freed.

use paceline_backend_sim as _;
use paceline_engine::{Engine, EngineOptions, Model, Rows, Want};
use paceline_gguf::Gguf;
use paceline_registry::Registry;
use paceline_tests::engines::options;
use paceline_tests::random_model::RandomModel;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn the_request_ends_and_the_engine_says_that_it_is_of_no_use() {
    let backend = Registry::new().unwrap().backend(Some("sim")).unwrap();
    let gguf = Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap();
    let options = EngineOptions {
        launch_timeout: Duration::from_millis(1),
        context: Some(64),
        ..options(&[("slow_launch_ms", "400")])
    };
    let mut engine =
        Engine::new(Model::new(Arc::new(gguf)).unwrap(), &backend, options, &mut |_, _| {}).unwrap();
    let sequence = engine.new_sequence().unwrap();
    let mut run = || {
        let rows = [Rows { sequence, tokens: &[1], outputs: 1 }];
        let error = engine.run(&rows, Want::Ids).map(|_| ()).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        [error.to_string(), cause.unwrap_or_default()].join(": ")
    };
    insta::assert_snapshot!(run(), @"backend `sim`: running a step: the wait timed out");
    insta::assert_snapshot!(run(), @"backend `sim`: running a step: an earlier launch did not end in time; make a new engine");
    drop(engine);
    // The launch ends after its request did, and finds its memory as it was.
    std::thread::sleep(Duration::from_millis(600));
}
