//! Which sources make which modules for which target, and a hash of them, by which stale images are found.

use paceline_kernels::tuning::Tuning;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub mod nvrtc;
pub mod offline;
pub mod resources;
pub mod spirv;

/// A target of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// NVIDIA, by NVRTC.
    Cuda,
    /// AMD, by clang.
    Hip,
    /// Intel and others, by clang and llvm-spirv.
    Spirv,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Hip, Self::Spirv];

    /// Its name, which is that of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Spirv => "spirv",
        }
    }

    /// The architectures that images of most modules are made for.
    pub fn architectures(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["compute_80", "sm_80", "sm_90", "sm_100"],
            Self::Hip => &[
                "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1031", "gfx1100", "gfx1101",
                "gfx1102", "gfx1151", "gfx1200", "gfx1201",
            ],
            Self::Spirv => &["spirv"],
        }
    }

    /// What tells a compiler how to compute: no fast-math, no implicit contraction. Part of the hash.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &[
                "--std=c++17",
                "--fmad=false",
                "--ftz=false",
                "--prec-div=true",
                "--prec-sqrt=true",
                "--device-as-default-execution-space",
            ],
            Self::Hip => &[
                "-x",
                "hip",
                "--cuda-device-only",
                "-nogpuinc",
                "-nogpulib",
                // Read by the runtimes of ROCm 5 to 7; the next version only by newer ones.
                "-mcode-object-version=4",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fhip-fp32-correctly-rounded-divide-sqrt",
                "--no-gpu-bundle-output",
            ],
            // Without generic pointers, which cost a device something, and without vectors of the optimiser's own.
            Self::Spirv => &[
                "-S",
                "-target",
                "spir64",
                "-x",
                "cl",
                "-cl-std=CL1.2",
                "-O2",
                "-fno-vectorize",
                "-fno-slp-vectorize",
                "-ffp-contract=off",
                "-cl-fp32-correctly-rounded-divide-sqrt",
                "-Wno-pass-failed",
                "-emit-llvm",
            ],
        }
    }

    /// The modules for this target. Every entry is in one of them.
    pub fn modules(self) -> Vec<Module> {
        let prelude = match self {
            Self::Cuda => "prelude/cuda.h",
            Self::Hip => "prelude/hip.h",
            Self::Spirv => "prelude/opencl.h",
        };
        let module = |name: &'static str, parts: &[&[&'static str]]| Module {
            name,
            architectures: self.architectures(),
            files: [&[prelude, "include/params.h", "math.kn"], parts.concat().as_slice()].concat(),
            linked: (self == Self::Spirv).then_some("prelude/exchange.ll"),
        };
        let base = module("base", &[BASE]);
        match self {
            // Tensor cores multiply integers there, under the same names.
            Self::Cuda => {
                vec![
                    base,
                    module("products", &[PRODUCTS]),
                    module("products_int", &[CUDA_PRODUCTS, CUDA_FORMS, &["cuda/linear_entries.cu"]]),
                    module("products_led", &[LED, CUDA_PRODUCTS, &["cuda/linear_led.cu"]]),
                    module("products_experts", &[CUDA_PRODUCTS, CUDA_EXPERTS]),
                    // Instructions that no other chip has.
                    Module {
                        architectures: &["sm_90a"],
                        ..module(
                            "products_bf16",
                            &[CUDA_PRODUCTS, &["cuda/linear_bf16.cu", "cuda/linear_bf16_entries.cu"]],
                        )
                    },
                ]
            }
            Self::Hip | Self::Spirv => {
                vec![base, module("products", &[PRODUCTS, &["linear_int.kn", "experts_int.kn"]])]
            }
        }
    }
}

/// Everything but products.
const BASE: &[&str] = &[
    "elementwise.kn",
    "norms.kn",
    "rows.kn",
    "choice.kn",
    "kv_types.kn",
    "cache.kn",
    "attention_join.kn",
    "attention.kn",
    "attention_mma.kn",
    "recurrent.kn",
    "quantize_block.kn",
    "quantize.kn",
    "fused_rows.kn",
    "fused.kn",
    "attention_rows.kn",
    "experts_list.kn",
    "experts.kn",
];
/// Products with weights, but for those with quantised ones.
const PRODUCTS: &[&str] =
    &["linear.kn", "linear_float.kn", "embed.kn", "experts_list.kn", "experts_float.kn"];

/// Products with quantised weights on tensor cores.
const CUDA_PRODUCTS: &[&str] = &["cuda/linear_formats.cu", "cuda/linear_int.cu"];
/// Forms of them for one row and for many.
const CUDA_FORMS: &[&str] = &["cuda/linear_single.cu", "cuda/linear_wide.cu"];
/// Products of experts.
const CUDA_EXPERTS: &[&str] = &["experts_list.kn", "cuda/linear_single.cu", "cuda/experts.cu"];
/// What the first groups of a product do.
const LED: &[&str] = &["attention_join.kn", "quantize_block.kn", "fused_rows.kn", "led.kn"];

/// Sources that are compiled together.
pub struct Module {
    /// Name.
    pub name: &'static str,
    /// The architectures that images are made for.
    pub architectures: &'static [&'static str],
    /// Files in the folder of the kernels, the prelude first.
    pub files: Vec<&'static str>,
    /// A file of LLVM's language that is linked with them.
    pub linked: Option<&'static str>,
}

impl Module {
    /// One text of all files, with marks that let a compiler name them.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn text(&self) -> Result<String, String> {
        let mut text = String::new();
        for file in &self.files {
            let path = folder().join(file);
            let part =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let _ = writeln!(text, "#line 1 \"{file}\"\n{part}");
        }
        Ok(text)
    }

    /// Hash of what its images are made from: sources, flags, architectures and their tuning.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn hash(&self, target: Target) -> Result<String, String> {
        let mut hash = Sha256::new();
        hash.update(self.text()?);
        if let Some(file) = self.linked {
            let path = folder().join(file);
            hash.update(std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
        }
        for word in target.flags().iter().chain(self.architectures) {
            hash.update(word);
            hash.update([0]);
        }
        if target == Target::Hip {
            for word in target.architectures().iter().flat_map(|chip| Tuning::of(chip).defines()) {
                hash.update(word);
                hash.update([0]);
            }
        }
        Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

/// The folder of the kernels.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Images and kernels of a module that are there already, made from the same sources, flags and architectures.
///
/// # Errors
/// A source that cannot be read.
pub fn known_images(target: Target, module: &Module) -> Result<Option<CompiledModule>, String> {
    let root = folder().join("images");
    let read = |name: &str| {
        std::fs::read_to_string(root.join(format!("{}.{name}", target.name()))).unwrap_or_default()
    };
    let line = format!("{} {}", module.name, module.hash(target)?);
    if !read("sources").lines().any(|known| known == line) {
        return Ok(None);
    }
    let image = |architecture: &&'static str| {
        let file = root.join(target.name()).join(format!("{}.{architecture}.z", module.name));
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&std::fs::read(file).ok()?).ok()?;
        Some(Image { module: module.name, architecture, bytes })
    };
    let images: Option<Vec<Image>> = module.architectures.iter().map(image).collect();
    let end = format!("\", \"{}\"),", module.name);
    let entry = |line: &str| Some(line.trim().strip_prefix("(\"")?.strip_suffix(&end)?.to_owned());
    let entries = read("rs").lines().filter_map(entry).collect();
    Ok(images.map(|images| CompiledModule { images, entries }))
}

/// A module, compiled for all architectures of a target.
pub struct CompiledModule {
    /// One image for each architecture.
    pub images: Vec<Image>,
    /// Its kernels.
    pub entries: Vec<String>,
}

/// All modules of a target.
#[derive(Default)]
pub struct Compiled {
    /// Images of all modules.
    pub images: Vec<Image>,
    /// Kernels of each module.
    pub entries: Vec<(&'static str, Vec<String>)>,
}

impl Compiled {
    fn add(&mut self, module: &Module, compiled: CompiledModule) {
        self.images.extend(compiled.images);
        self.entries.push((module.name, compiled.entries));
    }
}

/// One compiled module.
pub struct Image {
    /// Name of the module.
    pub module: &'static str,
    /// Architecture.
    pub architecture: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Writes `images/TARGET/*` and the tables `images/TARGET.rs` and `images/TARGET.sources`.
///
/// # Errors
/// A file that cannot be written.
pub fn write_images(target: Target, compiled: &Compiled) -> Result<(), String> {
    let root = folder().join("images");
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let place = root.join(target.name());
    std::fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
    for known in std::fs::read_dir(&place).map_err(|error| failed(&place, error))?.flatten() {
        std::fs::remove_file(known.path()).map_err(|error| failed(&known.path(), error))?;
    }
    let mut table = format!(
        "// Compiled kernels for {}. Made by paceline-kernels-compile; do not edit.\n\npub(super) const IMAGES: \
         &[super::Packed] = &[\n",
        target.name()
    );
    for image in &compiled.images {
        let file = format!("{}.{}.z", image.module, image.architecture);
        let path = place.join(&file);
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&image.bytes, 10);
        println!("{file}: {} bytes, {} packed", image.bytes.len(), packed.len());
        std::fs::write(&path, packed).map_err(|error| failed(&path, error))?;
        let _ = writeln!(
            table,
            "    super::Packed {{\n        module: \"{}\",\n        architecture: \"{}\",\n        bytes: \
             include_bytes!(\"{}/{file}\"),\n    }},",
            image.module,
            image.architecture,
            target.name()
        );
    }
    table.push_str("];\n\npub(super) const ENTRIES: &[(&str, &str)] = &[\n");
    for (module, names) in &compiled.entries {
        for name in names {
            let _ = writeln!(table, "    (\"{name}\", \"{module}\"),");
        }
    }
    table.push_str("];\n");
    let path = root.join(format!("{}.rs", target.name()));
    std::fs::write(&path, table).map_err(|error| failed(&path, error))?;
    let mut sources = String::new();
    for module in target.modules() {
        let _ = writeln!(sources, "{} {}", module.name, module.hash(target)?);
    }
    let path = root.join(format!("{}.sources", target.name()));
    std::fs::write(&path, sources).map_err(|error| failed(&path, error))
}
