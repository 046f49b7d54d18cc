//! Which tokens end a reply.

use std::collections::BTreeSet;

use crate::source::{TokenType, TokenizerSource};
use crate::vocabulary::Vocabulary;

/// Tokens that end a text, turn or message in the published model families. Files name one of
/// them as the end token while the chat template ends turns with another.
const KNOWN_END_TEXTS: [&str; 17] = [
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|call|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
    "[EOS]",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
];

/// The ids that end a reply, ascending: those the file names, and those with a known text.
pub(crate) fn ids(source: &TokenizerSource, vocabulary: &Vocabulary) -> Vec<u32> {
    let named = [source.eos, source.eot, source.eom].into_iter().flatten();
    // An ordinary token that reads like an end mark is text, for example in a tutorial.
    let known = vocabulary
        .iter()
        .filter(|(_, token_type, text)| {
            matches!(token_type, TokenType::Control | TokenType::UserDefined)
                && KNOWN_END_TEXTS.contains(text)
        })
        .map(|(id, ..)| id);
    named.chain(known).collect::<BTreeSet<u32>>().into_iter().collect()
}
