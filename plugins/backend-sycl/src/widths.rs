//! How many lanes a sub-group has. The bits of a kernel do not depend on it; its registers do: a lane of a wide sub-group has
//! fewer of them.

use paceline_kernels::spirv::WIDTHS;

/// The variable that gives all kernels one width, to compare.
pub(crate) const VARIABLE: &str = "SYCL_SUBGROUP_WIDTH";

/// Kernels that keep much in registers, by the beginnings of their names: with 128 registers of 32 bytes only 8 lanes have
/// room without spills (kernels/NOTES.md has counts). Devices without sub-groups of 8 have registers of 64 bytes, in which 16 lanes
/// have the same room.
const LARGE: [&str; 3] = ["attention_parts", "gated_delta_net_", "linear_"];

/// How a kernel is compiled for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Lanes of a sub-group.
    pub width: u32,
    /// The kernel needs more registers than a lane of a width that was forced on it has: threads get twice as many, and there
    /// are half as many of them.
    pub large_registers: bool,
}

/// Widths that a device can run and kernels too, ascending.
pub(crate) fn usable(device: &[u32]) -> Vec<u32> {
    WIDTHS.into_iter().filter(|width| device.contains(width)).collect()
}

/// The width of most kernels on a device with these widths, which is what is said about it.
pub(crate) fn usual(widths: &[u32]) -> u32 {
    [16, 32, 8].into_iter().find(|width| widths.contains(width)).unwrap_or(32)
}

/// How a kernel is compiled, for a device with these widths. `forced` is one of them, for all kernels.
pub(crate) fn form(entry: &str, widths: &[u32], forced: Option<u32>) -> Form {
    let is_large = LARGE.iter().any(|start| entry.starts_with(start));
    let has_narrow = widths.contains(&8);
    let width = match forced {
        Some(width) => width,
        None if is_large && has_narrow => 8,
        None => usual(widths),
    };
    Form { width, large_registers: is_large && has_narrow && width > 8 }
}

/// The width that the environment forces on all kernels.
///
/// # Errors
/// A sentence, if it is none that kernels have.
pub(crate) fn of_environment() -> Result<Option<u32>, String> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    match text.parse().ok().filter(|width| WIDTHS.contains(width)) {
        Some(width) => Ok(Some(width)),
        None => Err(format!("{VARIABLE} is `{text}`; it must be 8, 16 or 32")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_kernels_get_narrow_sub_groups_or_more_registers() {
        let form = |entry, widths: &[u32], forced| {
            let Form { width, large_registers } = form(entry, widths, forced);
            (width, large_registers)
        };
        assert_eq!(usable(&[4, 8, 16, 32, 64]), [8, 16, 32]);
        assert_eq!(form("rms_norm_long", &[8, 16, 32], None), (16, false));
        assert_eq!(form("linear_q4_k_r1", &[8, 16, 32], None), (8, false));
        assert_eq!(form("linear_q4_k_r1", &[16, 32], None), (16, false));
        assert_eq!(form("rms_norm_long", &[32], None), (32, false));
        assert_eq!(form("attention_parts", &[8, 16, 32], Some(32)), (32, true));
    }
}
