//! Registers, spills and memory of the kernels in the images for AMD, from what the compiler wrote into them.

use paceline_kernels::code_object::{CodeObject, Kernel};
use paceline_kernels::images::hip;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Kernels by name, each with what it uses for every target, in the order of [`hip::targets`].
fn table() -> Result<BTreeMap<String, Vec<Kernel>>, String> {
    let mut table: BTreeMap<String, Vec<Kernel>> = BTreeMap::new();
    for target in hip::targets() {
        for image in hip::images(target).unwrap_or_default() {
            let object = CodeObject::read(&image.bytes).map_err(|why| format!("{target}: {why}"))?;
            for kernel in object.kernels {
                table.entry(kernel.name.clone()).or_default().push(kernel);
            }
        }
    }
    Ok(table)
}

/// The text of `images/hip.resources.md`: what each kernel takes of each target.
///
/// # Errors
/// An image that is no code object.
pub fn hip_markdown() -> Result<String, String> {
    let targets = hip::targets();
    let mut text = String::from(
        "# Registers of the kernels for AMD\n\nWhat clang wrote into the code objects, made by \
         `paceline-kernels-compile resources`. Vector registers of a lane for each target\n(with accumulation \
         registers, where a target has them), then the most of all targets: scalar registers, bytes of shared \
         memory of\na group, bytes of private memory of a thread. `+30s` are 30 scalar registers that found no room \
         and are in lanes of vector\nregisters, `+16v` are 16 vector registers in accumulation registers. Nothing \
         is in memory: the last column says so.\n\n",
    );
    let rule = "|---:".repeat(targets.len() + 3);
    let _ = writeln!(text, "| kernel | {} | scalar | shared | private |", targets.join(" | "));
    let _ = writeln!(text, "|---{rule}|");
    for (name, kernels) in table()? {
        let _ = write!(text, "| `{name}` |");
        for kernel in &kernels {
            let _ = write!(text, " {}", kernel.vector_registers);
            for (count, what) in [(kernel.vector_spills, 'v'), (kernel.scalar_spills, 's')] {
                if count > 0 {
                    let _ = write!(text, " +{count}{what}");
                }
            }
            text.push_str(" |");
        }
        let most = |of: fn(&Kernel) -> u32| kernels.iter().map(of).max().unwrap_or(0);
        let _ = writeln!(
            text,
            " {} | {} | {} |",
            most(|kernel| kernel.scalar_registers),
            most(|kernel| kernel.shared_bytes),
            most(|kernel| kernel.private_bytes)
        );
    }
    Ok(text)
}
