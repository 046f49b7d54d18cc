//! `models inspect`.

mod support;

use insta::assert_snapshot;
use paceline_gguf::TensorType;
use support::{Folder, bytes, json, small_model};

#[cfg(feature = "demo-model")]
#[test]
fn the_demo() {
    assert_snapshot!(support::run(&["models", "inspect", "demo"]), @r#"
    exit 0
    --- stdout
    model         demo
    format        GGUF version 3, 1 file, 32.3 MiB
    architecture  qwen35
    parameters    31,543,136

    metadata: 40 keys
      key                                      type          value
      general.architecture                     string        "qwen35"
      general.type                             string        "model"
      general.name                             string        "demo-qwen35"
      general.size_label                       string        "31M"
      general.description                      string        "Small demonstration model trained from scratch on permissively …
      qwen35.block_count                       u32           9
      qwen35.context_length                    u32           4096
      qwen35.embedding_length                  u32           512
      qwen35.feed_forward_length               u32           1280
      qwen35.attention.head_count              u32           8
      qwen35.attention.head_count_kv           u32           2
      qwen35.attention.key_length              u32           64
      qwen35.attention.value_length            u32           64
      qwen35.rope.freq_base                    f32           100000
      qwen35.attention.layer_norm_rms_epsilon  f32           0.000001
      qwen35.full_attention_interval           u32           4
      qwen35.rope.dimension_count              u32           32
      qwen35.rope.dimension_sections           i32[4]        [6, 5, 5, 0]
      qwen35.ssm.conv_kernel                   u32           4
      qwen35.ssm.state_size                    u32           64
      qwen35.ssm.group_count                   u32           4
      qwen35.ssm.time_step_rank                u32           8
      qwen35.ssm.inner_size                    u32           512
      qwen35.nextn_predict_layers              u32           1
      qwen35.vocab_size                        u32           8192
      tokenizer.ggml.model                     string        "gpt2"
      tokenizer.ggml.pre                       string        "qwen35"
      tokenizer.ggml.tokens                    string[8192]  ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>", …]
      tokenizer.ggml.token_type                i32[8192]     [3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, …]
      tokenizer.ggml.merges                    string[7928]  ["Ġ Ġ", "ĠĠ ĠĠ", "ĠĠ Ġ", "ĠĠĠĠ ĠĠĠ", "i n", "e r", "Ġ t", "o n", …]
      tokenizer.ggml.eos_token_id              u32           0
      tokenizer.ggml.bos_token_id              u32           0
      tokenizer.ggml.padding_token_id          u32           7
      tokenizer.ggml.eot_token_id              u32           2
      tokenizer.ggml.add_bos_token             bool          false
      tokenizer.ggml.fim_pre_token_id          u32           4
      tokenizer.ggml.fim_mid_token_id          u32           5
      tokenizer.ggml.fim_suf_token_id          u32           6
      general.quantization_version             u32           2
      general.file_type                        u32           7

    tensors: 123, by type
      type  tensors    elements       size
      F32        52      36,704  143.4 KiB
      Q8_0       71  31,506,432   31.9 MiB
    --- stderr
    "#);
}

#[cfg(feature = "demo-model")]
#[test]
fn the_demo_as_json() {
    let model = json(&["models", "inspect", "demo", "--json"]);
    assert_eq!(model["model"], "demo");
    assert_eq!(model["metadata"]["qwen35.block_count"]["value"], 9);
    assert_eq!(model["metadata"]["tokenizer.ggml.tokens"]["length"], 8192);
    assert_eq!(model["metadata"]["tokenizer.ggml.tokens"]["first"][1], "<|im_start|>");
    assert_eq!(model["metadata"]["tokenizer.ggml.tokens"]["first"].as_array().unwrap().len(), 16);
    assert_eq!(model["tensors"].as_array().unwrap().len(), 123);
    let embeddings = model["tensors"].as_array().unwrap().iter().find(|it| it["name"] == "token_embd.weight");
    assert_eq!(embeddings.unwrap()["shape"], serde_json::json!([512, 8192]));
    let bytes = |list: &str| -> u64 {
        model[list].as_array().unwrap().iter().map(|it| it["bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(bytes("types"), bytes("tensors"));
}

#[test]
fn unknown_types_and_hostile_names() {
    let folder = Folder::new();
    let mut model = small_model();
    model.metadata("evil\x1b[2Jkey", "value\x1b]0;title\x07");
    model.tensor("fork\nweights", &[64], TensorType::Unknown(77), vec![1; 96]);
    let path = folder.write("model.gguf", bytes(&model));
    assert_snapshot!(folder.run(&["models", "inspect", &path, "--tensors"]), @r#"
    exit 0
    --- stdout
    model         [folder]/model.gguf
    format        GGUF version 3, 1 file, 512 B
    architecture  tiny
    parameters    128

    metadata: 3 keys
      key                    type       value
      general.architecture   string     "tiny"
      tokenizer.ggml.tokens  string[3]  ["a", "b", "c"]
      evil\u{1b}[2Jkey       string     "value\u{1b}]0;title\u{7}"

    tensors: 2, by type
      type         tensors  elements   size
      F16                1        64  128 B
      unknown(77)        1        64   96 B

    all tensors, contiguous dimension first
      name           type         shape    size
      weights        F16          32 x 2  128 B
      fork\nweights  unknown(77)  64       96 B
    --- stderr
    "#);
    let tensors = &json(&["models", "inspect", &path, "--json"])["tensors"];
    assert_eq!((&tensors[1]["name"], &tensors[1]["type_id"]), (&"fork\nweights".into(), &77.into()));
}

#[test]
fn a_split_model_by_any_part() {
    let folder = Folder::new();
    let mut model = small_model();
    model.tensor("more", &[8], TensorType::F32, vec![0; 32]);
    model.write_split(folder.path(), "model", 2).unwrap();
    let shown = json(&["models", "inspect", &folder.file("model-00002-of-00002.gguf"), "--json"]);
    assert_eq!(shown["files"].as_array().unwrap().len(), 2);
    assert_eq!(shown["tensors"][1]["file"], 1);
}

#[test]
fn the_chat_template_alone() {
    let folder = Folder::new();
    let template = "{% for message in messages %}\n{{ message.content }}{% endfor %}";
    let mut model = small_model();
    model.metadata("tokenizer.chat_template", template);
    let path = folder.write("model.gguf", bytes(&model));
    let output = support::output(&["models", "inspect", &path, "--template"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), template);
    let lines = folder.run(&["models", "inspect", &path]);
    let line = lines.lines().find(|line| line.contains("chat_template")).unwrap();
    assert_snapshot!(line, @"  tokenizer.chat_template  string     63 bytes, shown by --template");
}

#[test]
fn a_model_without_a_template() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", bytes(&small_model()));
    assert_snapshot!(folder.run(&["models", "inspect", &path, "--template"]), @r"
    exit 1
    --- stdout
    --- stderr
    error: [folder]/model.gguf has no chat template
    hint: it is a base model, or its template was lost when it was converted
    ");
}
