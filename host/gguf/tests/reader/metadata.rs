//! Broken metadata tables.

use paceline_gguf::Gguf;

use crate::common::*;

#[test]
fn huge_lengths_are_refused() {
    for length in HUGE {
        let length_field = length.to_le_bytes();
        let key = [header(3, 0, 1), length_field.to_vec(), vec![0; 16]].concat();
        assert_refused(key, &["name of metadata key 0 at byte 24", &length.to_string()]);
        let value = entry("text", TYPE_STRING, &length_field);
        assert_refused(file(&[value], &[], 0), &["key 'text'", "at byte 40", &length.to_string()]);
        for element_type in [TYPE_U32, TYPE_BOOL, TYPE_STRING, 0, 12] {
            let array = array_entry("list", element_type, length, &[]);
            assert_refused(file(&[array], &[], 0), &["key 'list'", "cut short", &length.to_string()]);
        }
        let token = array_entry("tokens", TYPE_STRING, 2, &[string(b"a"), length_field.to_vec()].concat());
        assert_refused(file(&[token], &[], 0), &["element 1 of metadata key 'tokens'"]);
    }
}

#[test]
fn lengths_just_above_the_limit_are_refused() {
    let entries = |length: usize| {
        [
            (entry(&"k".repeat(length), 0, &[1]), 65_535, "name of metadata key 0"),
            (
                array_entry("a", TYPE_STRING, 1, &string(&vec![b'x'; length])),
                65_536,
                "element 0 of metadata key 'a'",
            ),
        ]
    };
    for (index, limit) in [65_535, 65_536].into_iter().enumerate() {
        let (at_limit, _, _) = entries(limit)[index].clone();
        Gguf::from_bytes(file(&[at_limit], &[], 0)).unwrap();
        let (above, limit, place) = entries(limit + 1)[index].clone();
        assert_refused(file(&[above], &[], 0), &[place, &format!("limit of {limit}")]);
    }
    let declared = entry("template", TYPE_STRING, &((16_u64 << 20) + 1).to_le_bytes());
    assert_refused(file(&[declared], &[], 0), &["key 'template'", "limit of 16777216"]);
    // What a token length of 2 GiB and a bit once did to a reader.
    let token = array_entry("tokens", TYPE_STRING, 1, &((1_u64 << 31) + 8).to_le_bytes());
    assert_refused(file(&[token], &[], 0), &["element 0", "2147483656"]);
}

#[test]
fn impossible_values_are_refused() {
    let nested = array_entry("deep", TYPE_ARRAY, 1, &[0; 12]);
    for (entries, expected) in [
        (vec![nested], &["key 'deep' is an array of arrays at byte 40"][..]),
        (vec![entry("odd", 13, &[0])], &["key 'odd' has unknown value type 13 at byte 35"]),
        (vec![entry("odd", u32::MAX, &[0])], &["unknown value type 4294967295"]),
        (vec![array_entry("odd", 99, 0, &[])], &["key 'odd' has unknown value type 99 at byte 39"]),
        (vec![entry("flag", TYPE_BOOL, &[2])], &["key 'flag' has the truth value 2 at byte 40"]),
        (vec![array_entry("flags", TYPE_BOOL, 3, &[0, 1, 255])], &["key 'flags' has the truth value 255"]),
        (vec![text_entry("twice", "a"), text_entry("twice", "b")], &["key 'twice' appears twice", "byte 50"]),
        (vec![text_entry("\u{1b}[2J", "a"), text_entry("\u{1b}[2J", "b")], &["key '\\u{1b}[2J'"]),
    ] {
        assert_refused(file(&entries, &[], 0), expected);
    }
}

#[test]
fn a_deeply_nested_array_cannot_exhaust_the_stack() {
    let level = [TYPE_ARRAY.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    let nested = entry("deep", TYPE_ARRAY, &level.repeat(200_000));
    assert_refused(file(&[nested], &[], 0), &["key 'deep' is an array of arrays"]);
}

#[test]
fn text_must_be_utf8_when_read_as_text() {
    let mut bad_key = file(&[text_entry("key", "a")], &[], 0);
    bad_key[32] = 0xff;
    assert_refused(bad_key, &["name of metadata key 0 at byte 32 is not valid UTF-8"]);

    let value = entry("text", TYPE_STRING, &string(b"a\xff"));
    let array = array_entry("list", TYPE_STRING, 2, &[string(b"good"), string(b"\xc3")].concat());
    let model = Gguf::from_bytes(file(&[value, array], &[], 0)).unwrap();
    let message = model.get_str("text").unwrap_err().to_string();
    assert!(message.contains("the value of metadata key 'text' at byte 48 is not valid UTF-8"), "{message}");
    assert_eq!(model.require_bytes("text").unwrap(), b"a\xff");
    let message = model.array_str("list").unwrap_err().to_string();
    assert!(message.contains("element 1 of the value of metadata key 'list'"), "{message}");
    assert_eq!(model.require_array_bytes("list").unwrap().collect::<Vec<_>>(), [&b"good"[..], b"\xc3"]);
}

#[test]
fn a_large_vocabulary_opens() {
    let tokens: Vec<String> = (0..250_000).map(|id| format!("token{id}")).collect();
    let mut writer = paceline_gguf::Writer::new("toy");
    writer.metadata("tokenizer.ggml.tokens", tokens);
    let model = Gguf::from_bytes(bytes_of(&writer)).unwrap();
    let tokens = model.require_array_str("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens.last()), (250_000, Some("token249999")));
}
