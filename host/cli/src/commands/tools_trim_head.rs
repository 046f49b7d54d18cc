//! `tools trim-head`: a head for guessing that has only the rows of frequent tokens.

use std::fs;
use std::path::Path;

use paceline_gguf::{Gguf, Origin, TensorInfo, TensorType, Writer};
use paceline_text::{TokenType, Tokenizer};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::TrimHeadArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_source::ModelSource;
use crate::new_file::NewFile;
use crate::{input, text, tokenizer};

/// Most tokens that are kept for their frequency if no number is given.
const DEFAULT_MOST_KEPT: usize = 32_768;

/// What was made.
struct Trimmed<'a> {
    head: TensorInfo<'a>,
    vocabulary: usize,
    kept: usize,
    special: usize,
    corpus_tokens: u64,
    covered_tokens: u64,
    bytes_after: usize,
}

/// Runs the command.
pub fn run(args: &TrimHeadArgs, app: &mut App) -> Result<Exit, Failure> {
    let source = ModelSource::resolve(&args.model.model)?;
    let gguf = source.open()?;
    refuse_overwriting(&gguf, &args.out)?;
    // What cannot be written is said before the work begins.
    let mut file = NewFile::create(&args.out, args.force)?;
    let block = prediction_block(&gguf, &source)?;
    let names = ["draft_head.weight", "draft_head_ids"].map(|part| format!("blk.{block}.nextn.{part}"));
    if let Some(name) = names.iter().find(|name| gguf.tensor(name).is_some()) {
        return Err(Failure::new(
            Exit::Model,
            format!("{source} has a trimmed head already: tensor '{name}'"),
        )
        .hint("trim the model that it was made from"));
    }
    let tokenizer = {
        let _working = app.printer.working(format_args!("reading the tokenizer of {source}"));
        tokenizer::build(&gguf, &source)?
    };
    let head = head(&gguf, &source, block)?;
    let rows = rows(&head, &tokenizer, &source)?;
    let counts = {
        let _working = app.printer.working(format_args!("counting the tokens of {}", args.corpus.display()));
        count_tokens(&tokenizer, &args.corpus)?
    };

    let keep = args.keep.map_or(DEFAULT_MOST_KEPT.min(counts.len() / 4), |keep| keep as usize).max(1);
    let special = special_tokens(&tokenizer);
    let kept = kept_tokens(&counts, &special, keep);
    let bytes = copy_rows(gguf.tensor_bytes(&head)?, rows, &kept);
    let ids: Vec<u8> = kept.iter().flat_map(|id| id.to_le_bytes()).collect();
    let report = Trimmed {
        head,
        vocabulary: counts.len(),
        kept: kept.len(),
        special: special.iter().filter(|special| **special).count(),
        corpus_tokens: counts.iter().sum(),
        covered_tokens: kept.iter().filter_map(|id| counts.get(*id as usize)).sum(),
        bytes_after: bytes.len(),
    };

    let mut writer = Writer::copy_of(&gguf)?;
    writer.tensor(&names[0], &[head.dims[0], kept.len() as u64], head.tensor_type, bytes);
    writer.tensor(&names[1], &[kept.len() as u64], TensorType::I32, ids);
    {
        let _working = app.printer.working(format_args!("writing {}", args.out.display()));
        writer.write_to(&mut file).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write {}: {}", args.out.display(), error.fault()))
        })?;
        file.finish()?;
    }
    if args.output.json {
        app.printer.json(&report.as_json(&source, &args.out, &names))?;
    } else {
        report.print(&args.out, app)?;
    }
    Ok(Exit::Ok)
}

/// The model is read while the new one is written.
fn refuse_overwriting(gguf: &Gguf, out: &Path) -> Result<(), Failure> {
    let Ok(out_file) = fs::canonicalize(out) else { return Ok(()) };
    let is_model = |origin: &Origin| {
        origin.path().and_then(|path| fs::canonicalize(path).ok()).is_some_and(|path| path == out_file)
    };
    if gguf.origins().any(is_model) {
        return Err(Failure::new(Exit::Usage, format!("{} is the model itself", out.display()))
            .hint("give another path with `--out`"));
    }
    Ok(())
}

/// The index of the prediction block.
fn prediction_block(gguf: &Gguf, source: &ModelSource) -> Result<u32, Failure> {
    let key = |name: &str| Ok::<_, Failure>(format!("{}.{name}", gguf.architecture()?));
    let (blocks_key, predictions_key) = (key("block_count")?, key("nextn_predict_layers")?);
    let hint = "a prediction block (also called MTP or NextN) is part of some models of the family `qwen35`";
    match gguf.get_u32(&predictions_key)?.unwrap_or(0) {
        1 => {}
        0 => {
            let message = format!("{source} has no prediction block: `{predictions_key}` is 0 or not there");
            return Err(Failure::new(Exit::Model, message).hint(hint));
        }
        count => {
            let message = format!(
                "{source} has {count} prediction blocks (`{predictions_key}`); a head can be trimmed for one"
            );
            return Err(Failure::new(Exit::Model, message));
        }
    }
    let blocks = gguf.require_u32(&blocks_key)?;
    let block = blocks.checked_sub(1).ok_or_else(|| {
        Failure::new(Exit::Model, format!("{source}: `{blocks_key}` is 0, with a prediction block"))
    })?;
    let prefix = format!("blk.{block}.nextn.");
    if !gguf.tensors().any(|tensor| tensor.name.starts_with(&prefix)) {
        let message = format!("{source} lacks the tensors of its prediction block, `{prefix}*`");
        return Err(Failure::new(Exit::Model, message).hint("use a file that was converted with them"));
    }
    Ok(block)
}

/// The head that the prediction block uses: its own, or the model's, or the embedding.
fn head<'a>(gguf: &'a Gguf, source: &ModelSource, block: u32) -> Result<TensorInfo<'a>, Failure> {
    let own = format!("blk.{block}.nextn.shared_head_head.weight");
    let names = [own.as_str(), "output.weight", "token_embd.weight"];
    names.iter().find_map(|name| gguf.tensor(name)).ok_or_else(|| {
        Failure::new(Exit::Model, format!("{source} has no head: none of the tensors {}", names.join(", ")))
    })
}

/// How many rows the head has: at least one for each token.
fn rows(head: &TensorInfo<'_>, tokenizer: &Tokenizer, source: &ModelSource) -> Result<usize, Failure> {
    let tokens = tokenizer.vocab_size();
    match *head.dims {
        [_, rows] if rows >= tokens as u64 => Ok(rows as usize),
        _ => {
            let message = format!(
                "{source}: tensor '{}' of shape {:?} is no head for {tokens} tokens",
                head.name, head.dims
            );
            Err(Failure::new(Exit::Model, message).hint("look for its faults with `paceline models verify`"))
        }
    }
}

/// How often each token of the vocabulary comes in a text.
fn count_tokens(tokenizer: &Tokenizer, corpus: &Path) -> Result<Vec<u64>, Failure> {
    let ids = tokenizer::encode(tokenizer, &input::file_text(corpus)?, false)?;
    if ids.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("{} is empty", corpus.display()))
            .hint("give a text like those that the model will write"));
    }
    let mut counts = vec![0; tokenizer.vocab_size()];
    for id in ids {
        if let Some(count) = counts.get_mut(id as usize) {
            *count += 1;
        }
    }
    Ok(counts)
}

/// Which tokens are special: they may be rare in a corpus, and matter all the same.
fn special_tokens(tokenizer: &Tokenizer) -> Vec<bool> {
    let named = [tokenizer.bos(), tokenizer.eos(), tokenizer.padding()];
    (0..tokenizer.vocab_size() as u32)
        .map(|id| {
            let of_type = matches!(
                tokenizer.token_type(id),
                Some(TokenType::Control | TokenType::Unknown | TokenType::UserDefined)
            );
            of_type || named.contains(&Some(id)) || tokenizer.is_end_of_generation(id)
        })
        .collect()
}

/// The `keep` most frequent tokens, of equal ones those with the lower ids, and the special ones, in ascending order.
fn kept_tokens(counts: &[u64], special: &[bool], keep: usize) -> Vec<u32> {
    let mut by_frequency: Vec<usize> = (0..counts.len()).collect();
    by_frequency.sort_by_key(|&id| (std::cmp::Reverse(counts[id]), id));
    let mut is_kept = special.to_vec();
    by_frequency.into_iter().take(keep).for_each(|id| is_kept[id] = true);
    (0..).zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(id, _)| id).collect()
}

/// The bytes of some rows of a tensor.
fn copy_rows(tensor: &[u8], rows: usize, kept: &[u32]) -> Vec<u8> {
    let row_bytes = tensor.len() / rows;
    let mut bytes = Vec::with_capacity(kept.len() * row_bytes);
    kept.iter().for_each(|&id| bytes.extend(&tensor[id as usize * row_bytes..][..row_bytes]));
    bytes
}

impl Trimmed<'_> {
    fn coverage_percent(&self) -> f64 {
        self.covered_tokens as f64 * 100.0 / self.corpus_tokens as f64
    }

    fn print(&self, out: &Path, app: &mut App) -> Result<(), Failure> {
        let lines = [
            ("file", out.display().to_string()),
            (
                "rows kept",
                format!(
                    "{} of {}, with {}",
                    text::count(self.kept as u64),
                    text::count(self.vocabulary as u64),
                    text::counted(self.special as u64, "special token")
                ),
            ),
            (
                "coverage",
                format!(
                    "{:.2} % of {} of the corpus",
                    self.coverage_percent(),
                    text::counted(self.corpus_tokens, "token")
                ),
            ),
            (
                "head",
                format!(
                    "{} {}: {} before, {} after",
                    self.head.name,
                    self.head.tensor_type,
                    text::bytes(self.head.byte_len),
                    text::bytes(self.bytes_after as u64)
                ),
            ),
        ];
        lines.into_iter().try_for_each(|(label, value)| app.printer.line(format_args!("{label:<11}{value}")))
    }

    fn as_json(&self, source: &ModelSource, out: &Path, [weight, ids]: &[String; 2]) -> Value {
        json!({
            "model": source.to_string(),
            "out": out,
            "head": self.head.name,
            "type": self.head.tensor_type.to_string(),
            "tensors": { "weight": weight, "ids": ids },
            "vocabulary": self.vocabulary,
            "kept": self.kept,
            "special": self.special,
            "corpus_tokens": self.corpus_tokens,
            "covered_tokens": self.covered_tokens,
            "coverage_percent": self.coverage_percent(),
            "head_bytes_before": self.head.byte_len,
            "head_bytes_after": self.bytes_after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_tokens_and_special_ones_are_kept() {
        let counts = [0, 5, 9, 5, 0, 1];
        let special = [false, false, false, false, true, false];
        assert_eq!(kept_tokens(&counts, &special, 1), [2, 4]);
        assert_eq!(kept_tokens(&counts, &special, 2), [1, 2, 4]);
        assert_eq!(kept_tokens(&counts, &special, 3), [1, 2, 3, 4]);
        // Those that never come are taken in order.
        assert_eq!(kept_tokens(&counts, &special, 5), [0, 1, 2, 3, 4, 5]);
        assert_eq!(kept_tokens(&counts, &special, 99), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn rows_are_copied_as_they_are() {
        assert_eq!(copy_rows(&[0, 1, 2, 3, 4, 5], 3, &[0, 2]), [0, 1, 4, 5]);
    }
}
