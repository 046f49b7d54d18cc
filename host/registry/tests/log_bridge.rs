//! What plugins in shared libraries log comes out of the host's subscriber.

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};

use insta::assert_snapshot;
use support::{fixture, registry};
use tracing_subscriber::EnvFilter;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One test only: a plugin's callsites remember whether the first subscriber that they met wanted them.
#[test]
fn events_and_spans_come_through_and_filters_see_the_plugins_targets() {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_ansi(false)
        .with_env_filter(EnvFilter::new("off,fixture_backend=info,fixture::detail=debug"))
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let mut registry = registry();
        let plugin = registry.load_file(fixture("fixture_backend")).unwrap();
        plugin.client.backend().unwrap().devices().unwrap();
    });
    let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert_snapshot!(text, @r"
    DEBUG plugin{counting plugin_target=fixture_backend plugin_fields=what=devices}: paceline::plugin: a detail plugin_target=fixture::detail
     INFO plugin{counting plugin_target=fixture_backend plugin_fields=what=devices}: paceline::plugin: devices counted plugin_target=fixture_backend plugin_fields=count=1
    ");
}
