//! Measures llama.cpp on the CPU. See `--help` for the arguments.
//!
//! Everything but threads and the context's length is llama.cpp's default: keys and values in F16, flash attention
//! chosen by itself, weights repacked where it has a layout for them, prompts in batches of 512, no MTP block.

use bench_measure::{Engine, Job, Repetition, Result, serve};
use llama_cpp_sys_2 as llama;
use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Instant;

struct LlamaCpp {
    model: *mut llama::llama_model,
    context: *mut llama::llama_context,
    vocabulary: usize,
}

impl LlamaCpp {
    fn load(job: &Job) -> Result<Self> {
        let path = job.model.to_str().ok_or("the model's path is not UTF-8")?;
        let path = CString::new(path)?;
        let threads = i32::try_from(job.threads)?;
        // SAFETY: the log function fits its type and needs no data; the parameters are llama.cpp's own with plain
        // numbers changed, and `path` is valid for the call.
        let model = unsafe {
            llama::llama_log_set(Some(ignore_log), std::ptr::null_mut());
            llama::llama_backend_init();
            let mut parameters = llama::llama_model_default_params();
            parameters.n_gpu_layers = 0;
            llama::llama_model_load_from_file(path.as_ptr(), parameters)
        };
        if model.is_null() {
            return Err(format!("llama.cpp cannot load {}", job.model.display()).into());
        }
        let mut loaded = Self { model, context: std::ptr::null_mut(), vocabulary: 0 };
        // SAFETY: the model is loaded; parameters as above.
        unsafe {
            let mut parameters = llama::llama_context_default_params();
            parameters.n_ctx = job.context();
            parameters.n_batch = parameters.n_batch.max(job.context());
            parameters.n_threads = threads;
            parameters.n_threads_batch = threads;
            loaded.context = llama::llama_init_from_model(model, parameters);
            loaded.vocabulary = llama::llama_vocab_n_tokens(llama::llama_model_get_vocab(model)) as usize;
        }
        if loaded.context.is_null() {
            return Err("llama.cpp cannot make a context".into());
        }
        Ok(loaded)
    }

    /// Runs tokens and finds the likeliest next one.
    fn decode(&mut self, tokens: &mut [llama::llama_token]) -> Result<llama::llama_token> {
        // SAFETY: the batch points to `tokens`, which outlives the call. Such a batch has logits for its last token,
        // one per token of the vocabulary, valid until the next call.
        let logits = unsafe {
            let batch = llama::llama_batch_get_one(tokens.as_mut_ptr(), i32::try_from(tokens.len())?);
            let status = llama::llama_decode(self.context, batch);
            if status != 0 {
                return Err(format!("llama_decode failed with {status}").into());
            }
            let logits = llama::llama_get_logits_ith(self.context, -1);
            if logits.is_null() {
                return Err("llama.cpp gave no logits".into());
            }
            std::slice::from_raw_parts(logits, self.vocabulary)
        };
        Ok(index_of_largest(logits) as llama::llama_token)
    }
}

impl Engine for LlamaCpp {
    fn version(&self) -> String {
        // SAFETY: these functions return constant texts.
        let [version, ggml, system] = unsafe {
            [llama::llama_version(), llama::ggml_version(), llama::llama_print_system_info()]
                .map(|text| CStr::from_ptr(text).to_string_lossy())
        };
        format!("llama.cpp {version}, ggml {ggml}; {}", system.trim_end_matches([' ', '|']))
    }

    fn repeat(&mut self, prompt: &[u32], generate: usize) -> Result<Repetition> {
        let mut prompt: Vec<_> = prompt.iter().map(|&id| id as llama::llama_token).collect();
        // SAFETY: the context is valid and has a memory.
        unsafe { llama::llama_memory_clear(llama::llama_get_memory(self.context), true) };
        let start = Instant::now();
        let mut token = self.decode(&mut prompt)?;
        let prompt_time = start.elapsed();

        let start = Instant::now();
        let mut ids = Vec::with_capacity(generate);
        ids.push(token.cast_unsigned());
        while ids.len() < generate {
            token = self.decode(&mut [token])?;
            ids.push(token.cast_unsigned());
        }
        Ok(Repetition { prompt_time, generation_time: start.elapsed(), ids })
    }

    fn logits(&mut self, ids: &[u32], receive: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        // SAFETY: the context is valid and has a memory.
        unsafe { llama::llama_memory_clear(llama::llama_get_memory(self.context), true) };
        let count = i32::try_from(ids.len())?;
        // SAFETY: the batch has room for `count` tokens of one sequence each, all of which are written before it is used;
        // it is freed once.
        unsafe {
            let mut batch = llama::llama_batch_init(count, 0, 1);
            batch.n_tokens = count;
            for (index, &id) in ids.iter().enumerate() {
                *batch.token.add(index) = id.cast_signed();
                *batch.pos.add(index) = index as i32;
                *batch.n_seq_id.add(index) = 1;
                **batch.seq_id.add(index) = 0;
                *batch.logits.add(index) = 1;
            }
            let status = llama::llama_decode(self.context, batch);
            llama::llama_batch_free(batch);
            if status != 0 {
                return Err(format!("llama_decode failed with {status}").into());
            }
        }
        for index in 0..count {
            // SAFETY: each token of the batch has logits, one per token of the vocabulary, valid until the next call.
            let logits = unsafe {
                let logits = llama::llama_get_logits_ith(self.context, index);
                if logits.is_null() {
                    return Err("llama.cpp gave no logits".into());
                }
                std::slice::from_raw_parts(logits, self.vocabulary)
            };
            receive(index as usize, logits)?;
        }
        Ok(())
    }
}

impl Drop for LlamaCpp {
    fn drop(&mut self) {
        // SAFETY: both are either null, which is allowed, or valid, and used no more.
        unsafe {
            llama::llama_free(self.context);
            llama::llama_model_free(self.model);
            llama::llama_backend_free();
        }
    }
}

/// The first index of the largest value. It goes by blocks and lanes, so that it costs little next to a decode.
fn index_of_largest(values: &[f32]) -> usize {
    const BLOCK: usize = 256;
    let mut best = (f32::NEG_INFINITY, 0);
    for (index, block) in values.chunks(BLOCK).enumerate() {
        let largest = largest_of(block);
        if largest > best.0 {
            best = (largest, index);
        }
    }
    let start = best.1 * BLOCK;
    start + values[start..].iter().position(|&value| value == best.0).unwrap_or(0)
}

fn largest_of(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    for part in values.chunks(lanes.len()) {
        for (lane, &value) in lanes.iter_mut().zip(part) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// llama.cpp reports errors by return values too.
unsafe extern "C" fn ignore_log(_: llama::ggml_log_level, _: *const c_char, _: *mut c_void) {}

fn main() -> Result<()> {
    serve("llama.cpp", LlamaCpp::load)
}

#[cfg(test)]
mod tests {
    use super::index_of_largest;

    #[test]
    fn first_largest_is_found() {
        let mut values = vec![-1.0; 1000];
        assert_eq!(index_of_largest(&values), 0);
        values[700] = 2.0;
        values[900] = 2.0;
        assert_eq!(index_of_largest(&values), 700);
    }
}
