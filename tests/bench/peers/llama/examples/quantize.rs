//! Writes a model in another type, as llama.cpp quantises it: `quantize IN.gguf TYPE OUT.gguf`. All weights but the small
//! ones get the type, so that a comparison of perplexities is one of that type.

use llama_cpp_sys_2 as llama;
use std::error::Error;
use std::ffi::{CString, c_char, c_void};
use std::process::ExitCode;

/// Names, and what llama.cpp calls files of the type. It has none of mere MXFP4, which is asked for tensor by tensor.
const TYPES: [(&str, llama::llama_ftype); 11] = [
    ("BF16", llama::LLAMA_FTYPE_MOSTLY_BF16),
    ("Q8_0", llama::LLAMA_FTYPE_MOSTLY_Q8_0),
    ("Q4_0", llama::LLAMA_FTYPE_MOSTLY_Q4_0),
    ("Q4_1", llama::LLAMA_FTYPE_MOSTLY_Q4_1),
    ("Q5_0", llama::LLAMA_FTYPE_MOSTLY_Q5_0),
    ("Q5_1", llama::LLAMA_FTYPE_MOSTLY_Q5_1),
    ("Q4_K", llama::LLAMA_FTYPE_MOSTLY_Q4_K_S),
    ("Q5_K", llama::LLAMA_FTYPE_MOSTLY_Q5_K_S),
    ("Q6_K", llama::LLAMA_FTYPE_MOSTLY_Q6_K),
    ("IQ4_NL", llama::LLAMA_FTYPE_MOSTLY_IQ4_NL),
    ("MXFP4", llama::LLAMA_FTYPE_MOSTLY_Q8_0),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names = TYPES.map(|(name, _)| name).join(", ");
    let [input, name, output] = arguments.as_slice() else {
        return Err(format!("usage: quantize IN.gguf TYPE OUT.gguf, of the types {names}").into());
    };
    let (_, file_type) = TYPES
        .iter()
        .find(|(known, _)| known == name)
        .ok_or_else(|| format!("unknown type `{name}`; there are {names}"))?;
    let (from, to) = (CString::new(input.as_str())?, CString::new(output.as_str())?);
    let end = llama::llama_model_tensor_override { pattern: std::ptr::null(), type_: 0 };
    let all = llama::llama_model_tensor_override { pattern: c".*".as_ptr(), type_: llama::GGML_TYPE_MXFP4 };
    let overrides = [if name == "MXFP4" { all } else { end }, end];
    // SAFETY: the log function fits its type; the parameters are llama.cpp's own with plain values changed, and the paths
    // and the ended list of overrides live for the call.
    let status = unsafe {
        llama::llama_log_set(Some(ignore_log), std::ptr::null_mut());
        llama::llama_backend_init();
        let mut parameters = llama::llama_model_quantize_default_params();
        parameters.ftype = *file_type;
        parameters.pure_ = name != "MXFP4";
        parameters.tt_overrides = overrides.as_ptr();
        llama::llama_model_quantize(from.as_ptr(), to.as_ptr(), &raw const parameters)
    };
    if status != 0 {
        return Err(format!("llama.cpp could not quantise {input} ({status})").into());
    }
    Ok(())
}

unsafe extern "C" fn ignore_log(_: llama::ggml_log_level, _: *const c_char, _: *mut c_void) {}
