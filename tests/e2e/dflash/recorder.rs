//! A drafter that writes down what dflash proposes.

use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session,
};
use paceline_plugin_api::{PluginInfo, Result, abi, drafter_plugin};
use paceline_strategy_dflash::Dflash;
use std::sync::Mutex;

const RECORDER: PluginInfo = PluginInfo {
    id: "dflash-recorded",
    version: "0.1.0",
    kind: abi::kind::STRATEGY,
    descriptor: "id = \"dflash-recorded\"\nkind = \"strategy\"\nversion = \"0.1.0\"\nabi = { oldest = \"1.0\", built = \
                 \"1.0\" }\nlicense = \"MIT OR Apache-2.0\"\nsummary = \"For tests.\"\nneeds = []\n",
};

/// A proposal.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Which engine it was made on.
    pub log: String,
    pub frontier: usize,
    pub anchor: u32,
    pub tokens: Vec<u32>,
}

static PROPOSALS: Mutex<Vec<Proposal>> = Mutex::new(Vec::new());

/// The plugin: dflash with two more settings, `log`, which marks its proposals, and `anchor`, which it takes instead of
/// any other.
pub struct Recorder;

pub struct Recording {
    inner: <Dflash as DrafterPlugin>::Drafter,
    log: String,
    anchor: Option<u32>,
}

impl DrafterPlugin for Recorder {
    type Drafter = Recording;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        session: &mut dyn Session,
    ) -> Result<Recording> {
        let (own, rest): (Vec<_>, Vec<_>) =
            settings.iter().cloned().partition(|(key, _)| key == "log" || key == "anchor");
        let own = |wanted: &str| own.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone());
        Ok(Recording {
            inner: Dflash.create(facts, &rest, session)?,
            log: own("log").unwrap_or_default(),
            anchor: own("anchor").map(|anchor| anchor.parse().unwrap()),
        })
    }
}

impl Drafter for Recording {
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
        let request = Request { anchor: self.anchor.unwrap_or(request.anchor), ..request };
        let (mut tokens, mut confidence) = (vec![0; draft.most()], vec![0.0; draft.most()]);
        let mut own = Draft::new(&mut tokens, &mut confidence, None);
        self.inner.propose(session, request, &mut own)?;
        let count = own.len();
        tokens.truncate(count);
        tokens.iter().for_each(|&token| draft.push(token, f32::NAN));
        PROPOSALS.lock().unwrap().push(Proposal {
            log: self.log.clone(),
            frontier: request.frontier as usize,
            anchor: request.anchor,
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

drafter_plugin!(RECORDER, Recorder, Recorder);

/// The proposals of an engine whose `log` is this one.
pub fn proposals(log: &str) -> Vec<Proposal> {
    PROPOSALS.lock().unwrap().iter().filter(|proposal| proposal.log == log).cloned().collect()
}
