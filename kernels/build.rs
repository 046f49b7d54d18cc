//! With the feature `host`: compiles the kernels for the CPU, once for each wave width. A plain build does nothing.

fn main() {
    #[cfg(feature = "host")]
    host();
}

#[cfg(feature = "host")]
fn host() {
    for path in ["prelude/host.h", "include/params.h", "host/kernels.cpp"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for entry in std::fs::read_dir(".").expect("the package has a folder").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "kn") {
            println!("cargo::rerun-if-changed={}", entry.path().display());
        }
    }
    for wave in ["8", "16", "32", "64"] {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .file("host/kernels.cpp")
            .define("KN_WAVE", wave)
            .opt_level(2)
            // No fused multiply-adds but those that are written, and no jumps checked for going down one stack.
            .flag("-ffp-contract=off")
            .flag("-U_FORTIFY_SOURCE")
            // In a shared library, what belongs to a thread is found quickly.
            .flag_if_supported("-mtls-dialect=gnu2")
            .flag_if_supported("-Wno-unknown-pragmas")
            .flag_if_supported("-Wno-unused-function")
            .flag_if_supported("-Wno-clobbered")
            .compile(&format!("paceline_kernels_host_{wave}"));
    }
}
