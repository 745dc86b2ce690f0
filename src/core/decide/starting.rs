//! Starting: no master is on record yet, or the only pod was restarted. Pure.

use std::time::Duration;

use super::dead::{begin, fenced_for};
use super::{Decision, first_ordinal, open, restarted};
use crate::api::status::PlanKind;
use crate::core::cold::{self, Cold};
use crate::core::facts::Info;
use crate::core::held::Held;
use crate::core::mechanism::{Mechanism, on};
use crate::core::members::Member;
use crate::core::situation::Situation;

/// How long an ordinary start may take before people are told what it waits for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn bootstrap(situation: &Situation<'_>) -> Option<Decision> {
    if situation.record.master.is_some() {
        return None;
    }
    let listed: Vec<&Member> = situation.listed().collect();
    let readings: Vec<(&Member, &Info)> = listed
        .iter()
        .filter_map(|member| member.settled(situation.now).map(|info| (*member, info)))
        .collect();
    if let Some(cold) = cold::adopt(situation) {
        return Some(match cold {
            Cold::Wait(_) if !fenced_for(situation, PATIENCE) => Decision::Wait("WaitingForPods"),
            Cold::Wait(missing) => Decision::Hold(
                Held::WaitingForMembers,
                format!(
                    "no master is on record, but there is data: all pods are compared first, and these are not ready for \
                     it: {missing}"
                ),
            ),
            Cold::Refuse(why) => Decision::Hold(Held::UnknownData, why),
            Cold::Start(start) => begin(None, start),
        });
    }
    let wanted = usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX);
    let all_fenced = readings.iter().all(|(_, info)| info.is_fenced() && !info.loading);
    let some_missing = readings.len() < wanted || readings.len() < listed.len();
    if (some_missing && on(Mechanism::EveryPodAtBootstrap)) || readings.is_empty() || !all_fenced {
        return Some(Decision::Wait("WaitingForPods"));
    }
    let to = first_ordinal(&readings)?;
    Some(if situation.desired.data_expected {
        open(PlanKind::Recover, "DataLost", None, Some(to))
    } else {
        open(PlanKind::Bootstrap, "Bootstrap", None, Some(to))
    })
}

/// A cluster of one pod: whatever its only pod holds is all there is.
pub(super) fn single(situation: &Situation<'_>) -> Option<Decision> {
    let (from, member) = situation.master()?;
    let mut listed = situation.listed();
    let only = listed.next()?;
    if situation.desired.replicas != 1
        || listed.next().is_some()
        || member.is_some_and(|member| member.is(from))
    {
        return None;
    }
    let info = restarted(situation, only)?;
    let lost = info.keys == 0 && situation.record.ever_had_data;
    let reason = if lost { "DataLost" } else { "SinglePodRestarted" };
    Some(open(PlanKind::Recover, reason, Some(from.clone()), only.process()))
}
