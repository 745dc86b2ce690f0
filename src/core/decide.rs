//! The decision table: one ordered list of small rules. The first match acts. Pure.
//!
//! A rule looks at the [`Situation`] and either has nothing to say or decides. The list is the specification;
//! its order carries the safety: may we act at all, is what is recorded still true, is the master alive, and
//! only then who replaces it. `docs/decision-table.md` names the rows in words.

pub use moving::is_requested;

mod alive;
mod dead;
mod integrity;
mod may_act;
mod moving;
#[cfg(test)]
mod properties;
mod replicas;
mod starting;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::advance::Act;
use super::candidate;
use super::facts::Info;
use super::health::Death;
use super::held::Held;
use super::members::Member;
use super::plan::Draft;
use super::situation::Situation;
use crate::api::status::{PlanKind, ProcessRef};

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing yet; it will become clear by itself.
    Wait(&'static str),
    /// Deliberately nothing, and people should know why.
    Hold(Held, String),
    /// Record this role change.
    Open(Box<Draft>, Death),
    /// Carry on the open plan.
    Advance,
    /// One act, and what people should know meanwhile.
    Do(Box<Act>, Option<(Held, String)>),
    /// The master is well: keep everything else well, and say what cannot be done.
    Heal(Option<(Held, String)>),
}

/// One row of the decision table.
pub struct Rule {
    pub name: &'static str,
    pub decide: fn(&Situation<'_>) -> Option<Decision>,
}

/// The list.
pub const RULES: &[Rule] = &[
    // May we act at all?
    Rule { name: "Standby", decide: may_act::standby },
    Rule { name: "ControlPlaneLost", decide: may_act::control_plane_lost },
    Rule { name: "WarmUp", decide: may_act::warm_up },
    Rule { name: "BlindSupervisor", decide: may_act::blind },
    Rule { name: "Resume", decide: may_act::resume },
    // Is what is recorded still true?
    Rule { name: "EmptyMaster", decide: integrity::empty_master },
    Rule { name: "ExternalFailover", decide: integrity::external_failover },
    Rule { name: "ForeignFailover", decide: integrity::foreign_failover },
    // Starting.
    Rule { name: "Bootstrap", decide: starting::bootstrap },
    Rule { name: "Single", decide: starting::single },
    // Is the master alive?
    Rule { name: "PartitionOperatorMaster", decide: alive::partitioned },
    Rule { name: "AccessProblem", decide: alive::access_problem },
    Rule { name: "LoadingMaster", decide: alive::loading_master },
    Rule { name: "BusyMaster", decide: alive::busy_master },
    Rule { name: "HungMaster", decide: alive::hung_master },
    Rule { name: "Suspect", decide: alive::suspect },
    // It is dead. Who replaces it?
    Rule { name: "StrayReplica", decide: dead::stray_replica },
    Rule { name: "ColdStartEmpty", decide: dead::cold_start_empty },
    Rule { name: "ColdStart", decide: dead::cold_start },
    Rule { name: "RestartedMasterAlone", decide: dead::restarted_master_alone },
    Rule { name: "Ambiguous", decide: dead::ambiguous },
    Rule { name: "NoSafeCandidate", decide: dead::no_safe_candidate },
    Rule { name: "TooStale", decide: dead::too_stale },
    Rule { name: "NoQuorum", decide: dead::no_quorum },
    Rule { name: "Flapping", decide: dead::flapping },
    Rule { name: "DeadMaster", decide: dead::dead_master },
    // It is well, but should not stay.
    Rule { name: "Requested", decide: moving::requested },
    Rule { name: "LeavingMaster", decide: moving::leaving_master },
    Rule { name: "DrainMaster", decide: moving::drain_master },
    Rule { name: "SurplusMaster", decide: moving::surplus_master },
    Rule { name: "SickMaster", decide: moving::sick_master },
    // It is well and stays: its replicas.
    Rule { name: "ReplicaIsWritable", decide: replicas::writable },
    Rule { name: "Diverged", decide: replicas::diverged },
    Rule { name: "NotReplicating", decide: replicas::not_replicating },
    Rule { name: "ConnectedToWrong", decide: replicas::connected_to_wrong },
    Rule { name: "DegradedReplica", decide: replicas::degraded },
    Rule { name: "Syncing", decide: replicas::syncing },
];

/// How long a contradiction must last before people are told.
const SETTLE: Duration = Duration::from_secs(1);

/// The first rule that matches, and its name. When none does, everything is as it should be.
pub fn decide(situation: &Situation<'_>) -> (&'static str, Decision) {
    RULES
        .iter()
        .find_map(|rule| (rule.decide)(situation).map(|decision| (rule.name, by_hand(situation, decision))))
        .unwrap_or(("Healthy", Decision::Heal(None)))
}

/// In manual mode another pod is not made the master, only named. The first start, and a master that comes back with
/// its own data, move nothing; a switch that a person asked for is that person's.
fn by_hand(situation: &Situation<'_>, decision: Decision) -> Decision {
    let Decision::Open(draft, _) = &decision else { return decision };
    let Some(from) = &draft.from else { return decision };
    let asked_for = is_requested(draft.kind, draft.reason);
    if situation.desired.automatic || asked_for || draft.to.as_ref().is_some_and(|to| to.pod == from.pod) {
        return decision;
    }
    let successor = match (&draft.to, candidate::best(situation)) {
        (Some(to), _) => format!(" by {}", to.pod),
        (None, Some(best)) => format!(" by {}", best.member.pod.name),
        (None, None) => String::new(),
    };
    let message = format!(
        "{} would be replaced{successor} ({}), but spec.failover.mode is Manual; set it to Automatic to let that happen",
        from.pod, draft.reason
    );
    match draft.kind {
        PlanKind::Switchover => Decision::Heal(Some((Held::ManualMode, message))),
        _ => Decision::Hold(Held::ManualMode, message),
    }
}

// Pieces that several rules share.

/// A pod whose server answers, fenced and loaded, with no command under way.
fn restarted<'a>(situation: &Situation<'a>, member: &'a Member) -> Option<&'a Info> {
    member.settled(situation.now).filter(|info| info.is_fenced() && !info.loading && !member.pod.terminating)
}

fn first_ordinal(readings: &[(&Member, &Info)]) -> Option<ProcessRef> {
    readings.iter().min_by_key(|(member, _)| member.pod.ordinal).and_then(|(member, _)| member.process())
}

fn open(kind: PlanKind, reason: &'static str, from: Option<ProcessRef>, to: Option<ProcessRef>) -> Decision {
    let draft = Draft { to, ..Draft::new(kind, reason, from) };
    Decision::Open(Box::new(draft), Death::Definitive(reason))
}
