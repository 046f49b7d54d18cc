//! What the process has used, as Linux tells it; elsewhere nothing is known.

use std::fs;

/// Processor seconds of each thread that is there, in the order in which the system lists them.
pub(crate) fn thread_seconds() -> Vec<(u64, f64)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks.flatten().filter_map(|task| of_thread(&task.file_name().to_string_lossy())).collect()
}

fn of_thread(id: &str) -> Option<(u64, f64)> {
    // Nanoseconds on a processor come first.
    let text = fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some((id.parse().ok()?, nanoseconds as f64 * 1e-9))
}

/// Processor seconds of each thread since `before`, the busiest first; threads that ended are not known any more.
pub(crate) fn thread_seconds_since(before: &[(u64, f64)]) -> Vec<f64> {
    let used = |&(id, seconds): &(u64, f64)| {
        let earlier = before.iter().find(|(other, _)| *other == id).map_or(0.0, |(_, seconds)| *seconds);
        seconds - earlier
    };
    let mut seconds: Vec<f64> = thread_seconds().iter().map(used).filter(|seconds| *seconds > 0.0).collect();
    seconds.sort_by(|a, b| b.total_cmp(a));
    seconds
}

/// The most memory that was resident at a time, in bytes: pages of mapped files count as long as they are there.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_are_seen() {
        let before = thread_seconds();
        let mut numbers = vec![1u64; 1 << 20];
        while thread_seconds_since(&before).iter().sum::<f64>() < 0.002 {
            numbers.iter_mut().for_each(|number| *number = number.wrapping_mul(3));
        }
        assert!(peak_memory().unwrap() > (8 << 20));
        std::hint::black_box(numbers);
    }
}
