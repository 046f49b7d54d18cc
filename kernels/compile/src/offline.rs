//! clang and llvm-spirv as programs: code objects for AMD, SPIR-V for Intel.

use crate::{Compiled, CompiledModule, Image, Module, Target, known_images};
use paceline_kernels::tuning::Tuning;
use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Names of the kernels of a preprocessed module: functions without a result that take one structure of parameters.
fn entries(preprocessed: &str) -> Vec<String> {
    let mut names: Vec<String> = preprocessed
        .split("void ")
        .skip(1)
        .filter_map(|rest| {
            let name = rest.split('(').next()?.trim();
            let argument = rest.split('(').nth(1)?.split(')').next()?.trim();
            (argument.starts_with("const Kn") && argument.ends_with(" p") && !argument.contains('*'))
                .then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Compiles a module with `clang` for AMD.
///
/// # Errors
/// What the compiler says.
pub fn hip(module: &Module, architecture: &str, scratch: &Path) -> Result<Vec<u8>, String> {
    let (source, object) = (scratch.join("kernels.hip"), scratch.join("kernels.hsaco"));
    std::fs::write(&source, module.text()?).map_err(|error| error.to_string())?;
    run(Command::new("clang-19")
        .args(Target::Hip.flags())
        .arg(format!("--offload-arch={architecture}"))
        .args(Tuning::of(architecture).defines())
        .arg("-o")
        .args([&object, &source]))?;
    std::fs::read(&object).map_err(|error| error.to_string())
}

/// Compiles a module with `clang` and `llvm-spirv` to SPIR-V, and validates it.
///
/// # Errors
/// What the programs say.
pub fn spirv(module: &Module, scratch: &Path) -> Result<Vec<u8>, String> {
    let [source, text, bitcode, linked, binary] =
        ["kernels.cl", "kernels.ll", "kernels.bc", "linked.bc", "kernels.spv"].map(|name| scratch.join(name));
    let failed = |error: std::io::Error| format!("{}: {error}", scratch.display());
    std::fs::write(&source, module.text()?).map_err(failed)?;
    let bitcode_of = |from: &Path, to: &Path| {
        let flags = ["-c", "-target", "spir64", "-x", "ir", "-emit-llvm", "-Xclang", "-disable-llvm-passes"];
        run(Command::new("clang-15").args(flags).arg("-o").args([to, from]))
    };
    let mut clang = Command::new("clang-15");
    clang.args(Target::Spirv.flags());
    if let Some(file) = module.linked {
        bitcode_of(&crate::folder().join(file), &linked)?;
        clang.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(&linked);
    }
    run(clang.arg("-o").args([&text, &source]))?;
    let plain = std::fs::read_to_string(&text).map_err(failed)?;
    std::fs::write(&text, crate::spirv::translatable(&plain)?).map_err(failed)?;
    bitcode_of(&text, &bitcode)?;
    run(Command::new("llvm-spirv-15")
        .args(["--spirv-max-version=1.2", "--spirv-ext=+SPV_INTEL_subgroups", "-o"])
        .args([&binary, &bitcode]))?;
    let ordered = crate::spirv::ordered(&std::fs::read(&binary).map_err(failed)?)?;
    std::fs::write(&binary, &ordered).map_err(failed)?;
    run(Command::new("spirv-val").args(["--target-env", "opencl2.2"]).arg(&binary))?;
    Ok(ordered)
}

/// Images of all modules and architectures of a target, and the kernels of each module.
///
/// # Errors
/// A source that cannot be read or compiled.
pub fn compile_all(target: Target, scratch: &Path) -> Result<Compiled, String> {
    std::fs::create_dir_all(scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let mut compiled = Compiled::default();
    for module in target.modules() {
        if let Some(known) = known_images(target, &module)? {
            compiled.add(&module, known);
            continue;
        }
        let source = scratch.join("preprocess.c");
        std::fs::write(&source, module.text()?).map_err(|error| error.to_string())?;
        let text = run(Command::new("clang-19").args(["-E", "-P", "-DKN_WAVE=32", "-x", "c"]).arg(&source))?;
        let mut made = CompiledModule { images: Vec::new(), entries: entries(&text) };
        for &architecture in target.architectures() {
            let bytes = match target {
                Target::Hip => hip(&module, architecture, scratch)?,
                _ => spirv(&module, scratch)?,
            };
            made.images.push(Image { module: module.name, architecture, bytes });
        }
        compiled.add(&module, made);
    }
    Ok(compiled)
}
