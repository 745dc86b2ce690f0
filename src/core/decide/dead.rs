//! The master is dead. Who replaces it, and may we? Pure.

use std::time::Duration;

use super::{Decision, SETTLE, first_ordinal, open, restarted};
use crate::api::status::{PlanKind, ProcessRef};
use crate::core::advance::{Act, DRAIN};
use crate::core::candidate;
use crate::core::cold::{self, Cold, Start};
use crate::core::event::RoleCommand;
use crate::core::facts::{Info, Role};
use crate::core::health::{Death, Health, judge};
use crate::core::held::Held;
use crate::core::mechanism::{Mechanism, on};
use crate::core::members::Member;
use crate::core::permission::{Permission, permit};
use crate::core::plan::{Draft, PRESUMED_LENGTH};
use crate::core::situation::Situation;

/// How long replicas may come back before the restarted master is promoted without them.
const ALONE_AFTER: Duration = Duration::from_secs(5);

/// How long a replica that is not too far behind may come back.
const BETTER_BACK: Duration = Duration::from_secs(30);

/// The next master is not presumed dead sooner than this after the last one was, in seconds.
const NOT_TWICE_WITHIN: i64 = 60;

/// As many presumed deaths as are remembered, within this many seconds, are no accident.
const FLAPPING_WITHIN: i64 = 900;

pub(super) fn death(situation: &Situation<'_>) -> Option<(ProcessRef, Death)> {
    let (process, member) = situation.master()?;
    match judge(situation, process) {
        Health::Dead(death) => Some((process.clone(), death)),
        // Fenced by somebody, perhaps by our own queued command: comparable like any replica.
        Health::Demoted if member.is_some_and(|member| member.outstanding.is_none()) => {
            Some((process.clone(), Death::Definitive("MasterDemoted")))
        }
        _ => None,
    }
}

pub(super) fn restarted_master_alone(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let member = situation.member_of(&from).filter(|member| member.listed)?;
    let info = restarted(situation, member)?;
    let worth = info.keys > 0 || !situation.record.ever_had_data;
    if matches!(death, Death::Presumptive(_)) || candidate::best(situation).is_some() || !worth {
        return None;
    }
    // Members that do not answer may hold more; give them time to come back.
    let all_answer = situation.listed().all(|member| member.settled(situation.now).is_some())
        && situation.listed().count() >= usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX);
    let had_its_time = |other: &Member| {
        let away = other.bad_since.is_some_and(|since| situation.now.saturating_sub(since) >= ALONE_AFTER);
        away || other.pod.ip.is_none() || other.settled(situation.now).is_some()
    };
    let waited = situation.now.saturating_sub(situation.evidence_since) >= ALONE_AFTER
        && situation.others(&from).all(had_its_time);
    Some(if all_answer || waited {
        open(PlanKind::Recover, "MasterRestartedWithoutReplica", Some(from), member.process())
    } else {
        Decision::Wait("RestartedMasterAlone")
    })
}

/// A replica that was told to follow the dead master and never got anything from it: it is neither a survivor with data nor
/// fenced, and would wait for a dead address for ever. Cut, it counts as what it is: a pod that was started anew.
pub(super) fn stray_replica(situation: &Situation<'_>) -> Option<Decision> {
    let (from, _) = death(situation)?;
    if candidate::best(situation).is_some() {
        return None; // the failover cuts everybody
    }
    let may_be_told = |member: &&Member| member.listed && situation.now >= member.command_again_at;
    let stray = situation.others(&from).filter(may_be_told).find(|member| {
        member.settled(situation.now).is_some_and(|info| {
            let waits = !info.link_up && !info.sync_in_progress && !info.loading;
            info.role == Role::Replica && !info.is_fenced() && waits && Member::position(info).is_none()
        })
    })?;
    let cut = Act::Command { uid: stray.pod.uid.clone(), command: RoleCommand::Detach };
    Some(Decision::Do(Box::new(cut), None))
}

/// Every pod answers and every pod is empty: the data is gone, and an empty master is better than none.
pub(super) fn cold_start_empty(situation: &Situation<'_>) -> Option<Decision> {
    let (from, _) = death(situation)?;
    let listed: Vec<&Member> = situation.listed().collect();
    let readings: Vec<(&Member, &Info)> =
        listed.iter().filter_map(|member| restarted(situation, member).map(|info| (*member, info))).collect();
    let wanted = usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX);
    let all_empty = readings.iter().all(|(_, info)| info.keys == 0 && Member::position(info).is_none());
    if readings.len() < listed.len() || readings.len() < wanted || !all_empty {
        return None;
    }
    let reason = if situation.record.ever_had_data { "DataLost" } else { "ColdStart" };
    Some(open(PlanKind::Recover, reason, Some(from), first_ordinal(&readings)))
}

/// No process that served is left, but data may be.
pub(super) fn cold_start(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let start = match cold::restart(situation, &from)? {
        Cold::Start(start) => start,
        Cold::Refuse(why) => return Some(Decision::Hold(Held::UnknownData, why)),
        Cold::Wait(_) if !fenced_for(situation, SETTLE) => return Some(Decision::Wait("ColdStart")),
        Cold::Wait(missing) => {
            return Some(Decision::Hold(
                Held::WaitingForMembers,
                format!(
                    "every pod that answers was started anew; waiting for {missing}, which may hold newer data: at \
                     most a minute, half a minute once the last master's pod is back"
                ),
            ));
        }
    };
    // Whoever could acknowledge it has been fenced for longer than its write lease lasts.
    if matches!(death, Death::Presumptive(_)) && !fenced_for(situation, DRAIN) {
        return Some(Decision::Wait("ColdStart"));
    }
    no_quorum(situation).or_else(|| Some(begin(Some(from), start)))
}

/// Have all fenced pods been so for this long?
pub(super) fn fenced_for(situation: &Situation<'_>, time: Duration) -> bool {
    let fenced = situation.listed().filter(|member| restarted(situation, member).is_some());
    let last = fenced.map(|member| member.fenced_since.unwrap_or(situation.now)).max();
    last.is_some_and(|last| situation.now.saturating_sub(last) >= time)
}

pub(super) fn begin(from: Option<ProcessRef>, start: Start) -> Decision {
    let Start { to, reason, why, overwrites } = start;
    let draft =
        Draft { to: Some(to), overwrites, why: Some(why), ..Draft::new(PlanKind::Recover, reason, from) };
    Decision::Open(Box::new(draft), Death::Definitive(reason))
}

/// More than one pod says that it is the master, the recorded one is not among them, and no replica of its data is left.
pub(super) fn ambiguous(situation: &Situation<'_>) -> Option<Decision> {
    let (from, _) = death(situation)?;
    let masters: Vec<&str> = situation
        .others(&from)
        .filter(|member| {
            member.reading(situation.now).is_some_and(|info| info.role == Role::Master && info.keys > 0)
        })
        .map(|member| member.pod.name.as_str())
        .collect();
    (!masters.is_empty() && candidate::best(situation).is_none()).then(|| {
        Decision::Hold(
            Held::Ambiguous,
            format!(
                "the master {} is dead, no replica of its data is left, and these say that they are masters, which nobody \
                 recorded: {}; delete the pods of all that are not to be kept",
                from.pod,
                masters.join(", ")
            ),
        )
    })
}

pub(super) fn no_safe_candidate(situation: &Situation<'_>) -> Option<Decision> {
    let (from, _) = death(situation)?;
    candidate::best(situation).is_none().then(|| {
        Decision::Hold(
            Held::NoSafeCandidate,
            format!(
                "the master {} is dead and no pod can replace it: {}",
                from.pod,
                candidate::exclusions(situation)
            ),
        )
    })
}

/// The best candidate is known to lack more of the stream than the user allows.
pub(super) fn too_stale(situation: &Situation<'_>) -> Option<Decision> {
    let (from, _) = death(situation)?;
    let best = candidate::best(situation)?;
    let message = candidate::too_stale(situation, &from, &best)?;
    let since =
        situation.member_of(&from).and_then(|member| member.bad_since).unwrap_or(situation.evidence_since);
    let waited = situation.now.saturating_sub(since.max(situation.evidence_since)) >= BETTER_BACK;
    Some(if waited { Decision::Hold(Held::TooStale, message) } else { Decision::Wait("TooStale") })
}

/// Deaths that are only presumed come too often: something is wrong that a change of the master does not cure.
pub(super) fn flapping(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    if matches!(death, Death::Definitive(_)) || situation.acknowledged() {
        return None;
    }
    let age = |at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| {
        situation.wall.as_second().saturating_sub(at.0.as_second())
    };
    let presumed = &situation.record.presumed;
    let within = |seconds: i64| presumed.iter().filter(|at| (0..seconds).contains(&age(at))).count();
    let soon = within(NOT_TWICE_WITHIN) > 0;
    let often = within(FLAPPING_WITHIN) >= PRESUMED_LENGTH;
    (soon || often).then(|| {
        let limit = if often {
            "three were replaced within a quarter of an hour, and no more are"
        } else {
            "one was replaced less than a minute ago, and the next is a minute after it"
        };
        Decision::Hold(
            Held::Flapping,
            format!(
                "{} seems dead ({}), but of masters that only seem dead {limit}: look for the cause (network, memory, long \
                 commands). To replace it now, {}",
                from.pod,
                death.reason(),
                situation.how_to_acknowledge()
            ),
        )
    })
}

pub(super) fn no_quorum(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let quorum = situation.record.write_quorum.effective;
    let will_be_silent =
        |member: &Member| member.is_gone() || member.reading(situation.now).is_some_and(|info| !info.loading);
    match permit(situation, &from, &death, quorum, will_be_silent) {
        Permission::Granted => None,
        Permission::Refused(arithmetic) => Some(Decision::Hold(Held::NoQuorum, arithmetic)),
    }
}

pub(super) fn dead_master(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let chosen = final_choice(situation, &from, &death);
    let draft = Draft {
        to: chosen.and_then(|best| best.member.process()),
        offset: chosen.map(|best| best.offset),
        presumed: matches!(death, Death::Presumptive(_)),
        ..Draft::new(PlanKind::Failover, death.reason(), Some(from))
    };
    Some(Decision::Open(Box::new(draft), death))
}

/// The successor, where nothing can change the choice any more: the old master has certainly ended, and every
/// replica that is alive says that its link is down, so that nobody's data grows. One record is saved, and
/// nobody needs to be cut first.
fn final_choice<'a>(
    situation: &Situation<'a>,
    from: &ProcessRef,
    death: &Death,
) -> Option<candidate::Candidate<'a>> {
    let sign = situation.member_of(from).and_then(|member| member.bad_since.or(member.predecessor_bad_since));
    let since = sign.map_or(situation.evidence_since, |sign| sign.max(situation.evidence_since));
    let stands_still = |member: &Member| {
        let reading = member.settled(situation.now).filter(|_| member.answer_since(since).is_some());
        reading.is_some_and(|info| info.role == Role::Replica && !info.link_up && !info.loading)
    };
    let is_final = matches!(death, Death::Definitive(_))
        && (!on(Mechanism::Stragglers)
            || situation
                .others(from)
                .all(|member| member.is_gone() || !member.listed || stands_still(member)));
    candidate::best(situation).filter(|best| is_final && best.member.pod.uid != from.uid)
}
