//! Images are made from the sources that are here.

use paceline_kernels::params::linear::is_bf16;
use paceline_kernels::sources;
use paceline_kernels_compile::{Target, folder, resources};

#[test]
fn images_are_fresh() {
    for target in Target::ALL {
        let path = folder().join(format!("images/{}.sources", target.name()));
        let known =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let fresh: Vec<String> = target
            .modules()
            .iter()
            .map(|module| format!("{} {}", module.name, module.hash(target).expect("sources can be read")))
            .collect();
        let known: Vec<&str> = known.lines().collect();
        assert_eq!(
            known,
            fresh,
            "images for {} are stale: run `paceline-kernels-compile {}`",
            target.name(),
            target.name()
        );
    }
}

/// Whoever compiles the kernels for AMD at run time compiles what the images are made from, in the same way.
#[test]
fn embedded_sources_are_those_of_the_images() {
    let embedded: Vec<_> = sources::hip_modules().map(|(name, text)| (name, text.to_owned())).collect();
    let modules = Target::Hip.modules();
    let own: Vec<_> = modules.iter().map(|it| (it.name, it.text().expect("sources can be read"))).collect();
    assert_eq!(embedded.len(), own.len());
    for (embedded, own) in embedded.iter().zip(&own) {
        assert!(embedded == own, "src/sources.rs has another text for `{}` than src/lib.rs here", own.0);
    }
    assert!(sources::HIP_FLAGS.iter().all(|flag| Target::Hip.flags().contains(flag)));
}

#[test]
fn the_table_of_registers_is_fresh() {
    let known =
        std::fs::read_to_string(folder().join("images/hip.resources.md")).expect("the table is there");
    let fresh = resources::hip_markdown().expect("images can be read");
    assert_eq!(known, fresh, "the table is stale: run `paceline-kernels-compile resources`");
}

/// Kernels of a target, from the table of its images.
fn entries(target: Target) -> Vec<String> {
    let path = folder().join(format!("images/{}.rs", target.name()));
    let table = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entry = |line: &str| Some(line.trim().strip_prefix("(\"")?.split('"').next()?.to_owned());
    let mut names: Vec<String> = table.lines().filter_map(entry).collect();
    names.sort();
    names
}

#[test]
fn all_targets_have_all_kernels() {
    let all = entries(Target::Cuda);
    assert!(
        all.len() > 100 && all.windows(2).all(|pair| pair[0] != pair[1]),
        "every kernel is in one module"
    );
    // Matrix units are NVIDIA's so far, and the kernels on them have others beside them, or are planned where they are.
    // Groups that wait for groups in front of them are NVIDIA's alone.
    let is_portable = |name: &String| {
        !name.starts_with("attention_parts_f16")
            && !name.starts_with("attention_rows_f16")
            && !name.ends_with("_led")
            && !is_bf16(name)
    };
    let portable: Vec<String> = all.into_iter().filter(is_portable).collect();
    for target in [Target::Hip, Target::Spirv] {
        assert_eq!(entries(target), portable, "{}", target.name());
    }
}
