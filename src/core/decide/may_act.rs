//! May we act at all? Pure.

use std::time::Duration;

use super::{Decision, SETTLE};
use crate::api::status::PlanStep;
use crate::core::held::Held;
use crate::core::members::Class;
use crate::core::situation::Situation;

/// How long old evidence stays void after a start or a stall.
const WARM_UP: Duration = Duration::from_millis(300);

pub(super) fn standby(situation: &Situation<'_>) -> Option<Decision> {
    situation.term.is_none().then_some(Decision::Wait("Standby"))
}

pub(super) fn control_plane_lost(situation: &Situation<'_>) -> Option<Decision> {
    let since = situation.api_lost_since?;
    Some(if situation.now.saturating_sub(since) < SETTLE {
        Decision::Wait("ControlPlaneLost")
    } else {
        Decision::Hold(
            Held::ControlPlaneLost,
            "the API server does not answer, so no decision can be recorded and none is carried out; Redis is \
             left as it is until it answers again"
                .to_owned(),
        )
    })
}

pub(super) fn warm_up(situation: &Situation<'_>) -> Option<Decision> {
    let young = situation.now.saturating_sub(situation.evidence_since) < WARM_UP;
    (young && situation.well_master().is_none()).then_some(Decision::Wait("WarmUp"))
}

pub(super) fn blind(situation: &Situation<'_>) -> Option<Decision> {
    situation.record.master.as_ref()?;
    let dialable = situation.listed().filter(|member| member.pod.ip.is_some()).count();
    let anybody = situation.members.values().any(|member| {
        !matches!(
            member.class(situation.now),
            Class::Unroutable | Class::Hung | Class::Unknown | Class::Refused
        )
    });
    if anybody || dialable == 0 {
        return None;
    }
    let since = situation.members.values().filter_map(|member| member.bad_since).max()?;
    Some(if situation.now.saturating_sub(since) < SETTLE {
        Decision::Wait("BlindSupervisor")
    } else {
        Decision::Hold(
            Held::BlindSupervisor,
            "no pod of this cluster can be reached from the operator; either all are down or the operator is \
             cut off, and those look the same from here"
                .to_owned(),
        )
    })
}

pub(super) fn resume(situation: &Situation<'_>) -> Option<Decision> {
    (situation.plan()?.step < PlanStep::Promoted).then_some(Decision::Advance)
}
