//! The C header says what the Rust source says: the same layout of every struct, the same constants, and it is what
//! cbindgen makes of the source now.
#![cfg(all(unix, target_pointer_width = "64"))]

#[path = "c_header/compile.rs"]
mod compile;
#[path = "c_header/generate.rs"]
mod generate;

use compile::LANGUAGES;
use paceline_plugin_api::abi::{self, arena_class, code, device_kind, kind, level, weight_use};
use paceline_plugin_api::{backend, descriptor, graph};
use std::fmt::Write;

const PROLOGUE: &str = "#include \"paceline_plugin.h\"\n#include <stdio.h>\nint main(void) {\n";
const EPILOGUE: &str = "    return 0;\n}\n";

fn read(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A program that prints the layout of every struct as the kept list has it.
fn layout_program(kept: &str) -> String {
    let mut program = PROLOGUE.to_owned();
    let mut current = "";
    for line in kept.lines() {
        let field = line.trim_start();
        let statement = if field.starts_with("(size)") {
            format!("printf(\"  (size) %zu\\n\", sizeof(Paceline{current}))")
        } else if field == line {
            current = line;
            format!("printf(\"{line}\\n\")")
        } else {
            let name = field.split_whitespace().next().expect("a field has a name");
            // The one field whose name is a keyword.
            let in_c = if name == "float" { "float_" } else { name };
            format!("printf(\"  %-22s offset %3zu\\n\", \"{name}\", offsetof(Paceline{current}, {in_c}))")
        };
        writeln!(program, "    {statement};").expect("a string takes text");
    }
    program + EPILOGUE
}

#[test]
fn c_and_cpp_see_the_layout_that_rust_has() {
    let kept = read("tests/abi_layout.txt");
    for language in LANGUAGES {
        let printed = language.run("layout", &layout_program(&kept));
        assert_eq!(printed, kept, "{language:?}");
    }
}

#[test]
fn every_struct_of_the_list_and_no_other_is_in_the_header() {
    let header = read("include/paceline_plugin.h");
    let mut in_header: Vec<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("typedef struct Paceline")?.strip_suffix(" {"))
        .collect();
    let kept = read("tests/abi_layout.txt");
    let mut in_list: Vec<&str> = kept.lines().filter(|line| !line.starts_with(' ')).collect();
    in_header.sort_unstable();
    in_list.sort_unstable();
    assert_eq!(in_header, in_list);
    assert!(!header.contains("[`"), "a reference of the sources is left in a comment");
}

/// Every numeric constant of the header.
fn constants() -> Vec<(&'static str, i64)> {
    vec![
        ("PACELINE_ABI_MAJOR", abi::ABI_MAJOR.into()),
        ("PACELINE_ABI_MINOR", abi::ABI_MINOR.into()),
        ("PACELINE_ABI_OLDEST_MINOR", abi::ABI_OLDEST_MINOR.into()),
        ("PACELINE_CODE_OK", code::OK.into()),
        ("PACELINE_CODE_INVALID", code::INVALID.into()),
        ("PACELINE_CODE_UNSUPPORTED", code::UNSUPPORTED.into()),
        ("PACELINE_CODE_OUT_OF_MEMORY", code::OUT_OF_MEMORY.into()),
        ("PACELINE_CODE_DEVICE_LOST", code::DEVICE_LOST.into()),
        ("PACELINE_CODE_TIMEOUT", code::TIMEOUT.into()),
        ("PACELINE_CODE_PANIC", code::PANIC.into()),
        ("PACELINE_CODE_POISONED", code::POISONED.into()),
        ("PACELINE_CODE_INTERNAL", code::INTERNAL.into()),
        ("PACELINE_KIND_BACKEND", kind::BACKEND.into()),
        ("PACELINE_KIND_STRATEGY", kind::STRATEGY.into()),
        ("PACELINE_LEVEL_ERROR", level::ERROR.into()),
        ("PACELINE_LEVEL_WARN", level::WARN.into()),
        ("PACELINE_LEVEL_INFO", level::INFO.into()),
        ("PACELINE_LEVEL_DEBUG", level::DEBUG.into()),
        ("PACELINE_LEVEL_TRACE", level::TRACE.into()),
        ("PACELINE_ARENA_CLASS_WEIGHTS", arena_class::WEIGHTS.into()),
        ("PACELINE_ARENA_CLASS_KV", arena_class::KV.into()),
        ("PACELINE_ARENA_CLASS_STATE", arena_class::STATE.into()),
        ("PACELINE_ARENA_CLASS_WORKSPACE", arena_class::WORKSPACE.into()),
        ("PACELINE_ARENA_CLASS_IO", arena_class::IO.into()),
        ("PACELINE_DEVICE_KIND_CPU", device_kind::CPU.into()),
        ("PACELINE_DEVICE_KIND_DISCRETE", device_kind::DISCRETE.into()),
        ("PACELINE_DEVICE_KIND_INTEGRATED", device_kind::INTEGRATED.into()),
        ("PACELINE_DEVICE_KIND_SOFTWARE", device_kind::SOFTWARE.into()),
        ("PACELINE_WEIGHT_USE_GATHER", weight_use::GATHER.into()),
        ("PACELINE_WEIGHT_USE_PRODUCT", weight_use::PRODUCT.into()),
        ("PACELINE_WEIGHT_USE_ELEMENTS", weight_use::ELEMENTS.into()),
        ("PACELINE_PEER_ROUTE_NONE", abi::peer_route::NONE.into()),
        ("PACELINE_PEER_ROUTE_DIRECT", abi::peer_route::DIRECT.into()),
        ("PACELINE_PEER_ROUTE_STAGED", abi::peer_route::STAGED.into()),
        ("PACELINE_KV_BLOCK", graph::ops::KV_BLOCK.into()),
        ("PACELINE_UNLIMITED_ROWS", backend::UNLIMITED_ROWS.into()),
        ("PACELINE_TAP_HIDDEN", abi::TAP_HIDDEN.into()),
        ("PACELINE_SOURCE_TARGET", abi::source::TARGET.into()),
        ("PACELINE_SOURCE_DRAFT", abi::source::DRAFT.into()),
        ("PACELINE_DRAFT_KIND_POINT", abi::draft_kind::POINT.into()),
        ("PACELINE_DRAFT_KIND_DISTRIBUTION", abi::draft_kind::DISTRIBUTION.into()),
        ("PACELINE_DRAFT_COST_FREE", abi::draft_cost::FREE.into()),
        ("PACELINE_DRAFT_COST_DEVICE", abi::draft_cost::DEVICE.into()),
        ("PACELINE_VALUE_WEIGHT", abi::VALUE_WEIGHT.into()),
        ("PACELINE_VALUE_STATE", abi::VALUE_STATE.into()),
        ("PACELINE_VALUE_PARAMETER", abi::VALUE_PARAMETER.into()),
        ("PACELINE_VALUE_NODE", abi::VALUE_NODE.into()),
        ("PACELINE_STATE_PER_POSITION", abi::STATE_PER_POSITION.into()),
        ("PACELINE_STATE_PER_SLOT", abi::STATE_PER_SLOT.into()),
        ("PACELINE_STATE_RING", abi::STATE_RING.into()),
        ("PACELINE_STATE_SCRATCH", abi::STATE_SCRATCH.into()),
        ("PACELINE_STATE_TABLE", abi::STATE_TABLE.into()),
        ("PACELINE_ATTRIBUTE_INTEGER", abi::ATTRIBUTE_INTEGER.into()),
        ("PACELINE_ATTRIBUTE_FLOAT", abi::ATTRIBUTE_FLOAT.into()),
        ("PACELINE_ATTRIBUTE_TEXT", abi::ATTRIBUTE_TEXT.into()),
        ("PACELINE_ATTRIBUTE_INTEGERS", abi::ATTRIBUTE_INTEGERS.into()),
        ("PACELINE_TYPE_F32", abi::TYPE_F32.into()),
        ("PACELINE_TYPE_F16", abi::TYPE_F16.into()),
        ("PACELINE_TYPE_Q4_0", abi::TYPE_Q4_0.into()),
        ("PACELINE_TYPE_Q4_1", abi::TYPE_Q4_1.into()),
        ("PACELINE_TYPE_Q5_0", abi::TYPE_Q5_0.into()),
        ("PACELINE_TYPE_Q5_1", abi::TYPE_Q5_1.into()),
        ("PACELINE_TYPE_Q8_0", abi::TYPE_Q8_0.into()),
        ("PACELINE_TYPE_Q4_K", abi::TYPE_Q4_K.into()),
        ("PACELINE_TYPE_Q5_K", abi::TYPE_Q5_K.into()),
        ("PACELINE_TYPE_Q6_K", abi::TYPE_Q6_K.into()),
        ("PACELINE_TYPE_IQ4_NL", abi::TYPE_IQ4_NL.into()),
        ("PACELINE_TYPE_I32", abi::TYPE_I32.into()),
        ("PACELINE_TYPE_I64", abi::TYPE_I64.into()),
        ("PACELINE_TYPE_BF16", abi::TYPE_BF16.into()),
        ("PACELINE_TYPE_MXFP4", abi::TYPE_MXFP4.into()),
        ("PACELINE_TYPE_FIRST_DECLARED", abi::TYPE_FIRST_DECLARED.into()),
    ]
}

#[test]
fn constants_have_the_values_that_rust_has() {
    let texts = [
        ("PACELINE_ENTRY_SYMBOL", abi::ENTRY_SYMBOL),
        ("PACELINE_BACKEND_INTERFACE", abi::BACKEND_INTERFACE),
        ("PACELINE_GRAPH_INTERFACE", abi::GRAPH_INTERFACE),
        ("PACELINE_WEIGHT_TYPES_INTERFACE", abi::WEIGHT_TYPES_INTERFACE),
        ("PACELINE_PEER_COPY_INTERFACE", abi::PEER_COPY_INTERFACE),
        ("PACELINE_GRAPH_CAPTURE_INTERFACE", abi::GRAPH_CAPTURE_INTERFACE),
        ("PACELINE_DRAFTER_INTERFACE", abi::DRAFTER_INTERFACE),
        ("PACELINE_ROLLBACK_INTERFACE", abi::ROLLBACK_INTERFACE),
        ("PACELINE_DESCRIPTOR_MAGIC", std::str::from_utf8(descriptor::MAGIC).expect("ASCII")),
        ("PACELINE_DESCRIPTOR_SECTION", ".paceline.plugin"),
    ];
    let (mut program, mut expected) = (PROLOGUE.to_owned(), String::new());
    for (name, value) in constants() {
        writeln!(program, "    printf(\"{name} %lld\\n\", (long long){name});").expect("text");
        writeln!(expected, "{name} {value}").expect("text");
    }
    for (name, value) in texts {
        writeln!(program, "    printf(\"{name} %s\\n\", {name});").expect("text");
        writeln!(expected, "{name} {value}").expect("text");
    }
    writeln!(program, "    printf(\"%u\\n\", PACELINE_ABI_VERSION(3, 7));").expect("text");
    writeln!(expected, "{}", abi::version(3, 7)).expect("text");
    for language in LANGUAGES {
        assert_eq!(language.run("constants", &(program.clone() + EPILOGUE)), expected, "{language:?}");
    }
    let others = ["PACELINE_PLUGIN_H", "PACELINE_EXPORT", "PACELINE_ABI_VERSION", "PACELINE_COVERS"];
    for line in read("include/paceline_plugin.h").lines() {
        let Some(name) = line.strip_prefix("#define ") else { continue };
        let name = name.split([' ', '(']).next().unwrap_or_default();
        let is_listed = constants().iter().any(|(known, _)| *known == name)
            || texts.iter().any(|(known, _)| *known == name)
            || others.contains(&name);
        assert!(is_listed, "`{name}` is in the header and not in this test");
    }
}

#[test]
fn a_field_is_covered_as_in_rust() {
    let program = PROLOGUE.to_owned()
        + "    PacelinePluginTable table = {0};
    table.size = offsetof(PacelinePluginTable, shutdown);
    printf(\"%d\", PACELINE_COVERS(&table, PacelinePluginTable, get_interface));
    printf(\"%d\", PACELINE_COVERS(&table, PacelinePluginTable, shutdown));
    table.size = sizeof table;
    printf(\"%d\\n\", PACELINE_COVERS(&table, PacelinePluginTable, shutdown));\n"
        + EPILOGUE;
    // In C++ another form of zeros is free of warnings.
    let in_cpp = program.replace("{0}", "{}");
    for (language, program) in LANGUAGES.into_iter().zip([program, in_cpp]) {
        assert_eq!(language.run("covers", &program), "101\n", "{language:?}");
    }
}

#[test]
fn the_header_is_what_the_source_gives() {
    let is_accepting = std::env::var_os("PACELINE_ACCEPT_HEADER").is_some();
    let made = match generate::header() {
        Ok(made) => made,
        Err(reason) if is_accepting => panic!("{reason}"),
        Err(reason) => {
            eprintln!("skipped: {reason}; to check it, `cargo install cbindgen --version ^0.29`");
            return;
        }
    };
    if is_accepting {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/paceline_plugin.h");
        std::fs::write(path, &made).expect("the header can be written");
    }
    assert!(
        read("include/paceline_plugin.h") == made,
        "include/paceline_plugin.h is not what the source gives: run this test with PACELINE_ACCEPT_HEADER=1"
    );
}
