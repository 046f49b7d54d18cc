//! The drafter.

use super::SETTINGS;
use super::programs::{Form, Head, Programs};
use paceline_plugin_api::graph::fragment;
use paceline_plugin_api::graph::step::Tap;
use paceline_plugin_api::settings::Settings;
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, GroupRows, Outcome, Request, Session, Source,
    draft_cost, draft_kind,
};
use paceline_plugin_api::{Error, Result};

/// Longest draft where the host adapts it.
const MOST_ADAPTED: u32 = 8;
/// Rows that may wait for the next draft; more are filled in at once.
const MOST_WAITING: usize = 16;
/// As [`MOST_WAITING`], while rows come one by one and nothing is drafted: many together take less time.
const MOST_WAITING_IDLE: usize = 48;
/// Longest chain.
const MOST_STEPS: usize = 15;

/// The plugin.
pub struct MtpChain;

/// The drafter of one context.
pub struct Mtp {
    programs: Programs,
    form: Form,
    is_trimmed: bool,
    fixed: bool,
    least_probability: f32,
    sequences: Vec<Rows>,
    /// Drafts that were cut as logits were not numbers.
    not_finite: u64,
    fills: u64,
    filled_rows: u64,
}

/// What is kept of one sequence.
#[derive(Debug, Default)]
struct Rows {
    /// Positions whose keys and values come from true hidden states.
    filled: u32,
    /// Tokens behind them whose hidden states are known; the first is at position `filled`.
    waiting: Vec<u32>,
    /// The last draft's anchor, whose row that draft filled in.
    anchor: u32,
    /// Earlier hidden states were never seen, so nothing can be drafted until the sequence begins anew.
    lost: bool,
}

impl DrafterPlugin for MtpChain {
    type Drafter = Mtp;

    fn create(&self, facts: &Facts, settings: &[(String, String)], session: &mut dyn Session) -> Result<Mtp> {
        let settings = Settings::read(SETTINGS, settings)?;
        for name in
            [fragment::NEXTN_EMBED, fragment::NEXTN_FULL, fragment::NEXTN_KV_ONLY, fragment::NEXTN_HEAD]
        {
            if !session.has_fragment(name) {
                return Err(Error::unsupported(
                    "the model file has no prediction block (MTP, NextN): use a file that was converted with it",
                ));
            }
        }
        let depth = settings.integer("depth") as u32;
        let most = if depth == 0 { MOST_ADAPTED } else { depth }.min(facts.context.rollback_depth);
        let least_probability = settings.float("least_probability") as f32;
        let looped = settings.choice("form") == "loop";
        if least_probability > 0.0 && !looped {
            return Err(Error::invalid(
                "setting `least_probability` needs `form` = loop: a chain computes all of its steps in any case",
            ));
        }
        let head = head(facts, settings.choice("head"), session)?;
        let form = Form {
            most,
            looped,
            probabilities: looped,
            draw: settings.bool("draw"),
            kv_only: settings.bool("kv_only"),
        };
        session.declare_tap(Tap::Hidden)?;
        let programs = Programs::declare(facts, form, &head, session)?;
        let rows = || Rows {
            waiting: Vec::with_capacity(facts.microbatch as usize + MOST_WAITING_IDLE),
            ..Rows::default()
        };
        Ok(Mtp {
            programs,
            form,
            is_trimmed: head.tokens.is_some(),
            fixed: depth > 0,
            least_probability,
            sequences: (0..facts.context.sequences).map(|_| rows()).collect(),
            not_finite: 0,
            fills: 0,
            filled_rows: 0,
        })
    }
}

/// Which head is used.
fn head(facts: &Facts, wanted: &str, session: &dyn Session) -> Result<Head> {
    let trimmed = || {
        let last = session.integer(Source::Target, &format!("{}.block_count", facts.architecture))? - 1;
        let tokens = format!("blk.{last}.nextn.draft_head_ids");
        let rows = *session.tensor(Source::Target, &tokens)?.dims.first()?;
        Some(Head { rows, tokens: Some(tokens) })
    };
    let trimmed = session.has_fragment(fragment::NEXTN_DRAFT_HEAD).then(trimmed).flatten();
    match (wanted, trimmed) {
        ("trimmed", None) => Err(Error::unsupported(
            "setting `head` is trimmed, but the model file has no trimmed head: make one with `paceline tools trim-head`",
        )),
        ("trimmed" | "auto", Some(head)) => Ok(head),
        _ => Ok(Head { rows: facts.vocabulary, tokens: None }),
    }
}

impl Mtp {
    fn rows(&mut self, sequence: u32) -> Result<&mut Rows> {
        self.sequences
            .get_mut(sequence as usize)
            .ok_or_else(|| Error::invalid(format!("there is no sequence {sequence}")))
    }

    /// Fills in all waiting rows.
    fn fill(&mut self, session: &mut dyn Session, sequence: u32) -> Result<()> {
        let Some(rows) = self.sequences.get_mut(sequence as usize) else { return Ok(()) };
        while !rows.waiting.is_empty() {
            let (most, program) = self.programs.fill(rows.waiting.len());
            let count = rows.waiting.len().min(most);
            let group = GroupRows::tokens(rows.filled, &rows.waiting[..count]);
            session.run(program, sequence, &[group])?;
            self.fills += 1;
            self.filled_rows += count as u64;
            rows.filled += count as u32;
            rows.waiting.drain(..count);
        }
        Ok(())
    }

    /// The draft in one launch.
    fn chain(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let rows = &mut self.sequences[request.sequence as usize];
        let steps = request.most.min(self.form.most);
        let head = rows.waiting.len();
        let Some(chain) = self.programs.chain(head, steps) else { return Ok(()) };
        let mut groups = [GroupRows::row(0); MOST_STEPS];
        groups[0] = GroupRows::tokens(rows.filled, &rows.waiting);
        for (number, group) in groups.iter_mut().enumerate().take(steps as usize).skip(1) {
            *group = GroupRows::row(request.frontier + number as u32);
        }
        let results = session.run(chain.id, request.sequence, &groups[..steps as usize])?;
        let (guesses, faulty) = chain.guesses(results);
        guesses.for_each(|guess| draft.push(guess.token, guess.probability));
        self.not_finite += u64::from(faulty);
        Ok(())
    }

    /// The draft in a launch a step.
    fn steps(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        let rows = &mut self.sequences[request.sequence as usize];
        let (Some(first), Some(next)) = (self.programs.chain(rows.waiting.len(), 1), self.programs.next())
        else {
            return Ok(());
        };
        let mut last = [0];
        for step in 0..request.most.min(self.form.most) {
            let (chain, position, tokens) = if step == 0 {
                (first, rows.filled, rows.waiting.as_slice())
            } else {
                (next, request.frontier + step, last.as_slice())
            };
            let groups = [GroupRows::tokens(position, tokens), GroupRows::row(request.frontier + step)];
            let results = session.run(chain.id, request.sequence, &groups)?;
            let (mut guesses, faulty) = chain.guesses(results);
            self.not_finite += u64::from(faulty);
            let Some(guess) = guesses.next().filter(|g| g.probability >= self.least_probability) else {
                break;
            };
            draft.push(guess.token, guess.probability);
            last = [guess.token];
        }
        Ok(())
    }
}

impl Drafter for Mtp {
    fn info(&self) -> DrafterInfo {
        DrafterInfo {
            most: self.form.most,
            kind: draft_kind::POINT,
            cost: draft_cost::DEVICE,
            fixed: self.fixed,
        }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        let rows = self.rows(sequence)?;
        (rows.filled, rows.lost) = (0, false);
        rows.waiting.clear();
        Ok(())
    }

    fn observe(
        &mut self,
        session: &mut dyn Session,
        sequence: u32,
        position: u32,
        tokens: &[u32],
    ) -> Result<()> {
        let rows = self.rows(sequence)?;
        if rows.lost {
            return Ok(());
        }
        if rows.filled == position + 1 && tokens.first() != Some(&rows.anchor) {
            // The draft's anchor did not become part of the text.
            rows.filled = position;
        }
        let known = rows.filled as usize + rows.waiting.len();
        // The last draft may have filled in its first row already.
        let skipped = known.checked_sub(position as usize).ok_or_else(|| {
            Error::invalid(format!("rows of position {position} were kept, {known} positions are known"))
        })?;
        rows.waiting.extend(tokens.iter().skip(skipped));
        let most = if tokens.len() == 1 { MOST_WAITING_IDLE } else { MOST_WAITING };
        if rows.waiting.len() > most { self.fill(session, sequence) } else { Ok(()) }
    }

    fn propose(&mut self, session: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        if self.rows(request.sequence)?.waiting.len() >= Programs::most_head_rows() {
            self.fill(session, request.sequence)?;
        }
        let rows = self.rows(request.sequence)?;
        rows.filled = rows.filled.min(request.frontier);
        if rows.lost || rows.filled + rows.waiting.len() as u32 != request.frontier {
            // Its hidden states were not seen: nothing to draft from.
            return Ok(());
        }
        rows.waiting.push(request.anchor);
        let drafted = if self.form.looped {
            self.steps(session, request, draft)
        } else {
            self.chain(session, request, draft)
        };
        let rows = self.rows(request.sequence)?;
        if drafted.is_ok() {
            // The anchor's row had its true hidden state; those behind it had guesses.
            rows.filled = request.frontier + 1;
            rows.anchor = request.anchor;
            rows.waiting.clear();
        } else {
            rows.waiting.pop();
        }
        drafted
    }

    fn resolve(&mut self, _: Outcome) -> Result<()> {
        Ok(())
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        let rows = self.rows(sequence)?;
        rows.filled = rows.filled.min(length);
        rows.waiting.truncate((length - rows.filled) as usize);
        Ok(())
    }

    fn save(&self, sequence: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.sequences.get(sequence as usize).map(|rows| rows.filled.to_le_bytes().to_vec()))
    }

    fn restore(&mut self, sequence: u32, tokens: &[u32], saved: &[u8]) -> Result<()> {
        if saved.is_empty() {
            let rows = self.rows(sequence)?;
            (rows.filled, rows.lost) = (0, !tokens.is_empty());
            rows.waiting.clear();
            return Ok(());
        }
        let filled = saved
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| Error::invalid("what was saved of the sequence is not this drafter's"))?;
        let rows = self.rows(sequence)?;
        rows.lost = false;
        rows.filled = filled.min(tokens.len() as u32);
        rows.waiting.clear();
        rows.waiting.extend_from_slice(&tokens[rows.filled as usize..]);
        Ok(())
    }

    fn explain(&self) -> String {
        let head = if self.is_trimmed { "trimmed" } else { "full" };
        let form = if self.form.looped { "a launch a step" } else { "one launch" };
        let mut text = format!(
            "{form}, {head} head, drafts of up to {}; {} rows of keys and values filled in {} launches",
            self.form.most, self.filled_rows, self.fills
        );
        if self.not_finite > 0 {
            text.push_str(&format!("; {} drafts cut at logits that were not numbers", self.not_finite));
        }
        text
    }
}
