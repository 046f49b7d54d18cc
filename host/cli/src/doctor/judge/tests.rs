//! Findings on machines that are made up.

use super::*;
use crate::doctor::Memory;
use paceline_registry::KnownBackend;

const GIB: u64 = 1 << 30;

/// A machine on which all is well.
fn healthy() -> Facts {
    Facts {
        version: "0.1.0".to_owned(),
        abi: "1.0".to_owned(),
        system: "linux x86_64, 6.8.0".to_owned(),
        processor: Some("Made Up 9000".to_owned()),
        features: ["avx2", "f16c", "fma"].map(str::to_owned).to_vec(),
        cpu_backend: Some("x86_64 avx2".to_owned()),
        threads: [Some(16), Some(16)],
        memory: Memory {
            total: Some(64 * GIB),
            available: Some(60 * GIB),
            limit: None,
            huge_pages: Some("madvise".to_owned()),
        },
        variables: vec![
            ("CUDA_VISIBLE_DEVICES".to_owned(), "0,2".to_owned()),
            ("OMP_NUM_THREADS".to_owned(), "4".to_owned()),
        ],
        drivers: vec![
            Driver {
                known: KnownBackend::find("cuda").unwrap(),
                library: "libcuda.so.1".to_owned(),
                device: Some("/dev/nvidiactl".to_owned()),
                found: Ok("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54".to_owned()),
            },
            Driver {
                known: KnownBackend::find("sycl").unwrap(),
                library: "libze_loader.so.1".to_owned(),
                device: None,
                found: Err("cannot be loaded".to_owned()),
            },
        ],
        folders: vec![
            Folder { path: "/home/me/plugins".to_owned(), state: FolderState::Fine(Some(0o700)) },
            Folder { path: "/usr/lib/paceline/plugins".to_owned(), state: FolderState::Missing },
        ],
        cache: Some(Folder { path: "/home/me/.cache/paceline".to_owned(), state: FolderState::Fine(None) }),
        lock_fault: None,
        plugins: vec![
            PluginFact {
                name: "echo 0.1.0".to_owned(),
                origin: "/home/me/plugins/libecho@0.1.0.so".to_owned(),
                state: "usable".to_owned(),
                hash: Some("as it was installed"),
                fault: None,
            },
            PluginFact {
                name: "cpu 0.1.0".to_owned(),
                origin: "built in".to_owned(),
                state: "usable".to_owned(),
                hash: None,
                fault: None,
            },
        ],
    }
}

fn shown(findings: &[Finding]) -> String {
    let line = |it: &Finding| {
        let mut line = format!("{} | {} | {}", it.section, it.name, it.value);
        if let (Some(fault), Some(remedy)) = (&it.fault, &it.remedy) {
            line += &format!("\n    problem: {fault}\n    to do: {remedy}");
        }
        line + "\n"
    };
    findings.iter().map(line).collect()
}

#[test]
fn a_healthy_machine() {
    let findings = judge(&healthy());
    assert!(findings.iter().all(|finding| finding.level == Level::Fine));
    insta::assert_snapshot!(shown(&findings), @r"
    program | version | 0.1.0
    program | plugin ABI | 1.0
    machine | system | linux x86_64, 6.8.0
    machine | processor | Made Up 9000
    machine | features | avx2 f16c fma
    machine | CPU backend | x86_64 avx2
    machine | threads | 16
    machine | memory | 64.0 GiB, of which 60.0 GiB are available
    machine | huge pages | madvise
    variables | CUDA_VISIBLE_DEVICES | 0,2 (hides all other NVIDIA devices; the driver obeys it: `paceline devices` lists what is left)
    variables | OMP_NUM_THREADS | 4 (how many threads OpenMP starts; no effect here: `--threads N`)
    drivers | libcuda.so.1 | /usr/lib/x86_64-linux-gnu/libcuda.so.550.54
    drivers | libze_loader.so.1 | not there, nor libOpenCL.so.1
    plugin folders | /home/me/plugins | usable, mode 0700
    plugin folders | /usr/lib/paceline/plugins | not there
    cache | /home/me/.cache/paceline | usable
    plugins | echo 0.1.0 | usable; /home/me/plugins/libecho@0.1.0.so; as it was installed
    plugins | cpu 0.1.0 | usable; built in
    ");
}

#[test]
fn a_machine_with_everything_wrong() {
    let mut facts = healthy();
    facts.processor = None;
    facts.features.clear();
    facts.cpu_backend = None;
    facts.threads = [Some(2), Some(16)];
    facts.memory = Memory { limit: Some(GIB), huge_pages: Some("never".to_owned()), ..Memory::default() };
    facts.variables = [
        ("CUDA_VISIBLE_DEVICES", ""),
        ("GGML_CUDA_FORCE_MMQ", "1"),
        ("HSA_OVERRIDE_GFX_VERSION", "9.0.6"),
        ("PACELINE_PLUGIN_DIRS", "/good:plugins"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    facts.drivers[0].found = Err("cannot be loaded: libcuda.so.1: no such file".to_owned());
    facts.folders[0].state = FolderState::Faulty("others can write it".to_owned(), "chmod o-w it".to_owned());
    facts.cache = None;
    facts.lock_fault = Some(["line 3: a fault".to_owned(), "put it right".to_owned()]);
    facts.plugins[0].state = "refused: has another SHA-256".to_owned();
    facts.plugins[0].fault = Some(None);
    insta::assert_snapshot!(shown(&judge(&facts)), @r"
    program | version | 0.1.0
    program | plugin ABI | 1.0
    machine | system | linux x86_64, 6.8.0
    machine | features | none that is known
    machine | CPU backend | this program was built without it
    machine | threads | 2 of 16: the process is bound to some, or has a quota
    machine | memory | unknown, of which unknown are available
    machine | memory limit | 1.0 GiB for this control group
    machine | huge pages | never
        problem: weights are read through small pages, which costs speed
        to do: as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
    variables | CUDA_VISIBLE_DEVICES | empty (hides all other NVIDIA devices; the driver obeys it: `paceline devices` lists what is left)
        problem: it hides every device
        to do: unset CUDA_VISIBLE_DEVICES if devices shall be used
    variables | GGML_CUDA_FORCE_MMQ | 1 (of programs on ggml, such as llama.cpp; no effect here: `--set PLUGIN.KEY=VALUE`)
    variables | HSA_OVERRIDE_GFX_VERSION | 9.0.6 (makes ROCm take a device for another one; kernels for that one may fail: unset it unless you need it)
    variables | PACELINE_PLUGIN_DIRS | /good:plugins (further folders with plugins; see `paceline plugins paths`)
        problem: `plugins` is no absolute path and is left out
        to do: give absolute paths with colons between
    drivers | libcuda.so.1 | not usable
        problem: the system shows /dev/nvidiactl, but libcuda.so.1 cannot be loaded: libcuda.so.1: no such file
        to do: install the driver of NVIDIA, or add its folder to LD_LIBRARY_PATH
    drivers | libze_loader.so.1 | not there, nor libOpenCL.so.1
    plugin folders | /home/me/plugins | not usable
        problem: others can write it
        to do: chmod o-w it
    plugin folders | /usr/lib/paceline/plugins | not there
    plugin folders | plugins.lock | not usable
        problem: line 3: a fault
        to do: put it right
    cache | folder | none
        problem: every plugin is tried anew by every command
        to do: set `HOME` or `XDG_CACHE_HOME` to an absolute path
    plugins | echo 0.1.0 | /home/me/plugins/libecho@0.1.0.so
        problem: refused: has another SHA-256
        to do: remove the file, or see `paceline plugins verify FILE`
    plugins | cpu 0.1.0 | usable; built in
    ");
}

#[test]
fn what_is_not_known_is_no_problem() {
    let facts = Facts { cache: healthy().cache, ..Facts::default() };
    assert!(judge(&facts).iter().all(|finding| finding.level == Level::Fine));
}
