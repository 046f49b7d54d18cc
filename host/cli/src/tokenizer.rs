//! The tokenizer of a model, from the metadata of its file.

use paceline_gguf::{Gguf, Strings};
use paceline_text::{EncodeOptions, Tokenizer, TokenizerSource};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;

/// Opens a model and builds its tokenizer, which takes a while for a large vocabulary.
pub fn open(model: &ModelSource, app: &App) -> Result<Tokenizer, Failure> {
    let _working = app.printer.working(format_args!("reading the tokenizer of {model}"));
    build(&model.open()?, model)
}

/// Builds the tokenizer of a model that is open.
pub fn build(gguf: &Gguf, model: &ModelSource) -> Result<Tokenizer, Failure> {
    Tokenizer::new(&source(gguf)?)
        .map_err(|error| Failure::new(Exit::Model, format!("{model}: its tokenizer cannot be used: {error}")))
}

/// The tokens of a text; `special` takes control tokens that are written out in it as those tokens.
pub fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>, Failure> {
    let options = EncodeOptions { parse_special: special, ..EncodeOptions::default() };
    tokenizer
        .encode(text, options)
        .map_err(|error| Failure::new(Exit::Failed, format!("the text cannot be encoded: {error}")))
}

/// Copies what makes a tokenizer out of a file.
pub fn source(gguf: &Gguf) -> paceline_gguf::Result<TokenizerSource> {
    let text = |key: &str| Ok::<_, paceline_gguf::Error>(gguf.get_str(key)?.map(str::to_owned));
    let list = |key: &str| {
        let strings: Option<Strings<'_>> = gguf.array_str(key)?;
        Ok::<_, paceline_gguf::Error>(strings.into_iter().flatten().map(str::to_owned).collect())
    };
    Ok(TokenizerSource {
        model: text("tokenizer.ggml.model")?,
        pre: text("tokenizer.ggml.pre")?,
        tokens: list("tokenizer.ggml.tokens")?,
        token_types: gguf.array_i32("tokenizer.ggml.token_type")?.into_iter().flatten().collect(),
        scores: gguf.array_f32("tokenizer.ggml.scores")?.into_iter().flatten().collect(),
        merges: list("tokenizer.ggml.merges")?,
        bos: gguf.get_u32("tokenizer.ggml.bos_token_id")?,
        eos: gguf.get_u32("tokenizer.ggml.eos_token_id")?,
        eot: gguf.get_u32("tokenizer.ggml.eot_token_id")?,
        eom: gguf.get_u32("tokenizer.ggml.eom_token_id")?,
        unknown: gguf.get_u32("tokenizer.ggml.unknown_token_id")?,
        padding: gguf.get_u32("tokenizer.ggml.padding_token_id")?,
        add_bos: gguf.get_bool("tokenizer.ggml.add_bos_token")?,
        add_space_prefix: gguf.get_bool("tokenizer.ggml.add_space_prefix")?,
        remove_extra_whitespaces: gguf.get_bool("tokenizer.ggml.remove_extra_whitespaces")?,
    })
}
