//! Drafters that guess as they are told to: `forced`, and `boaster`, which says that it guessed more than was wanted.

use paceline_plugin_api::abi::{self, DrafterHandle, DrafterTable, ProposeArgs, SessionTable, Str};
use paceline_plugin_api::strategy::{
    Draft, Drafter, DrafterInfo, DrafterPlugin, Facts, Outcome, Request, Session, draft_cost, draft_kind,
};
use paceline_plugin_api::{Builtin, Error, ErrorKind, PluginInfo, Result, drafter_plugin};
use paceline_tests::test_strategy;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

const INFO: PluginInfo = test_strategy!("forced");

/// The text that drafters know in advance: prompt and continuation.
pub static TRUTH: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// How often drafters were told of tokens, and of how many.
pub static TOLD: Mutex<(usize, usize)> = Mutex::new((0, 0));

pub struct Forced;

/// Settings: `guess`, what is drafted; `most`, the longest draft; `free`, whether it costs nothing; `fails`, the call
/// that fails; `upto`, the position from which the text is not known any more.
pub struct ForcedDrafter {
    guess: String,
    fails: String,
    most: u32,
    upto: usize,
    is_free: bool,
    vocabulary: u32,
    random: u64,
    /// Positions that it was told of, by sequence.
    known: Vec<usize>,
}

impl DrafterPlugin for Forced {
    type Drafter = ForcedDrafter;

    fn create(
        &self,
        facts: &Facts,
        settings: &[(String, String)],
        _: &mut dyn Session,
    ) -> Result<ForcedDrafter> {
        let setting = |name: &str, default: &str| {
            settings.iter().find(|(key, _)| key == name).map_or(default, |(_, value)| value).to_owned()
        };
        let number = |name: &str, default: &str| {
            setting(name, default).parse().map_err(|_| Error::invalid(name.to_owned()))
        };
        Ok(ForcedDrafter {
            guess: setting("guess", "right"),
            fails: setting("fails", ""),
            most: number("most", "8")?,
            upto: number("upto", "1000000")? as usize,
            is_free: setting("free", "false") == "true",
            vocabulary: facts.vocabulary,
            random: 1,
            known: vec![0; facts.context.sequences as usize],
        })
    }
}

impl ForcedDrafter {
    fn fail(&self, call: &str) -> Result<()> {
        assert!(self.fails != format!("panic in {call}"), "as it was told to");
        if self.fails == call {
            return Err(Error::new(ErrorKind::Internal, format!("{call} failed as it was told to")));
        }
        Ok(())
    }

    fn random(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.random >> 33) % u64::from(below)) as u32
    }
}

impl Drafter for ForcedDrafter {
    fn info(&self) -> DrafterInfo {
        let cost = if self.is_free { draft_cost::FREE } else { draft_cost::DEVICE };
        DrafterInfo { most: self.most, kind: draft_kind::POINT, cost, fixed: true }
    }

    fn begin(&mut self, sequence: u32) -> Result<()> {
        self.known[sequence as usize] = 0;
        self.fail("begin")
    }

    fn observe(&mut self, _: &mut dyn Session, sequence: u32, position: u32, tokens: &[u32]) -> Result<()> {
        self.fail("observe")?;
        let known_before =
            std::mem::replace(&mut self.known[sequence as usize], position as usize + tokens.len());
        if known_before != position as usize {
            return Err(Error::invalid(format!("told of {position}, {known_before} positions are known")));
        }
        let mut told = TOLD.lock().expect("no drafter panics with it");
        *told = (told.0 + 1, told.1 + tokens.len());
        let truth = TRUTH.lock().expect("no drafter panics with it");
        let known = truth.get(position as usize..position as usize + tokens.len());
        if self.guess != "random" && known != Some(tokens) {
            return Err(Error::invalid(format!(
                "{tokens:?} were observed at {position}, the text has {known:?}"
            )));
        }
        Ok(())
    }

    fn propose(&mut self, _: &mut dyn Session, request: Request, draft: &mut Draft<'_>) -> Result<()> {
        self.fail("propose")?;
        let known = self.known[request.sequence as usize];
        if known != request.frontier as usize {
            return Err(Error::invalid(format!(
                "asked at {}, {known} positions are known",
                request.frontier
            )));
        }
        let truth = TRUTH.lock().expect("no drafter panics with it").clone();
        let next = request.frontier as usize + 1;
        let most = request.most as usize;
        for index in 0..most {
            let right = truth.get(next + index).copied().unwrap_or(0);
            let is_known = next + index < self.upto;
            let token = match self.guess.as_str() {
                "right" if is_known => right,
                "wrong" | "right" => right ^ 1,
                "half" => right ^ u32::from(index >= most / 2),
                "random" => self.random(self.vocabulary),
                "outside" => {
                    if index == most / 2 {
                        self.vocabulary
                    } else {
                        right
                    }
                }
                "far outside" => u32::MAX,
                "end" => {
                    if index == most / 2 {
                        0
                    } else {
                        right
                    }
                }
                _ => right,
            };
            let infinite = self.guess == "infinite" && index + 1 == most;
            draft.push(token, if infinite { f32::INFINITY } else { f32::NAN });
        }
        Ok(())
    }

    fn resolve(&mut self, outcome: Outcome) -> Result<()> {
        if outcome.accepted > outcome.verified
            || outcome.verified > outcome.drafted
            || outcome.drafted > outcome.wanted
        {
            return Err(Error::invalid(format!("{outcome:?}")));
        }
        self.fail("resolve")
    }

    fn truncate(&mut self, sequence: u32, length: u32) -> Result<()> {
        let known = &mut self.known[sequence as usize];
        *known = (*known).min(length as usize);
        self.fail("truncate")
    }
}

drafter_plugin!(INFO, Forced, Forced);

const BOASTER: PluginInfo = test_strategy!("boaster");

unsafe extern "C" fn boast(_: DrafterHandle, _: *const SessionTable, args: *mut ProposeArgs) -> i32 {
    // SAFETY: the host passes arguments that it can read and write.
    unsafe { (*args).count = (*args).most + 1 };
    0
}

unsafe extern "C" fn boaster_interface(id: Str, _: u32) -> *const c_void {
    static TABLE: OnceLock<DrafterTable> = OnceLock::new();
    // SAFETY: the host passes readable text.
    if unsafe { id.bytes() } != abi::DRAFTER_INTERFACE.as_bytes() {
        return std::ptr::null();
    }
    let honest = paceline_plugin_api::drafter_table::<PluginInstance>();
    let table = TABLE.get_or_init(|| DrafterTable { propose: Some(boast), ..*honest });
    std::ptr::from_ref(table).cast()
}

unsafe extern "C" fn boaster_entry(_: *const abi::HostTable) -> *const abi::PluginTable {
    static TABLE: abi::PluginTable = BOASTER.table(boaster_interface);
    &raw const TABLE
}

paceline_plugin_api::inventory::submit! { Builtin { entry: boaster_entry } }
