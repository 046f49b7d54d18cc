//! Tests of the index and of the lengths of drafts.

use super::index::Index;
use super::*;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::graph::step::ContextShape;

fn index(matched: usize, tokens: &[u32]) -> Index {
    let mut index = Index::new(matched, 4096);
    tokens.iter().for_each(|&token| index.push(token));
    index
}

fn continuation(index: &Index, anchor: u32, most: usize) -> Vec<u32> {
    let mut given = Vec::new();
    index.continuation(anchor, most, &mut |token| given.push(token));
    given
}

/// What the index does, said plainly: all places are looked at.
fn plain(tokens: &[u32], anchor: u32, matched: usize) -> Option<usize> {
    let text: Vec<u32> = tokens.iter().copied().chain([anchor]).collect();
    let length = |place: usize| {
        text[..place].iter().rev().zip(text.iter().rev()).take(33).take_while(|(a, b)| a == b).count()
    };
    (1..text.len()).map(|place| (length(place), place)).filter(|(l, _)| *l >= matched).max().map(|(_, p)| p)
}

#[test]
fn what_followed_before_is_drafted() {
    let text = index(2, &[1, 2, 3, 4, 5, 9, 1, 2]);
    assert_eq!(continuation(&text, 3, 3), [4, 5, 9]);
    assert_eq!(continuation(&text, 7, 3), []);
    // The newest token is indexed: 9 1 occurred just before.
    assert_eq!(continuation(&index(2, &[9, 1, 5, 9]), 1, 2), [5, 9]);
}

#[test]
fn a_loop_goes_round() {
    assert_eq!(continuation(&index(2, &[1, 2, 3, 1, 2, 3]), 1, 7), [2, 3, 1, 2, 3, 1, 2]);
    assert_eq!(continuation(&index(1, &[5]), 5, 3), [5, 5, 5]);
}

#[test]
fn a_short_text_has_no_match() {
    for length in 0..4 {
        assert_eq!(continuation(&index(5, &vec![7; length]), 7, 4), []);
    }
}

#[test]
fn places_are_those_of_a_plain_search_and_a_cut_restores_them() {
    let mut state = 12345u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text: Vec<u32> = Vec::new();
    let mut built = Index::new(3, 4096);
    for _ in 0..300 {
        if random(4) == 0 {
            let length = text.len() - (random(20) as usize).min(text.len());
            text.truncate(length);
            built.truncate(length);
        } else {
            for _ in 0..random(12) {
                let token = random(3) as u32;
                text.push(token);
                built.push(token);
            }
        }
        assert_eq!(built.len(), text.len());
        let anchor = random(3) as u32;
        let fresh = index(3, &text);
        assert_eq!(continuation(&built, anchor, 9), continuation(&fresh, anchor, 9));
        // With few candidates in a chain the search is complete.
        if text.len() < 40 {
            let place = plain(&text, anchor, 3);
            let whole: Vec<u32> = text.iter().copied().chain([anchor]).collect();
            let expected = place.map(|place| whole[place]);
            assert_eq!(continuation(&built, anchor, 1).first().copied(), expected);
        }
    }
}

fn drafter(settings: &[(&str, &str)]) -> Result<Ngram> {
    let context = ContextShape {
        sequences: 2,
        positions: 1024,
        blocks_per_sequence: 4,
        kv_types: [DType::F16; 2],
        staged_rows: 0,
        rollback_depth: 15,
    };
    let facts = Facts {
        vocabulary: 100,
        hidden: 8,
        layers: 1,
        context,
        microbatch: 64,
        backend: "none".into(),
        architecture: "none".into(),
    };
    let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    NgramAdaptive.create(&facts, &settings, &mut NoSession)
}

/// The drafter asks nothing of the host.
struct NoSession;

impl Session for NoSession {
    fn integer_at(&self, _: paceline_plugin_api::strategy::Source, _: &str, _: u32) -> Option<i64> {
        None
    }
    fn number(&self, _: paceline_plugin_api::strategy::Source, _: &str) -> Option<f64> {
        None
    }
    fn text(&self, _: paceline_plugin_api::strategy::Source, _: &str) -> Option<String> {
        None
    }
    fn tensor(
        &self,
        _: paceline_plugin_api::strategy::Source,
        _: &str,
    ) -> Option<paceline_plugin_api::strategy::TensorFacts> {
        None
    }
    fn has_fragment(&self, _: &str) -> bool {
        false
    }
    fn declare_tap(&mut self, _: paceline_plugin_api::graph::step::Tap) -> Result<()> {
        Err(Error::unsupported("no tap"))
    }
    fn declare_ring(&mut self, _: u32) -> Result<()> {
        Err(Error::unsupported("no ring"))
    }
    fn declare_program(
        &mut self,
        _: &str,
        _: &paceline_plugin_api::graph::Graph,
    ) -> Result<paceline_plugin_api::strategy::ProgramId> {
        Err(Error::unsupported("no program"))
    }
    fn run(
        &mut self,
        _: paceline_plugin_api::strategy::ProgramId,
        _: u32,
        _: &[paceline_plugin_api::strategy::GroupRows<'_>],
    ) -> Result<&[u8]> {
        Err(Error::unsupported("no program"))
    }
}

/// Drafts and resolves until the text was copied `copied` tokens far; gives the lengths of the drafts.
fn lengths(drafter: &mut Ngram, accepted: &[u32]) -> Vec<usize> {
    let text: Vec<u32> = (0..50).chain(0..4).collect();
    drafter.begin(0).unwrap();
    drafter.observe(&mut NoSession, 0, 0, &text).unwrap();
    accepted
        .iter()
        .map(|&accepted| {
            let (mut tokens, mut confidence) = ([0; 1024], [0.0; 1024]);
            let mut draft = Draft::new(&mut tokens, &mut confidence, None);
            let request = Request { sequence: 0, frontier: 54, anchor: 4, most: 1024 };
            drafter.propose(&mut NoSession, request, &mut draft).unwrap();
            let drafted = draft.len() as u32;
            let verified = (accepted + 1).min(drafted);
            let accepted = accepted.min(drafted);
            drafter.resolve(Outcome { sequence: 0, verified, accepted, drafted, wanted: 1024 }).unwrap();
            drafted as usize
        })
        .collect()
}

#[test]
fn lengths_follow_success() {
    let mut drafter = drafter(&[("start", "8"), ("floor", "2"), ("most", "32")]).unwrap();
    assert_eq!(
        lengths(&mut drafter, &[99, 99, 99, 99, 0, 0, 0, 0, 0, 1]),
        [8, 16, 32, 32, 32, 16, 8, 4, 2, 2]
    );
}

#[test]
fn a_fixed_length_does_not_follow() {
    let mut drafter = drafter(&[("start", "0"), ("most", "20")]).unwrap();
    assert_eq!(lengths(&mut drafter, &[0, 0, 99]), [20, 20, 20]);
    assert!(drafter.info().fixed);
}

#[test]
fn settings_are_those_of_the_descriptor_and_wrong_ones_are_refused() {
    for setting in SETTINGS {
        assert!(DESCRIPTOR.contains(&format!("key = \"{}\"", setting.key)), "{}", setting.key);
        assert!(DESCRIPTOR.contains(setting.doc), "{}", setting.doc);
    }
    let message = |settings: &[(&str, &str)]| drafter(settings).err().unwrap().message;
    assert_eq!(message(&[("flor", "1")]), "setting `flor` is not known; did you mean `floor`?");
    assert_eq!(
        message(&[("match", "0")]),
        "setting `match` cannot be `0`; it takes a whole number from 1 to 64"
    );
}
