//! Limits of the machine: they are numbers that make sense, on every level.

use paceline_backend_cpu::level::Level;
use paceline_backend_cpu::machine::{integer_rate, read_rate};

#[test]
fn limits_are_positive_at_every_level() {
    // Slower than any machine of the last decades, which is all that a test can ask of a time.
    assert!(read_rate(1) > 1e6);
    for level in Level::available() {
        for threads in [1, 2] {
            let rate = integer_rate(level, threads);
            assert!(rate.is_finite() && rate > 1e6, "{level}, {threads} threads: {rate}");
        }
    }
}
