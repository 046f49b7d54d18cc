//! Measures our engine with the CPU backend. See `--help` for the arguments.

// A crate that nothing refers to is dropped by the linker, and its plugin with it.
use paceline_backend_cpu as _;

use bench_measure::{Engine, Job, Repetition, Result, serve, source_revision};
use paceline_engine::{EngineOptions, GenerationOptions, Model, Rows, Sampler, SamplerOptions, Want};
use paceline_gguf::{Gguf, OpenOptions};
use paceline_registry::Registry;
use std::ops::ControlFlow;
use std::sync::Arc;

struct Ours {
    engine: paceline_engine::Engine,
    // Holds the plugin that the engine runs on.
    _registry: Registry,
    revision: String,
}

impl Ours {
    fn load(job: &Job) -> Result<Self> {
        let registry = Registry::new()?;
        registry.expect_builtins(&["cpu"])?;
        let backend = registry.backend(Some("cpu"))?;
        let gguf = Arc::new(Gguf::open(&job.model, &OpenOptions::default())?);
        let options = EngineOptions {
            settings: vec![("threads".into(), job.threads.to_string())],
            context: Some(job.context()),
            outputs: job.outputs(),
            ..EngineOptions::default()
        };
        let engine = paceline_engine::Engine::new(Model::new(gguf)?, &backend, options, &mut |_, _| {})?;
        Ok(Self { engine, _registry: registry, revision: source_revision() })
    }
}

impl Engine for Ours {
    fn version(&self) -> String {
        self.revision.clone()
    }

    fn repeat(&mut self, prompt: &[u32], generate: usize) -> Result<Repetition> {
        // Greedy by default.
        let vocabulary = self.engine.model().shape().vocabulary as usize;
        let mut sampler = Sampler::new(SamplerOptions::default(), vocabulary)?;
        let mut ids = Vec::with_capacity(generate);
        let sequence = self.engine.new_sequence()?;
        let report = self.engine.generate(
            sequence,
            prompt,
            &mut sampler,
            GenerationOptions { tokens: generate, end_tokens: &[] },
            &mut |_| {},
            &mut |id| {
                ids.push(id);
                ControlFlow::Continue(())
            },
        )?;
        self.engine.end_sequence(sequence);
        Ok(Repetition { prompt_time: report.prompt_time, generation_time: report.generation_time, ids })
    }

    fn logits(&mut self, ids: &[u32], receive: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        let sequence = self.engine.new_sequence()?;
        let mut done = 0;
        for tokens in ids.chunks(self.engine.most_outputs()) {
            let rows = Rows { sequence, tokens, outputs: tokens.len() };
            let outputs = self.engine.run(&[rows], Want::Logits)?;
            for index in 0..outputs.len() {
                receive(done + index, outputs.logits(index).ok_or("there are no logits")?)?;
            }
            done += tokens.len();
        }
        self.engine.end_sequence(sequence);
        Ok(())
    }
}

fn main() -> Result<()> {
    serve("ours", Ours::load)
}
