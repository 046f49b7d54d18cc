"""Writes spm.json: small SentencePiece vocabularies and what SentencePiece makes of some texts.

    pip install sentencepiece==0.2.3
    python make_spm.py > spm.json

The models are trained on the sentences below, once with and once without byte fallback, once with
spaces tidied up, and once with half of the learned pieces marked as unused.
"""

import io
import json

import sentencepiece

SENTENCES = [
    "The boat left the harbour before the rain came over the hills.",
    "She counted the bottles, the boxes and the other bottles again.",
    "There were three letters in the box; none of them were for her.",
    "fn main() {\n    let total = values.iter().sum();\n    return total;\n}",
    "for value in values:\n    total += value\n    print(total)",
    "Über den Dächern hören wir das Läuten der Glocken am Morgen.",
    "En été, les élèves préfèrent être dehors jusqu'à la tombée de la nuit.",
    "1 2 3 10 12 123 1234 3.14 2,718 0x1F",
    "aaaa aaaaaaaa        aaaa    aa",
    "<a href='x'>text</a> {\"key\": [1, 2, 3]}",
]

TEXTS = [
    "",
    " ",
    "  ",
    "The rain came over the harbour.",
    " The rain",
    "   three  spaces   inside   ",
    "therethethere and the other bottles",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaa aaaaa        a",
    "fn main() {\n    let x = total;\n}\n",
    "tab\tand\r\nline",
    "Über élèves 日本語 😊 Здравствуйте",
    "日本",
    "x日本y日z",
    "\u2029\u00a0\u3000e\u0301",
    "<think>plan</think> done",
    "a<think>b <think> c<tool_call>d",
    "<tool_call> <think><think>",
    "1234567890 3.14",
    "<s> </s> <|im_end|> <unk> <0x41> <0x0A>",
    "\x00\x01\x7f",
    "word " * 40,
]

KINDS = {"NORMAL": 1, "UNKNOWN": 2, "CONTROL": 3, "USER_DEFINED": 4, "UNUSED": 5, "BYTE": 6}


def train(byte_fallback, remove_extra_whitespaces, vocab_size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 5),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=remove_extra_whitespaces,
        user_defined_symbols=["<think>", "<tool_call>"],
        control_symbols=["<|im_start|>", "<|im_end|>"],
        allow_whitespace_only_pieces=True,
        split_by_whitespace=not byte_fallback,
        minloglevel=2,
    )
    return model.getvalue()


def loaded(serialized):
    return sentencepiece.SentencePieceProcessor(model_proto=serialized)


def with_unused(serialized, is_unused):
    """The model with another type for some pieces; the last value of a field counts."""
    result, place = bytearray(), 0
    token = 0

    def number(place):
        value, shift = 0, 0
        while True:
            byte = serialized[place]
            value |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                return value, place

    def encoded(value):
        out = bytearray()
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        return out + bytes([value])

    while place < len(serialized):
        field, place = number(place)
        assert field & 7 == 2, "all fields of the outer message have a length"
        length, place = number(place)
        content, place = serialized[place:place + length], place + length
        if field >> 3 == 1:
            if is_unused(token):
                content += bytes([3 << 3, KINDS["UNUSED"]])
            token += 1
        result += encoded(field) + encoded(len(content)) + content
    return bytes(result)


def kind(model, token):
    if model.is_unknown(token):
        return KINDS["UNKNOWN"]
    if model.is_control(token):
        return KINDS["CONTROL"]
    if model.is_unused(token):
        return KINDS["UNUSED"]
    if model.is_byte(token):
        return KINDS["BYTE"]
    if model.id_to_piece(token) in ("<think>", "<tool_call>"):
        return KINDS["USER_DEFINED"]
    return KINDS["NORMAL"]


def described(name, model, remove_extra_whitespaces):
    tokens = range(model.get_piece_size())
    return {
        "name": name,
        "remove_extra_whitespaces": remove_extra_whitespaces,
        "pieces": [model.id_to_piece(token) for token in tokens],
        "scores": [model.get_score(token) for token in tokens],
        "types": [kind(model, token) for token in tokens],
        "texts": [{"text": text, "ids": model.encode(text), "decoded": model.decode(model.encode(text))} for text in TEXTS],
    }


def main():
    fallback = train(True, False, 520)
    learned = loaded(fallback)
    is_unused = lambda token: token > 262 and token % 2 == 0 and len(learned.id_to_piece(token)) > 1
    print(json.dumps([
        described("byte fallback", learned, False),
        described("no byte fallback", loaded(train(False, False, 260)), False),
        described("tidy spaces", loaded(train(True, True, 520)), True),
        described("unused pieces", loaded(with_unused(fallback, is_unused)), False),
    ], ensure_ascii=False, separators=(",", ":")).replace('{"name"', '\n{"name"'))


main()
