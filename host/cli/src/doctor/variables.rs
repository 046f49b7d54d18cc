//! Variables of drivers, runtimes and other programs: what they do, and how the same is said here.

/// What a variable means.
pub struct Meaning {
    /// Its name, or with a `*` at the end the beginning of names.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// How the same is done here.
    pub here: &'static str,
}

const fn meaning(name: &'static str, does: &'static str, here: &'static str) -> Meaning {
    Meaning { name, does, here }
}

const DRIVER_OBEYS: &str = "the driver obeys it: `paceline devices` lists what is left";
const NO_EFFECT_THREADS: &str = "no effect here: `--threads N`";
const NO_EFFECT_SETTINGS: &str = "no effect here: `--set PLUGIN.KEY=VALUE`";

/// Exact names stand before beginnings that they have too.
const MEANINGS: [Meaning; 36] = [
    meaning("CUDA_VISIBLE_DEVICES", "hides all other NVIDIA devices", DRIVER_OBEYS),
    meaning("CUDA_DEVICE_ORDER", "in which order NVIDIA devices are counted", DRIVER_OBEYS),
    meaning("CUDA_LAUNCH_BLOCKING", "makes every launch wait, to find faults", "unset it: it costs speed"),
    meaning("CUDA_*", "of the CUDA driver or runtime", "passed to plugins"),
    meaning("NVIDIA_VISIBLE_DEVICES", "which NVIDIA devices a container gets", DRIVER_OBEYS),
    meaning("HIP_VISIBLE_DEVICES", "hides all other AMD devices", DRIVER_OBEYS),
    meaning("ROCR_VISIBLE_DEVICES", "hides all other AMD devices, below HIP", DRIVER_OBEYS),
    meaning("GPU_DEVICE_ORDINAL", "hides all other AMD devices", DRIVER_OBEYS),
    meaning(
        "HSA_OVERRIDE_GFX_VERSION",
        "makes ROCm take a device for another one",
        "kernels for that one may fail: unset it unless you need it",
    ),
    meaning("HSA_*", "of the ROCm runtime", "passed to plugins"),
    meaning("HIP_*", "of the HIP runtime", "passed to plugins"),
    meaning("ONEAPI_DEVICE_SELECTOR", "hides all other SYCL devices", DRIVER_OBEYS),
    meaning("ZE_AFFINITY_MASK", "hides all other Level Zero devices", DRIVER_OBEYS),
    meaning("ZE_FLAT_DEVICE_HIERARCHY", "whether tiles are devices of their own", DRIVER_OBEYS),
    meaning("ZE_*", "of Level Zero", "passed to plugins"),
    meaning("ZES_*", "of Level Zero", "passed to plugins"),
    meaning(
        "SYCL_SUBGROUP_WIDTH",
        "lanes of sub-groups on Intel GPUs",
        "the SYCL backend obeys it, to compare",
    ),
    meaning("SYCL_*", "of the SYCL runtime", "passed to plugins"),
    meaning("UR_*", "of the SYCL runtime", "passed to plugins"),
    meaning("GGML_*", "of programs on ggml, such as llama.cpp", NO_EFFECT_SETTINGS),
    meaning("LLAMA_*", "of llama.cpp", "no effect here: see `paceline run --help`"),
    meaning("OMP_NUM_THREADS", "how many threads OpenMP starts", NO_EFFECT_THREADS),
    meaning("OMP_*", "of OpenMP", "no effect here"),
    meaning("GOMP_CPU_AFFINITY", "where OpenMP's threads run", "no effect here: start with `taskset`"),
    meaning("KMP_*", "of Intel's OpenMP", "no effect here"),
    meaning("MKL_NUM_THREADS", "how many threads MKL starts", NO_EFFECT_THREADS),
    meaning("OPENBLAS_NUM_THREADS", "how many threads OpenBLAS starts", NO_EFFECT_THREADS),
    meaning("RAYON_NUM_THREADS", "how many threads Rayon starts", NO_EFFECT_THREADS),
    meaning(
        "LD_LIBRARY_PATH",
        "where libraries of plugins and drivers are looked for first",
        "the system obeys it",
    ),
    meaning("LD_PRELOAD", "puts a library in front of all others", "the system obeys it, for plugins too"),
    meaning("PACELINE_LOG", "what is logged", "the same as `--log`"),
    meaning("PACELINE_PLUGIN_DIRS", "further folders with plugins", "see `paceline plugins paths`"),
    meaning("PACELINE_ROCM_LIBRARY", "the file of the HIP runtime", "see the backend `rocm`"),
    meaning("PACELINE_ROCM_TUNING", "other tuning values for AMD devices", "see the backend `rocm`"),
    meaning("XDG_DATA_HOME", "where plugins are installed", "see `paceline plugins paths`"),
    meaning("XDG_CACHE_HOME", "where verdicts on plugins are kept", "see `paceline plugins paths --json`"),
];

/// What a variable means; `None` for one that means nothing here.
pub fn meaning_of(name: &str) -> Option<&'static Meaning> {
    MEANINGS.iter().find(|meaning| match meaning.name.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => meaning.name == name,
    })
}

/// What is wrong with a variable's value, and what to do.
pub fn fault_of(name: &str, value: &str) -> Option<[String; 2]> {
    let fault = |what: &str, remedy: &str| Some([what.to_owned(), remedy.to_owned()]);
    match name {
        "CUDA_VISIBLE_DEVICES" | "HIP_VISIBLE_DEVICES" | "ROCR_VISIBLE_DEVICES" | "GPU_DEVICE_ORDINAL"
            if value.trim().is_empty() || value.trim() == "-1" =>
        {
            Some(["it hides every device".to_owned(), format!("unset {name} if devices shall be used")])
        }
        "CUDA_LAUNCH_BLOCKING" if value != "0" => fault("every launch waits for its end", "unset it"),
        "PACELINE_PLUGIN_DIRS" => {
            let relative = value.split(':').find(|folder| !folder.is_empty() && !folder.starts_with('/'))?;
            Some([
                format!("`{relative}` is no absolute path and is left out"),
                "give absolute paths with colons between".to_owned(),
            ])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_meaning_of_its_own_before_that_of_its_beginning() {
        let does = |name: &str| meaning_of(name).map(|meaning| meaning.does);
        assert_eq!(does("CUDA_VISIBLE_DEVICES"), Some("hides all other NVIDIA devices"));
        assert_eq!(does("CUDA_CACHE_PATH"), Some("of the CUDA driver or runtime"));
        assert_eq!(does("HOME"), None);
        for (index, meaning) in MEANINGS.iter().enumerate() {
            let found = meaning_of(meaning.name.trim_end_matches('*')).map(|it| it.name);
            assert_eq!(found, Some(meaning.name), "entry {index} is hidden by one before it");
        }
    }
}
