//! `one_kernel FOLDER [WIDTH]`: writes every kernel for SPIR-V as a module of its own, for compilers that show what becomes of it.

use paceline_kernels::{images::spirv, spirv as edit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = std::path::PathBuf::from(arguments.next().ok_or("one_kernel FOLDER [WIDTH]")?);
    let width = arguments.next().map_or(Ok(16), |width| width.parse())?;
    for (entry, module) in spirv::entries() {
        let image =
            spirv::images().into_iter().find(|image| image.module == *module).ok_or("no such module")?;
        let one = edit::kernel(&edit::with_width(&image.bytes, width)?, entry)?;
        std::fs::write(folder.join(format!("{entry}.spv")), one)?;
    }
    Ok(())
}
