//! `paceline-kernels-compile cuda --nvrtc FOLDER`, `hip`, `spirv`, `header`, `resources`: makes the files that are checked in.

use clap::{Parser, Subcommand};
use paceline_kernels_compile::{Target, folder, nvrtc, offline, resources, write_images};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Compiles the GPU kernels to the images that plugins embed")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// PTX and cubins, with NVRTC 13.0: `pip install nvidia-cuda-nvrtc==13.0.88`
    Cuda {
        /// Folder of libnvrtc.so.13
        #[arg(long)]
        nvrtc: PathBuf,
    },
    /// Code objects for AMD, with clang-19 and lld-19
    Hip,
    /// SPIR-V, with clang-15, llvm-spirv-15 and spirv-val
    Spirv,
    /// `include/params.h`, from the structures in Rust
    Header,
    /// `images/hip.resources.md`, from the images for AMD that this program was built with
    Resources,
}

fn write(file: &str, text: &str) -> Result<(), String> {
    let path = folder().join(file);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn run(what: &What) -> Result<(), String> {
    let scratch = std::env::temp_dir().join(format!("paceline-kernels-{}", std::process::id()));
    let result = match what {
        What::Cuda { nvrtc: place } => nvrtc::compile_all(&nvrtc::Nvrtc::open(place)?)
            .and_then(|compiled| write_images(Target::Cuda, &compiled)),
        What::Hip => offline::compile_all(Target::Hip, &scratch)
            .and_then(|compiled| write_images(Target::Hip, &compiled)),
        What::Spirv => offline::compile_all(Target::Spirv, &scratch)
            .and_then(|compiled| write_images(Target::Spirv, &compiled)),
        What::Header => write("include/params.h", &paceline_kernels::header::params_h()),
        What::Resources => resources::hip_markdown().and_then(|text| write("images/hip.resources.md", &text)),
    };
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    }
    result
}

fn main() -> ExitCode {
    match run(&Arguments::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}
