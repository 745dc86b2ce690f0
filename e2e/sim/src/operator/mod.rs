//! Operators: the real supervisor, in a shell that behaves as the real one does.

pub mod answers;
pub mod elector;
pub mod links;
pub mod shell;

use std::collections::BTreeMap;

use redis_ha_operator::core::event::{CommandOutcome, Effect, ProbeOutcome, RoleCommand, WriteOutcome};
use redis_ha_operator::core::facts::{ControllerReport, Info, Mono};
use redis_ha_operator::core::supervisor::Supervisor;

use crate::operator::elector::Elector;
use crate::operator::links::Slot;
use crate::operator::shell::Standing;
use crate::setup::Machine;
use crate::time::Time;
use crate::world::Ev;

/// What an operator sends to a server.
#[derive(Clone, Debug)]
pub enum Ask {
    Greet {
        cut_others: bool,
        term: String,
        asked_at: Mono,
    },
    Probe {
        asked_at: Mono,
    },
    /// `first`: the operator's other connections are cut before.
    Command {
        ticket: u64,
        command: RoleCommand,
        first: bool,
        term: String,
    },
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    Greeted { asked_at: Mono, busy: bool, info: Box<Info> },
    Probed { asked_at: Mono, outcome: ProbeOutcome },
    Replied { ticket: u64, outcome: CommandOutcome },
}

/// What a writer of a slice knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: the next write reads first.
    Nothing,
    Absent,
    Version(u64),
}

impl Known {
    /// The watch saw it.
    pub fn seen(&mut self, version: Option<u64>) {
        *self = match (*self, version) {
            (_, None) => Self::Absent,
            (Self::Version(mine), Some(seen)) => Self::Version(mine.max(seen)),
            (Self::Nothing | Self::Absent, Some(_)) => Self::Nothing,
        };
    }

    /// The version that a write names, once a reader has looked if it had to.
    pub fn precondition(
        self,
        stored: Option<(u64, u64)>,
        epoch: u64,
        nobody: bool,
    ) -> Result<Option<u64>, WriteOutcome> {
        match (self, stored) {
            (Self::Nothing, Some((stored_epoch, _))) if stored_epoch > epoch => Err(WriteOutcome::Conflict),
            (Self::Nothing, Some((_, version))) => Ok(Some(version)),
            (Self::Nothing | Self::Absent, None) if nobody => Err(WriteOutcome::Written),
            (Self::Absent, _) if nobody => Err(WriteOutcome::Written),
            (Self::Nothing | Self::Absent, _) => Ok(None),
            (Self::Version(version), _) => Ok(Some(version)),
        }
    }
}

/// An operator that does not run at the moment.
#[derive(Clone, Debug)]
pub struct Paused {
    pub since: Time,
    /// Its clock stands still, too, as under a paused hypervisor.
    pub clock_stops: bool,
}

/// One operator process after the other, on one machine.
pub struct Operator {
    pub name: &'static str,
    pub machine: Machine,
    /// Counts its processes.
    pub life: u32,
    pub up: bool,
    pub core: Supervisor,
    pub paused: Option<Paused>,
    /// It is paused right before its next changing effect, for this long.
    pub pause_next: Option<(Time, bool)>,
    /// Effects that were decided before the pause; the first was let through already.
    pub hand: Vec<Effect>,
    /// What comes while it is paused.
    pub inbox: Vec<Ev>,
    /// Millionths by which its clock runs too fast.
    pub drift: i64,
    /// How long its clock stood still.
    pub stopped: Time,
    pub elector: Elector,
    pub slots: BTreeMap<String, Slot>,
    pub next_link: u64,
    pub told: Option<Standing>,
    pub wake_at: Option<Time>,
    pub last_tick: Time,
    pub reading: u64,
    pub route: Known,
    pub reads: Known,
    pub report: Option<ControllerReport>,
    pub watch_at: Time,
    /// A watch was cut: what happened meanwhile has to be listed.
    pub missed: bool,
    /// Since when it leads, for checkers.
    pub leading_since: Option<Time>,
}
