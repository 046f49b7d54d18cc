//! Drafters for tests: their descriptor, and one that stands around a real drafter and writes down what it proposes,
//! since the host does not show drafts.

use paceline_plugin_api::Result;
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session,
};
use std::sync::Mutex;

/// The [`PluginInfo`](paceline_plugin_api::PluginInfo) of a strategy that only tests use.
#[macro_export]
macro_rules! test_strategy {
    ($id:literal) => {
        paceline_plugin_api::PluginInfo {
            id: $id,
            version: "0.1.0",
            kind: paceline_plugin_api::abi::kind::STRATEGY,
            descriptor: concat!(
                "id = \"",
                $id,
                "\"\nkind = \"strategy\"\nversion = \"0.1.0\"\nabi = { oldest = \"1.0\", built = \"1.0\" }\n",
                "license = \"MIT\"\nsummary = \"For tests.\"\nneeds = []\n"
            ),
        }
    };
}

/// What a recorded drafter proposed.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Setting `log` of the context.
    pub log: String,
    /// Positions of the sequence that were processed.
    pub frontier: usize,
    /// The token that the draft follows.
    pub anchor: u32,
    /// The draft.
    pub tokens: Vec<u32>,
}

static PROPOSALS: Mutex<Vec<Proposal>> = Mutex::new(Vec::new());

/// The proposals of contexts with this `log`.
pub fn proposals(log: &str) -> Vec<Proposal> {
    let all = PROPOSALS.lock().expect("nobody panics with it");
    all.iter().filter(|proposal| proposal.log == log).cloned().collect()
}

/// The same, which are then forgotten.
pub fn take_proposals(log: &str) -> Vec<Proposal> {
    PROPOSALS.lock().expect("nobody panics with it").extract_if(.., |proposal| proposal.log == log).collect()
}

/// A drafter plugin around another, with three more settings: `log` marks its proposals, `anchor` stands for every
/// draft's anchor, `first_anchor` for the first's.
pub struct Recorder<P>(pub P);

/// The drafter of a context.
pub struct Recording<D> {
    inner: D,
    log: String,
    anchor: Option<u32>,
    first_anchor: Option<u32>,
}

impl<P: DrafterPlugin> DrafterPlugin for Recorder<P> {
    type Drafter = Recording<P::Drafter>;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Self::Drafter> {
        let (own, rest): (Vec<_>, Vec<_>) = settings
            .iter()
            .cloned()
            .partition(|(key, _)| ["log", "anchor", "first_anchor"].contains(&key.as_str()));
        let own = |wanted: &str| own.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone());
        let token = |key: &str| own(key).map(|value| value.parse().expect("a token"));
        Ok(Recording {
            inner: self.0.create(facts, &rest, session)?,
            log: own("log").unwrap_or_default(),
            anchor: token("anchor"),
            first_anchor: token("first_anchor"),
        })
    }
}

impl<D: Drafter> Drafter for Recording<D> {
    fn info(&self) -> DrafterInfo {
        self.inner.info()
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.inner.begin(sequence)
    }

    fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()> {
        self.inner.observe(session, sequence, position, tokens)
    }

    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let anchor = self.first_anchor.take().or(self.anchor).unwrap_or(request.anchor);
        let request = Request { anchor, ..request };
        let (mut tokens, mut confidence) = (vec![0; draft.most()], vec![0.0; draft.most()]);
        let mut own = Draft::new(&mut tokens, &mut confidence, None);
        self.inner.propose(session, request, &mut own)?;
        let count = own.len();
        tokens.truncate(count);
        tokens.iter().zip(&confidence).for_each(|(&token, &confidence)| draft.push(token, confidence));
        PROPOSALS.lock().expect("nobody panics with it").push(Proposal {
            log: self.log.clone(),
            frontier: request.frontier as usize,
            anchor,
            tokens,
        });
        Ok(())
    }

    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        self.inner.resolve(outcome)
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        self.inner.truncate(sequence, length)
    }
}
