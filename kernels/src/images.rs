//! Compiled kernels, embedded by the features `cuda`, `hip` and `spirv`.

#[cfg(feature = "cuda")]
#[path = "../images/cuda.rs"]
#[rustfmt::skip]
mod cuda_packed;
#[cfg(feature = "hip")]
#[path = "../images/hip.rs"]
#[rustfmt::skip]
mod hip_packed;
#[cfg(feature = "spirv")]
#[path = "../images/spirv.rs"]
#[rustfmt::skip]
mod spirv_packed;

/// A compiled module as it is embedded.
#[cfg(any(feature = "cuda", feature = "hip", feature = "spirv"))]
#[derive(Clone, Copy)]
struct Packed {
    module: &'static str,
    architecture: &'static str,
    /// zlib.
    bytes: &'static [u8],
}

#[cfg(any(feature = "cuda", feature = "hip", feature = "spirv"))]
impl Packed {
    fn unpack(self) -> Image {
        // The bytes are our own; a test unpacks all of them.
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(self.bytes).unwrap_or_default();
        Image { module: self.module, architecture: self.architecture, bytes }
    }
}

/// A compiled module, ready for a driver.
#[derive(Clone, Debug)]
pub struct Image {
    /// Name of the module.
    pub module: &'static str,
    /// What it was compiled for: `sm_90` (a cubin), `compute_80` (PTX), `gfx1101`, `spirv`.
    pub architecture: &'static str,
    /// A cubin, PTX with a zero at its end, a code object, or SPIR-V.
    pub bytes: Vec<u8>,
}

/// Images for one architecture, and the module of each kernel.
#[cfg(any(feature = "cuda", feature = "hip", feature = "spirv"))]
fn of_architecture(images: &[Packed], architecture: &str) -> Vec<Image> {
    images.iter().filter(|image| image.architecture == architecture).map(|image| image.unpack()).collect()
}

#[cfg(any(feature = "cuda", feature = "hip", feature = "spirv"))]
fn module_of(entries: &[(&'static str, &'static str)], entry: &str) -> Option<&'static str> {
    entries.iter().find(|(name, _)| *name == entry).map(|(_, module)| *module)
}

/// Images for NVIDIA.
#[cfg(feature = "cuda")]
pub mod cuda {
    use super::{Image, cuda_packed as packed};

    /// Compute capabilities with machine code of their own; others of 8.0 and above get PTX, which the driver compiles.
    const CUBINS: [(u32, u32, &str); 3] = [(8, 0, "sm_80"), (9, 0, "sm_90"), (10, 0, "sm_100")];

    /// The architecture whose machine code runs at a compute capability: of the same major version and not newer.
    pub fn cubins(major: u32, minor: u32) -> Option<&'static str> {
        let found = CUBINS.iter().rev().find(|&&(m, n, _)| m == major && n <= minor);
        found.map(|&(_, _, architecture)| architecture)
    }

    /// All modules for an architecture, and those with instructions that newer ones do not have: `sm_90a` with `sm_90`.
    pub fn images(architecture: &str) -> Vec<Image> {
        let mut images = super::of_architecture(packed::IMAGES, architecture);
        images.extend(super::of_architecture(packed::IMAGES, &format!("{architecture}a")));
        images
    }

    /// All modules as PTX, for every compute capability from 8.0 on: where a driver refuses the machine code.
    pub fn ptx() -> Vec<Image> {
        let mut images = super::of_architecture(packed::IMAGES, "compute_80");
        images.iter_mut().for_each(|image| image.bytes.push(0));
        images
    }

    /// All kernels, each with its module.
    pub fn entries() -> &'static [(&'static str, &'static str)] {
        packed::ENTRIES
    }

    /// The module that has a kernel.
    pub fn module_of(entry: &str) -> Option<&'static str> {
        super::module_of(packed::ENTRIES, entry)
    }
}

/// Code objects for AMD.
#[cfg(feature = "hip")]
pub mod hip {
    use super::{Image, hip_packed as packed};
    use std::sync::OnceLock;

    /// The targets that there are images for, such as `gfx1101`.
    pub fn targets() -> &'static [&'static str] {
        static TARGETS: OnceLock<Vec<&'static str>> = OnceLock::new();
        TARGETS.get_or_init(|| {
            let mut targets = Vec::new();
            for image in packed::IMAGES {
                if !targets.contains(&image.architecture) {
                    targets.push(image.architecture);
                }
            }
            targets
        })
    }

    /// All modules for exactly this target; none if there are no images for it.
    pub fn images(target: &str) -> Option<Vec<Image>> {
        let images = super::of_architecture(packed::IMAGES, target);
        (!images.is_empty()).then_some(images)
    }

    /// All kernels, each with its module.
    pub fn entries() -> &'static [(&'static str, &'static str)] {
        packed::ENTRIES
    }

    /// The module that has a kernel.
    pub fn module_of(entry: &str) -> Option<&'static str> {
        super::module_of(packed::ENTRIES, entry)
    }
}

/// SPIR-V, for Level Zero and OpenCL.
#[cfg(feature = "spirv")]
pub mod spirv {
    use super::{Image, spirv_packed as packed};

    /// All modules.
    pub fn images() -> Vec<Image> {
        super::of_architecture(packed::IMAGES, "spirv")
    }

    /// All kernels, each with its module.
    pub fn entries() -> &'static [(&'static str, &'static str)] {
        packed::ENTRIES
    }

    /// The module that has a kernel.
    pub fn module_of(entry: &str) -> Option<&'static str> {
        super::module_of(packed::ENTRIES, entry)
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::cuda;

    #[test]
    fn every_form_has_all_modules() {
        assert_eq!(
            [(7, 5), (8, 9), (9, 0), (10, 3), (12, 0)].map(|(major, minor)| cuda::cubins(major, minor)),
            [None, Some("sm_80"), Some("sm_90"), Some("sm_100"), None]
        );
        for images in ["sm_80", "sm_90", "sm_100"].map(cuda::images).into_iter().chain([cuda::ptx()]) {
            assert!(images.iter().all(|image| image.bytes.len() > 1000));
            for (entry, module) in cuda::entries().iter().filter(|(_, module)| *module != "products_bf16") {
                assert!(images.iter().any(|image| image.module == *module), "{entry} is in no module");
            }
        }
        let has_bf16 =
            |architecture| cuda::images(architecture).iter().any(|it| it.module == "products_bf16");
        assert_eq!(["sm_80", "sm_90", "sm_100"].map(has_bf16), [false, true, false]);
        assert_eq!(cuda::module_of("rms_norm_long"), Some("base"));
        assert_eq!(cuda::module_of("nothing"), None);
    }
}
