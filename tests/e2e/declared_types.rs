//! Weight types and operations that only one plugin has: it runs them, the suite measures them, others refuse them by
//! name.

use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::Bench;
use paceline_conformance::reference_backend::ReferenceBackend;
use paceline_conformance::suite::{Outcome, Report, Suite, SuiteOptions};
use paceline_engine::{Engine, EngineError, EngineOptions, Model};
use paceline_gguf::{Gguf, TensorType, Value, Writer};
use paceline_plugin_api::abi::{self, HostTable};
use paceline_plugin_api::backend::NodePlan;
use paceline_plugin_api::client::{BackendClient, PluginClient, WeightTypesClient};
use paceline_plugin_api::graph::ops::Output;
use paceline_plugin_api::graph::{Builder, DType, Graph, Shape};
use paceline_plugin_api::weight_types::{ReferenceFormat, WeightType};
use paceline_plugin_api::{Error, PluginInfo, Result, backend_plugin};
use paceline_registry::{Descriptor, Registry};
use paceline_tests::engines::{builtin_cpu, engine_of, logits, options, plugin_library};
use paceline_tests::random_model::{DenseFamily, RandomDense};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The type that the plugin declares.
const TERNARY: DType = DType(200);

/// The plugin, what it declares, and what it says about that.
struct Ternary {
    backend: BackendClient,
    types: Vec<WeightType>,
    reader: WeightTypesClient,
}

fn ternary() -> Ternary {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| plugin_library("paceline-test-ternary-plugin"));
    let mut registry = Registry::new().unwrap();
    let plugin = registry.load_file(library).unwrap();
    let descriptor = Descriptor::parse(&plugin.client.descriptor()).unwrap();
    assert_eq!(descriptor.operations, ["acme.negate/1"]);
    let reader = plugin.client.weight_types().unwrap().expect("it offers the interface");
    Ternary { backend: registry.backend(Some("ternary")).unwrap(), types: descriptor.weight_types, reader }
}

fn suite_options(plugin: &Ternary) -> SuiteOptions {
    SuiteOptions {
        weight_types: plugin.types.clone(),
        weight_type_reader: Some(plugin.reader),
        groups: ["weight_types", "embed", "linear"].map(str::to_owned).to_vec(),
        required: vec!["*".to_owned()],
        ..SuiteOptions::default()
    }
}

#[test]
fn the_plugin_conforms() {
    let plugin = ternary();
    let groups = ["weight_types", "embed", "linear", "plan", "load", "launch"].map(str::to_owned).to_vec();
    let report = Suite::new(&plugin.backend, SuiteOptions { groups, ..suite_options(&plugin) }).run();
    assert_eq!(report.failed(), 0, "{report}");
    let of_type = report.entries().iter().filter(|entry| entry.case.starts_with("T1_58"));
    let passed = of_type.filter(|entry| matches!(entry.outcome, Outcome::Passed { .. })).count();
    assert!(passed > 60, "only {passed} cases about the type passed");
}

fn failures(report: &Report) -> String {
    report.failures().map(|entry| format!("{} {}: {:?}\n", entry.group, entry.case, entry.outcome)).collect()
}

/// A reader that takes every value for twice of what it is: as wrong as a kernel that forgets a factor.
struct Doubled;

impl ReferenceFormat for Doubled {
    fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        if dtype != TERNARY {
            return Err(Error::invalid("another type"));
        }
        ternary().reader.dequantize(dtype, bytes, out)?;
        out.iter_mut().for_each(|value| *value *= 2.0);
        Ok(())
    }
}

backend_plugin!(
    PluginInfo {
        id: "doubled",
        version: "1.0.0",
        kind: abi::kind::BACKEND,
        descriptor: "id = \"doubled\"\nkind = \"backend\"\nversion = \"1.0.0\"\nabi = { oldest = \"1.0\", built = \"1.0\" }\n",
    },
    ReferenceBackend,
    ReferenceBackend::new(),
    weight_types: Doubled
);

#[test]
fn the_suite_finds_kernels_that_compute_something_else() {
    static HOST: HostTable = HostTable::empty();
    // SAFETY: the entry is part of this program.
    let doubled = unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap();
    let plugin = ternary();
    let reader = doubled.weight_types().unwrap();
    let report =
        Suite::new(&plugin.backend, SuiteOptions { weight_type_reader: reader, ..suite_options(&plugin) })
            .run();
    let failures = failures(&report);
    assert!(failures.contains("linear T1_58 [17,256], up to 1 rows"), "{failures}");
    assert!(failures.contains("embed T1_58 [61,256], up to 1 rows"), "{failures}");
    assert!(
        failures.contains("T1_58 is written so that it can be read: Failed { what: \"required, but refused")
    );
    assert!(
        report.entries().iter().all(|it| it.case.starts_with("T1_58") || !failed(&it.outcome)),
        "{failures}"
    );
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}

#[test]
fn the_suite_finds_declarations_that_nothing_stands_behind() {
    let plugin = ternary();
    let only = |options: SuiteOptions| SuiteOptions { groups: vec!["weight_types".into()], ..options };
    let without = SuiteOptions { weight_type_reader: None, ..only(suite_options(&plugin)) };
    let text = failures(&Suite::new(&plugin.backend, without).run());
    assert!(text.contains("offers no interface paceline.weight_types/1"), "{text}");
    // The CPU backend does not take the type.
    let text = failures(&Suite::new(&builtin_cpu(), only(suite_options(&plugin))).run());
    assert!(text.contains("T1_58 is taken by an operation") && text.contains("refused"), "{text}");
    let shorter = vec![WeightType { bytes: 27, ..plugin.types[0].clone() }];
    let options = SuiteOptions { weight_types: shorter, ..only(suite_options(&plugin)) };
    let text = failures(&Suite::new(&plugin.backend, options).run());
    assert!(text.contains("T1_58 is read block by block"), "{text}");
    let impossible = vec![WeightType { elements: 0, ..plugin.types[0].clone() }];
    let options = SuiteOptions { weight_types: impossible, ..only(suite_options(&plugin)) };
    let text = failures(&Suite::new(&plugin.backend, options).run());
    assert!(text.contains("`elements` is 0"), "{text}");
}

/// A small model whose matrices are ternary, and the same model with the same values as f32.
fn models(plugin: &Ternary) -> [Vec<u8>; 2] {
    let original = Gguf::from_bytes(RandomDense::wide(DenseFamily::Llama).to_bytes()).unwrap();
    let mut writers = [(); 2].map(|()| Writer::new("llama"));
    for (key, value) in original.entries().filter(|(key, _)| *key != "general.architecture") {
        let value: Value = value.try_into().unwrap();
        for writer in &mut writers {
            writer.metadata(key, value.clone());
        }
    }
    let mut ternary = 0;
    for info in original.tensors() {
        let bytes = original.tensor_bytes(&info).unwrap();
        let [own, float] = &mut writers;
        if info.dims.len() < 2 {
            own.tensor(info.name, info.dims, TensorType::F32, bytes.to_vec());
            float.tensor(info.name, info.dims, TensorType::F32, bytes.to_vec());
            continue;
        }
        let mut values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
        let mut packed = vec![0; values.len() / 256 * 54];
        plugin.reader.quantize(TERNARY, &values, &mut packed).unwrap();
        plugin.reader.dequantize(TERNARY, &packed, &mut values).unwrap();
        assert!(values.contains(&0.0) && values.iter().any(|value| *value < 0.0));
        own.tensor(info.name, info.dims, TensorType::from_id(TERNARY.0), packed);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        float.tensor(info.name, info.dims, TensorType::F32, bytes);
        ternary += 1;
    }
    assert!(ternary > 20, "{ternary} matrices");
    writers.map(|writer| {
        let mut bytes = Vec::new();
        writer.write_to(&mut bytes).unwrap();
        bytes
    })
}

fn f32_cache() -> EngineOptions {
    EngineOptions { kv_types: [DType::F32; 2], context: Some(256), microbatch: 16, ..options(&[]) }
}

fn engine(bytes: Vec<u8>, backend: &BackendClient, types: &[WeightType]) -> Result<Engine, EngineError> {
    let model = Model::new(Arc::new(Gguf::from_bytes(bytes).unwrap()))?.with_weight_types(types);
    Engine::new(model, backend, f32_cache(), &mut |_, _| {})
}

#[test]
fn a_ternary_model_gives_the_logits_of_its_f32_copy() {
    let plugin = ternary();
    let [own, float] = models(&plugin);
    assert!(own.len() * 8 < float.len(), "{} and {} bytes", own.len(), float.len());
    let tokens = RandomDense::wide(DenseFamily::Llama).tokens(12, 3);
    let run = |mut engine: Engine| {
        let sequence = engine.new_sequence().unwrap();
        logits(&mut engine, sequence, &tokens, 5).concat()
    };
    let found = run(engine(own, &plugin.backend, &plugin.types).unwrap());
    // The copy runs on another backend, with kernels of its own.
    let expected = run(engine_of(float, &builtin_cpu(), f32_cache()));
    assert_eq!(found.len(), expected.len());
    let largest = found.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    let spread = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    println!("largest difference {largest:.1e} of logits up to {spread:.1}");
    assert!(largest < 1e-4 && spread > 0.1, "{largest} of {spread}");
}

#[test]
fn elsewhere_the_model_is_refused_by_tensor_and_type() {
    let plugin = ternary();
    let [own, _] = models(&plugin);
    let refused = |backend: &BackendClient, types: &[WeightType]| {
        engine(own.clone(), backend, types).map(drop).unwrap_err()
    };
    let cpu = builtin_cpu();
    let error = refused(&cpu, &[]);
    assert!(
        matches!(&error, EngineError::WeightType { id: 200, plugin, .. } if plugin == "cpu"),
        "{error:?}"
    );
    insta::assert_snapshot!(error, @"model in memory: tensor `token_embd.weight` has the weight type 200, which is not one of GGUF's and not declared by backend `cpu`");
    // Whoever has the declarations of another plugin is told by the backend.
    let error = refused(&cpu, &plugin.types);
    assert!(matches!(&error, EngineError::Backend { .. }), "{error:?}");
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    insta::assert_snapshot!(text, @"backend `cpu`: laying out the weights: weight `token_embd.weight` of type type 200: the CPU backend has no kernels for this type");
    // A declaration that the file cannot be of.
    let larger = [WeightType { bytes: 1 << 20, ..plugin.types[0].clone() }];
    insta::assert_snapshot!(refused(&plugin.backend, &larger), @"model in memory: tensor 'token_embd.weight' of type 200 needs 402653184 bytes in the layout that is declared for this type, and has room for 20736; use the plugin that the file was made for");
    let wider = [WeightType { elements: 1 << 16, ..plugin.types[0].clone() }];
    insta::assert_snapshot!(refused(&plugin.backend, &wider), @"model in memory: tensor 'token_embd.weight' of shape [256, 384] and type unknown(200): the first dimension is not a multiple of the block of 65536 elements");
}

/// -x for rows of four, by the vendor's operation.
fn negation() -> Graph {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[2, 4], None);
    let shape = Shape::new(&[2, 4]).unwrap();
    let output = Output { dtype: DType::F32, shape, live: None };
    let y = b.vendor_node("acme.negate", 1, &[x], Vec::new(), &[output]).unwrap();
    b.result("y", y[0]);
    b.finish()
}

#[test]
fn a_vendors_operation_runs_on_its_backend() {
    let graph = negation();
    let mut loaded = Bench::open(&ternary().backend, 0, &[]).and_then(|it| it.load(&graph, &[])).unwrap();
    let mut block = ParameterBlock::new(&graph);
    block.set_floats("x", 0, &[1.0, -2.0, 3.0, 0.5, 5.0, 6.0, -7.0, 8.0]);
    let results = loaded.run(block.bytes()).unwrap();
    let values: Vec<f32> = results.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
    assert_eq!(values, [-1.0, 2.0, -3.0, -0.5, -5.0, -6.0, 7.0, -8.0]);
}

#[test]
fn elsewhere_a_vendors_operation_is_refused_by_name() {
    static HOST: HostTable = HostTable::empty();
    // SAFETY: the entry is part of this program.
    let reference = unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap();
    for backend in [builtin_cpu(), reference] {
        let bench = Bench::open(&backend, 0, &[]).unwrap();
        let plan = bench.plan(&negation()).unwrap();
        let [NodePlan::Refused { reason }] = &plan.summary().nodes[..] else {
            panic!("`{}` takes it", backend.plugin());
        };
        assert!(reason.contains("acme.negate/1"), "`{}`: {reason}", backend.plugin());
    }
}
