//! Tests of the parts that need no backend: the ring, and what a drafter's file is told.

use super::*;
use crate::drafter::{longest, visible};
use crate::model::DraftModel;
use crate::programs::{GraphBuilder, Programs};
use crate::ring::{Kept, Ring};
use paceline_plugin_api::graph::step::{ContextShape, Tap};
use paceline_plugin_api::graph::{DType, Graph};
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterPlugin, Facts, GroupRows, ProgramId, Request, Session, Source, TensorFacts,
};
use paceline_plugin_api::{Error, Result};
use std::collections::BTreeMap;

#[test]
fn settings_are_those_of_the_descriptor() {
    for setting in SETTINGS {
        assert!(DESCRIPTOR.contains(&format!("key = \"{}\"", setting.key)), "{}", setting.key);
        assert!(DESCRIPTOR.contains(setting.doc), "{}", setting.doc);
        let SettingType::Integer { default: 0, min: 0, max } = setting.kind else {
            panic!("{}", setting.key)
        };
        assert!(DESCRIPTOR.contains(&format!("range = [0, {max}]")), "{}", setting.key);
    }
    assert_eq!(DESCRIPTOR.matches("[[setting]]").count(), SETTINGS.len());
}

fn context(positions: u32) -> ContextShape {
    ContextShape {
        sequences: 2,
        positions,
        blocks_per_sequence: positions.div_ceil(256),
        kv_types: [DType::F16; 2],
        staged_rows: 576,
        rollback_depth: 15,
    }
}

#[test]
fn a_ring_holds_the_window_and_two_blocks() {
    let ring = |visible: u32, positions: u32| Ring::new(visible, &context(positions));
    assert_eq!(ring(1, 4096), Ring { blocks: 3, window: 1 });
    assert_eq!(ring(256, 4096), Ring { blocks: 3, window: 256 });
    assert_eq!(ring(257, 4096), Ring { blocks: 4, window: 257 });
    assert_eq!(ring(2048, 8192), Ring { blocks: 10, window: 2048 });
    // As long as the context is, nothing is overwritten.
    assert_eq!(ring(4000, 4096), Ring { blocks: 16, window: 4000 });
    assert_eq!(ring(4096, 4096), Ring { blocks: 16, window: 0 });
    assert_eq!(ring(u32::MAX, 100), Ring { blocks: 1, window: 0 });
}

#[test]
fn lengths_follow_settings_and_file() {
    assert_eq!([longest(0, 16, 15), longest(0, 8, 15), longest(3, 8, 15), longest(12, 8, 15)], [15, 7, 3, 7]);
    assert_eq!([longest(0, 64, 15), longest(9, 16, 4), longest(0, 1, 15)], [15, 4, 0]);
    assert_eq!(
        [visible(0, 0), visible(0, 512), visible(0, 4096), visible(9000, 512)],
        [2048, 512, 2048, 9000]
    );
}

/// The ring as it is: the position in every cell.
struct Model {
    ring: Ring,
    cells: Vec<Option<u32>>,
}

impl Model {
    fn write(&mut self, positions: std::ops::Range<u32>) {
        for position in positions {
            self.cells[(position % self.ring.rows()) as usize] = Some(position);
        }
    }

    /// Rows that enter now, as the drafter lets them.
    fn fill(&mut self, kept: &mut Kept) {
        kept.skip_overwritten(self.ring);
        if kept.waiting > 1 {
            self.write(kept.filled..kept.filled + kept.waiting - 1);
            kept.enter(kept.waiting - 1, self.ring);
        }
    }
}

#[test]
fn a_draft_sees_only_positions_that_are_in_the_ring() {
    let mut state = 7u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    let (mut drafts, mut refusals) = (0, 0);
    for (window, most_step) in [(1, 40), (200, 40), (256, 1500), (257, 600), (700, 3000)] {
        let ring = Ring::new(window, &context(1 << 20));
        let mut model = Model { ring, cells: vec![None; ring.rows() as usize] };
        let mut kept = Kept::default();
        let mut length = 0;
        for _ in 0..2000 {
            match random(8) {
                0 => {
                    length -= random(length.min(900) + 1);
                    kept.truncate(length);
                }
                1 => {
                    let count = 1 + random(most_step);
                    kept.keep(length, count).unwrap();
                    length += count;
                }
                _ => {
                    let count = 1 + random(16);
                    kept.keep(length, count).unwrap();
                    length += count;
                }
            }
            assert_eq!(kept.known(), length);
            if kept.waiting > 16 {
                model.fill(&mut kept);
                assert_eq!(kept.waiting, 1);
            }
            if kept.waiting == 0 || !kept.is_ready(length, ring) {
                refusals += 1;
                continue;
            }
            drafts += 1;
            let steps = 1 + random(15);
            model.write(kept.filled..length + 1 + steps);
            kept.enter(kept.waiting, ring);
            kept.written(length + 1 + steps, ring);
            for position in (length + 1).saturating_sub(window)..length + 1 + steps {
                let cell = (position % ring.rows()) as usize;
                assert_eq!(model.cells[cell], Some(position), "window {window}, frontier {length}");
            }
        }
    }
    // Only a text that was cut far back makes it wait.
    assert!(drafts > 6000 && refusals > 100, "{drafts} drafts, {refusals} refusals");
}

#[test]
fn rows_that_nobody_told_of_are_an_error() {
    let mut kept = Kept::default();
    kept.keep(0, 5).unwrap();
    assert!(kept.keep(6, 1).is_err());
    // Rows that take the place of others are told by their position.
    kept.keep(3, 4).unwrap();
    assert_eq!(kept.known(), 7);
}

/// A drafter's file for a target of 4 layers, 32 wide, with 100 tokens; and a backend that answers from a list.
#[derive(Clone, Default)]
struct File {
    numbers: BTreeMap<String, Vec<f64>>,
    texts: BTreeMap<String, String>,
    tensors: BTreeMap<String, (DType, Vec<u32>)>,
    taps: Vec<Tap>,
    ring: u32,
    graphs: Vec<Graph>,
    /// The result block of every run.
    results: Vec<u8>,
    /// Program, and position and count of every group.
    runs: Vec<(u32, Vec<(u32, u32)>)>,
    ids: Vec<u32>,
}

impl File {
    fn new() -> Self {
        let mut file = Self::default();
        file.texts.insert("general.architecture".into(), "dflash".into());
        let numbers = [
            ("block_count", 2.0),
            ("embedding_length", 32.0),
            ("feed_forward_length", 48.0),
            ("attention.head_count", 4.0),
            ("attention.head_count_kv", 2.0),
            ("attention.key_length", 16.0),
            ("attention.layer_norm_rms_epsilon", 1e-6),
            ("block_size", 8.0),
        ];
        for (key, value) in numbers {
            file.set(key, &[value]);
        }
        file.set("target_layers", &[1.0, 4.0]);
        file.numbers.insert("tokenizer.ggml.mask_token_id".into(), vec![99.0]);
        let mut tensor = |name: String, dims: &[u32]| file.tensors.insert(name, (DType::F32, dims.to_vec()));
        tensor("fc.weight".into(), &[32, 64]);
        tensor("enc.output_norm.weight".into(), &[32]);
        tensor("output_norm.weight".into(), &[32]);
        for layer in 0..2 {
            let mut tensor = |part: &str, dims: &[u32]| tensor(format!("blk.{layer}.{part}.weight"), dims);
            for norm in ["attn_norm", "ffn_norm"] {
                tensor(norm, &[32]);
            }
            for norm in ["attn_q_norm", "attn_k_norm"] {
                tensor(norm, &[16]);
            }
            tensor("attn_q", &[64, 32]);
            tensor("attn_k", &[32, 32]);
            tensor("attn_v", &[32, 32]);
            tensor("attn_output", &[32, 64]);
            tensor("ffn_gate", &[48, 32]);
            tensor("ffn_up", &[48, 32]);
            tensor("ffn_down", &[32, 48]);
        }
        file
    }

    fn set(&mut self, key: &str, values: &[f64]) {
        self.numbers.insert(format!("dflash.{key}"), values.to_vec());
    }

    fn with(key: &str, values: &[f64]) -> Self {
        let mut file = Self::new();
        file.set(key, values);
        file
    }

    fn with_tensor(name: &str, dims: &[u32]) -> Self {
        let mut file = Self::new();
        file.tensors.insert(name.into(), (DType::F32, dims.to_vec()));
        file
    }
}

impl Session for File {
    fn integer_at(&self, _: Source, key: &str, index: u32) -> Option<i64> {
        self.numbers.get(key)?.get(index as usize).map(|&value| value as i64)
    }

    fn number(&self, _: Source, key: &str) -> Option<f64> {
        self.numbers.get(key)?.first().copied()
    }

    fn text(&self, _: Source, key: &str) -> Option<String> {
        self.texts.get(key).cloned()
    }

    fn tensor(&self, _: Source, name: &str) -> Option<TensorFacts> {
        let (dtype, dims) = self.tensors.get(name)?.clone();
        Some(TensorFacts { dtype, dims })
    }

    fn has_fragment(&self, _: &str) -> bool {
        true
    }

    fn declare_tap(&mut self, tap: Tap) -> Result<()> {
        self.taps.push(tap);
        Ok(())
    }

    fn declare_ring(&mut self, blocks: u32) -> Result<()> {
        self.ring = blocks;
        Ok(())
    }

    fn declare_program(&mut self, _: &str, graph: &Graph) -> Result<ProgramId> {
        graph.validate().map_err(|error| Error::invalid(error.to_string()))?;
        self.graphs.push(graph.clone());
        Ok(ProgramId(self.graphs.len() as u32 - 1))
    }

    fn run(&mut self, program: ProgramId, _: u32, groups: &[GroupRows<'_>]) -> Result<&[u8]> {
        self.runs.push((program.0, groups.iter().map(|group| (group.position, group.count)).collect()));
        self.ids = groups.last().and_then(|group| group.tokens).unwrap_or_default().to_vec();
        Ok(&self.results)
    }
}

fn facts() -> Facts {
    Facts {
        vocabulary: 100,
        hidden: 32,
        layers: 4,
        context: context(4096),
        microbatch: 512,
        backend: "cpu".into(),
        architecture: "qwen35".into(),
    }
}

fn refusal(file: &mut File, settings: &[(&str, &str)]) -> String {
    let settings: Vec<(String, String)> =
        settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Dflash.create(&facts(), &settings, file).err().map(|error| error.message).unwrap_or_default()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let without = |remove: fn(&mut File)| {
        let mut file = File::new();
        remove(&mut file);
        file
    };
    let architecture = |name: &str| {
        let mut file = File::new();
        file.texts.insert("general.architecture".into(), name.into());
        file
    };
    let cases: Vec<(File, &[&str])> = vec![
        (File::default(), &["give the drafter's file with --draft"]),
        (architecture("qwen35"), &["`general.architecture` `qwen35`", "`dflash`"]),
        (architecture("dflash-draft"), &["`dflash-draft`", "not supported"]),
        (File::with("embedding_length", &[64.0]), &["`dflash.embedding_length` is 64", "32"]),
        (File::with("vocab_size", &[101.0]), &["`dflash.vocab_size` is 101", "100 tokens"]),
        (without(|f| drop(f.numbers.remove("dflash.target_layers"))), &["`dflash.target_layers`"]),
        (File::with("target_layers", &[1.0, 5.0]), &["`dflash.target_layers` names layer 5", "0 to 4"]),
        (File::with("target_layers", &[-1.0]), &["names layer -1"]),
        (File::with("target_layers", &[1.0]), &["`fc.weight` is [64, 32], expected [32, 32]"]),
        (File::with("attention.value_length", &[8.0]), &["`value_length` 8"]),
        (File::with("attention.head_count_kv", &[3.0]), &["`head_count_kv` 3"]),
        (File::with("attention.key_length", &[8.0]), &["`blk.0.attn_q.weight`"]),
        (File::with("block_size", &[1.0]), &["`dflash.block_size`"]),
        (File::with("rope.dimension_count", &[18.0]), &["`dflash.rope.dimension_count` 18"]),
        (File::with("rope.dimension_sections", &[4.0, 0.0, 0.0, 4.0]), &["dimension_sections"]),
        (File::with("attention.sliding_window_pattern", &[]), &[]),
        (File::with("selector_rank", &[256.0]), &["DFlash2", "not supported yet"]),
        (File::with("has_confidence_head", &[1.0]), &["DSpark", "not supported yet"]),
        (File::with("attention.scale", &[0.0]), &["`dflash.attention.scale`", "positive"]),
        (File::with("logit_scale", &[-1.0]), &["`dflash.logit_scale`"]),
        (File::with_tensor("markov_w1.weight", &[1, 1]), &["`markov_w1.weight`", "DSpark"]),
        (File::with_tensor("selector_hidden.weight", &[1, 1]), &["`selector_hidden.weight`", "DFlash2"]),
        (File::with_tensor("blk.0.attn_conv_base", &[1, 1]), &["`blk.0.attn_conv_base`", "DFlash2"]),
        (
            File::with_tensor("token_embd.weight", &[90, 32]),
            &["`token_embd.weight` is [32, 90], expected [32, 100]"],
        ),
        (File::with_tensor("output.weight", &[90, 32]), &["`output.weight`"]),
        (without(|f| drop(f.tensors.remove("blk.1.ffn_up.weight"))), &["no tensor `blk.1.ffn_up.weight`"]),
        (without(|f| drop(f.numbers.remove("tokenizer.ggml.mask_token_id"))), &["mask_token_id"]),
        (without(|f| drop(f.numbers.remove("dflash.block_count"))), &["`dflash.block_count`"]),
    ];
    for (mut file, words) in cases {
        let message = refusal(&mut file, &[]);
        assert_eq!(message.is_empty(), words.is_empty(), "{words:?}: {message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{word}: {message}"));
    }
    let mut window = File::with("attention.sliding_window", &[64.0]);
    window.set("attention.sliding_window_pattern", &[1.0]);
    assert!(refusal(&mut window, &[]).contains("1 entries for 2 layers"));
    let mut norm = File::new();
    norm.tensors.insert("output_norm.weight".into(), (DType::F16, vec![32]));
    assert!(refusal(&mut norm, &[]).contains("`output_norm.weight` is f16, expected f32"));
    assert!(
        refusal(&mut File::new(), &[("branch_budget", "4")]).contains("draft trees are not supported yet")
    );
    assert!(refusal(&mut File::new(), &[("dept", "4")]).contains("did you mean `depth`?"));
}

#[test]
fn own_embedding_and_head_go_before_the_targets() {
    let own = |names: &[&str]| {
        let mut file = File::new();
        for name in names {
            file.tensors.insert((*name).into(), (DType::F32, vec![100, 32]));
        }
        let model = DraftModel::read(&facts(), &file).unwrap();
        (model.own_embedding(), model.own_head())
    };
    assert_eq!(own(&[]), (None, None));
    assert_eq!(own(&["output.weight"]), (None, Some("output.weight")));
    assert_eq!(own(&["token_embd.weight"]), (Some("token_embd.weight"), Some("token_embd.weight")));
    assert_eq!(own(&["token_embd.weight", "output.weight"]).1, Some("output.weight"));
}

#[test]
fn sliding_layers_bound_the_ring_if_all_of_them_slide() {
    let visible = |pattern: &[f64]| {
        let mut file = File::with("attention.sliding_window", &[64.0]);
        if !pattern.is_empty() {
            file.set("attention.sliding_window_pattern", pattern);
        }
        DraftModel::read(&facts(), &file).unwrap().visible(1000)
    };
    assert_eq!([visible(&[]), visible(&[1.0, 1.0]), visible(&[0.0, 1.0])], [64, 64, 1000]);
}

fn propose(drafter: &mut impl Drafter, file: &mut File, frontier: u32, most: u32) -> Vec<u32> {
    let (mut tokens, mut confidence) = ([0; 15], [0.0; 15]);
    let mut draft = Draft::new(&mut tokens, &mut confidence, None);
    let request = Request { sequence: 1, frontier, anchor: 42, most };
    drafter.propose(file, request, &mut draft).unwrap();
    let count = draft.len();
    tokens[..count].to_vec()
}

#[test]
fn kept_rows_enter_with_the_next_draft_and_prompts_at_once() {
    let mut file = File::new();
    let settings = [("context".to_owned(), "100".to_owned())];
    let mut drafter = Dflash.create(&facts(), &settings, &mut file).unwrap();
    assert_eq!(drafter.info().most, 7);
    assert_eq!((file.ring, file.taps.as_slice()), (3, &[Tap::LayerInput(1), Tap::LayerInput(4)][..]));
    let graph = file.graphs.last().unwrap();
    let place = |name: &str| graph.result(name).unwrap().offset as usize;
    let (ids, faults) = (place("ids"), place("faults"));
    file.results = vec![0; graph.result_bytes() as usize];
    for row in 0..8u32 {
        file.results[ids + row as usize * 4..][..4].copy_from_slice(&(10 + row).to_ne_bytes());
    }
    // Fills of 16, 64 and 512 rows come first, then drafts on 1, 2, 5 and 16.
    drafter.begin(1).unwrap();
    assert!(propose(&mut drafter, &mut file, 0, 7).is_empty());
    drafter.observe(&mut file, 1, 0, &[5; 50]).unwrap();
    assert_eq!(file.runs, [(1, vec![(0, 49)])]);
    assert_eq!(propose(&mut drafter, &mut file, 50, 3), [11, 12, 13]);
    assert_eq!(file.runs[1], (3, vec![(49, 1), (50, 4)]));
    assert_eq!(file.ids, [42, 99, 99, 99]);
    // Two drafted tokens were accepted: three rows were kept.
    drafter.observe(&mut file, 1, 50, &[42, 11, 12]).unwrap();
    assert_eq!(propose(&mut drafter, &mut file, 53, 15).len(), 7);
    assert_eq!(file.runs[2], (5, vec![(50, 3), (53, 8)]));
    // A text that goes on elsewhere is not drafted from.
    assert!(propose(&mut drafter, &mut file, 54, 7).is_empty());
    drafter.observe(&mut file, 1, 53, &[1]).unwrap();
    drafter.truncate(1, 52).unwrap();
    assert!(propose(&mut drafter, &mut file, 52, 7).is_empty());
    drafter.observe(&mut file, 1, 52, &[1]).unwrap();
    assert_eq!(propose(&mut drafter, &mut file, 53, 1), [11]);
    assert_eq!(file.runs[3], (3, vec![(52, 1), (53, 2)]));
    // Logits that are not numbers give no draft.
    file.results[faults] = 1;
    drafter.observe(&mut file, 1, 53, &[1]).unwrap();
    assert!(propose(&mut drafter, &mut file, 54, 7).is_empty());
    assert!(drafter.explain().contains("1 drafts dropped"));
    // The context ends behind the block.
    file.results[faults] = 0;
    drafter.begin(1).unwrap();
    drafter.observe(&mut file, 1, 0, &vec![5; 4093]).unwrap();
    assert_eq!(propose(&mut drafter, &mut file, 4093, 7), [11, 12]);
    assert!(drafter.observe(&mut file, 2, 0, &[1]).is_err());
}

#[test]
fn prompts_longer_than_the_ring_enter_as_far_as_it_reaches() {
    let mut file = File::new();
    let settings = [("context".to_owned(), "100".to_owned())];
    let facts = Facts { microbatch: 2048, ..facts() };
    let mut drafter = Dflash.create(&facts, &settings, &mut file).unwrap();
    drafter.observe(&mut file, 0, 0, &vec![5; 2000]).unwrap();
    assert_eq!(file.runs, [(2, vec![(1999 - 768, 768)])]);
}

#[test]
fn graphs_of_every_form_are_valid() {
    let mut sliding = File::with("attention.sliding_window", &[64.0]);
    sliding.set("attention.causal", &[1.0]);
    sliding.set("embedding_scale", &[2.0]);
    let own = File::with_tensor("token_embd.weight", &[100, 32]);
    for mut file in [File::new(), sliding, own, File::with("final_logit_softcapping", &[30.0])] {
        let facts = facts();
        let model = DraftModel::read(&facts, &file).unwrap();
        let ring = Ring::new(64, &facts.context);
        for draw in [false, true] {
            let graphs = GraphBuilder { facts: &facts, model: &model, ring, block: 8, draw };
            Programs::declare(&graphs, &mut file).unwrap();
        }
        assert_eq!(file.graphs.len(), 2 * (3 + 4));
    }
}
