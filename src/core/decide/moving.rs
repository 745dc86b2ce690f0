//! The master is well, but should not stay where it is: another pod takes its place, and no write is lost. Pure.
//!
//! Where nobody can, the reason is said, and everything else is kept well meanwhile: what is missing may be what
//! healing brings.

use super::Decision;
use crate::api::status::{PlanKind, PlanStep};
use crate::core::facts::NodeState;
use crate::core::health::Death;
use crate::core::held::Held;
use crate::core::plan::Draft;
use crate::core::situation::Situation;
use crate::core::switch;

/// A sick master is not moved so soon after the last switch, in seconds.
const NOT_AGAIN_WITHIN: i64 = 300;

/// Reason of a switch that a person asked for.
const REQUESTED: &str = "Requested";

/// Did a person ask for this change?
pub fn is_requested(kind: PlanKind, reason: &str) -> bool {
    kind == PlanKind::Switchover && reason == REQUESTED
}

/// A person asked for it by annotation. What is not allowed is refused elsewhere.
pub(super) fn requested(situation: &Situation<'_>) -> Option<Decision> {
    let wanted = situation.request?;
    if situation.plan().is_some() {
        return None; // it may be the one that was asked for
    }
    let to = switch::requested(situation, wanted).ok()??;
    Some(begin(situation, REQUESTED, &to))
}

/// Its pod is being deleted, and waits for this.
pub(super) fn leaving_master(situation: &Situation<'_>) -> Option<Decision> {
    let (member, _) = situation.well_master()?;
    let leaves = member.pod.terminating || !member.listed;
    leaves.then(|| replace(situation, "PodDeleted", "its pod is being deleted")).flatten()
}

/// Its node is being emptied.
pub(super) fn drain_master(situation: &Situation<'_>) -> Option<Decision> {
    let (member, _) = situation.well_master()?;
    let leaves = member.pod.node_state == NodeState::Leaving;
    leaves.then(|| replace(situation, "NodeDrained", "its node is cordoned or is being emptied")).flatten()
}

/// It would be removed by scaling in.
pub(super) fn surplus_master(situation: &Situation<'_>) -> Option<Decision> {
    let (member, _) = situation.well_master()?;
    let surplus = situation.desired.scale_in_to.is_some_and(|pods| member.pod.ordinal >= pods);
    surplus.then(|| replace(situation, "ScaleIn", "scaling in would remove it")).flatten()
}

/// It cannot save its data and may refuse writes for it; a replica that can save takes its place.
pub(super) fn sick_master(situation: &Situation<'_>) -> Option<Decision> {
    let (member, info) = situation.well_master()?;
    if !info.cannot_save {
        return None;
    }
    let healthy = switch::successor(situation, |info| {
        if info.cannot_save { Err("cannot save its data either") } else { Ok(()) }
    });
    // Where each one falls sick in turn, moving on does not help.
    let lately = situation.last_switch_ago.is_some_and(|ago| (0..NOT_AGAIN_WITHIN).contains(&ago));
    Some(match healthy {
        Ok(to) if may_begin(situation) && !lately => begin(situation, "MasterCannotSave", &to),
        Ok(_) => Decision::Heal(None),
        Err(why) => Decision::Heal(Some((
            Held::SickMaster,
            format!(
                "{} cannot save its data and may refuse writes (MISCONF), and no other pod can take its place: {why}. \
                 Look at its disk and memory",
                member.pod.name
            ),
        ))),
    })
}

fn replace(situation: &Situation<'_>, reason: &'static str, what: &str) -> Option<Decision> {
    let (member, _) = situation.well_master()?;
    // A single pod has nobody; Kubernetes restarts it elsewhere.
    if situation.desired.replicas < 2 && situation.listed().count() < 2 {
        return None;
    }
    Some(match switch::successor(situation, |_| Ok(())) {
        Ok(to) if may_begin(situation) => begin(situation, reason, &to),
        Ok(to) if situation.now < situation.switch_not_before => Decision::Heal(Some((
            Held::NoSuccessor,
            format!(
                "{} should not stay the master ({what}), but the last attempt to hand over was given up or undone, as its \
                 Event says; {} is tried again soon",
                member.pod.name, to.member.pod.name
            ),
        ))),
        Ok(_) => Decision::Heal(None),
        Err(why) => Decision::Heal(Some((
            Held::NoSuccessor,
            format!(
                "{} should not stay the master ({what}), but no other pod can take its place: {why}",
                member.pod.name
            ),
        ))),
    })
}

/// Nothing else is under way, and the last attempt is long enough ago.
fn may_begin(situation: &Situation<'_>) -> bool {
    let idle = situation.plan().is_none_or(|plan| plan.step == PlanStep::Promoted && situation.is_routed);
    idle && situation.now >= situation.switch_not_before
}

fn begin(situation: &Situation<'_>, reason: &'static str, to: &switch::Successor<'_>) -> Decision {
    let from = situation.record.master.clone();
    let draft = Draft { to: to.member.process(), ..Draft::new(PlanKind::Switchover, reason, from) };
    Decision::Open(Box::new(draft), Death::Definitive(reason))
}
