//! The decision table: one ordered list of small rules. The first match acts. Pure.
//!
//! A rule looks at the [`Situation`] and either has nothing to say or decides. The list is the specification;
//! its order carries the safety: may we act at all, is what is recorded still true, is the master alive, and
//! only then who replaces it.

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::advance::DRAIN;
use super::candidate;
use super::cold::{self, Cold, Start};
use super::facts::{Info, Role};
use super::health::{Death, Health, judge};
use super::held::Held;
use super::members::{Class, Member};
use super::permission::{Permission, permit};
use super::plan::Draft;
use super::situation::Situation;
use crate::api::status::{PlanKind, PlanStep, ProcessRef};

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
    /// The master is well: keep everything else well.
    Heal,
}

/// One row of the decision table.
pub struct Rule {
    pub name: &'static str,
    pub decide: fn(&Situation<'_>) -> Option<Decision>,
}

/// The list. Rows that are recognized but not decided yet hold with `NotYetDecided`.
pub const RULES: &[Rule] = &[
    // May we act at all?
    Rule { name: "Standby", decide: standby },
    Rule { name: "ControlPlaneLost", decide: control_plane_lost },
    Rule { name: "WarmUp", decide: warm_up },
    Rule { name: "BlindSupervisor", decide: blind },
    Rule { name: "Resume", decide: resume },
    // Is what is recorded still true?
    Rule { name: "EmptyMaster", decide: empty_master },
    Rule { name: "ExternalFailover", decide: external_failover },
    // Starting.
    Rule { name: "Bootstrap", decide: bootstrap },
    Rule { name: "Single", decide: single },
    // Is the master alive?
    Rule { name: "PartitionOperatorMaster", decide: partitioned },
    Rule { name: "AccessProblem", decide: access_problem },
    Rule { name: "LoadingMaster", decide: loading_master },
    Rule { name: "BusyMaster", decide: busy_master },
    Rule { name: "HungMaster", decide: hung_master },
    Rule { name: "Suspect", decide: suspect },
    // It is dead. Who replaces it?
    Rule { name: "ColdStartEmpty", decide: cold_start_empty },
    Rule { name: "ColdStart", decide: cold_start },
    Rule { name: "RestartedMasterAlone", decide: restarted_master_alone },
    Rule { name: "NoSafeCandidate", decide: no_safe_candidate },
    Rule { name: "NoQuorum", decide: no_quorum },
    Rule { name: "DeadMaster", decide: dead_master },
    // Alive, but about to go.
    Rule { name: "LeavingMaster", decide: leaving_master },
];

/// How long old evidence stays void after a start or a stall.
const WARM_UP: Duration = Duration::from_millis(300);

/// How long a contradiction must last before people are told.
const SETTLE: Duration = Duration::from_secs(1);

/// How long an ordinary start may take before people are told what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a suspicion that is neither confirmed nor refuted stays unsaid.
const UNCONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// How long replicas may come back before the restarted master is promoted without them.
const ALONE_AFTER: Duration = Duration::from_secs(5);

/// The first rule that matches, and its name. When none does, the master is well and the rest is healing.
pub fn decide(situation: &Situation<'_>) -> (&'static str, Decision) {
    RULES
        .iter()
        .find_map(|rule| (rule.decide)(situation).map(|decision| (rule.name, by_hand(situation, decision))))
        .unwrap_or(("Healthy", Decision::Heal))
}

/// In manual mode another pod is not made the master, only named. The first start, and a master that comes back with
/// its own data, move nothing.
fn by_hand(situation: &Situation<'_>, decision: Decision) -> Decision {
    let Decision::Open(draft, _) = &decision else { return decision };
    let Some(from) = &draft.from else { return decision };
    if situation.desired.automatic || draft.to.as_ref().is_some_and(|to| to.pod == from.pod) {
        return decision;
    }
    let successor = match (&draft.to, candidate::best(situation)) {
        (Some(to), _) => format!(" by {}", to.pod),
        (None, Some(best)) => format!(" by {}", best.member.pod.name),
        (None, None) => String::new(),
    };
    Decision::Hold(
        Held::ManualMode,
        format!(
            "{} would be replaced{successor} ({}), but spec.failover.mode is Manual; set it to Automatic to let that \
             happen",
            from.pod, draft.reason
        ),
    )
}

// May we act at all?

fn standby(situation: &Situation<'_>) -> Option<Decision> {
    situation.term.is_none().then_some(Decision::Wait("Standby"))
}

fn control_plane_lost(situation: &Situation<'_>) -> Option<Decision> {
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

fn warm_up(situation: &Situation<'_>) -> Option<Decision> {
    let young = situation.now.saturating_sub(situation.evidence_since) < WARM_UP;
    (young && situation.well_master().is_none()).then_some(Decision::Wait("WarmUp"))
}

fn blind(situation: &Situation<'_>) -> Option<Decision> {
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

fn resume(situation: &Situation<'_>) -> Option<Decision> {
    (situation.plan()?.step < PlanStep::Promoted).then_some(Decision::Advance)
}

// Is what is recorded still true?

fn empty_master(situation: &Situation<'_>) -> Option<Decision> {
    let (master, info) = situation.well_master()?;
    let others_have_data = situation.members.values().any(|member| {
        member.pod.uid != master.pod.uid
            && member.reading(situation.now).is_some_and(|info| info.keys > 0 && !info.link_up)
    });
    let unrecorded = situation.current_id() != Some(info.replid.as_str());
    (situation.record.ever_had_data && info.keys == 0 && unrecorded && others_have_data).then(|| {
        not_yet_decided(
            "the master is empty under a replication id that is not recorded, while replicas hold data",
        )
    })
}

fn external_failover(situation: &Situation<'_>) -> Option<Decision> {
    let (process, member) = situation.master()?;
    let member = member?;
    let info = member.reading(situation.now).filter(|info| info.role == Role::Replica)?;
    let followed = situation.members.values().find(|other| {
        other.reading(situation.now).is_some_and(|other_info| other_info.role == Role::Master)
            && other.pod.ip.is_some_and(|ip| Situation::streams_from(info, ip))
    })?;
    member.is(process).then(|| {
        not_yet_decided(&format!(
            "the recorded master follows {}: somebody else moved the master",
            followed.pod.name
        ))
    })
}

// Starting.

fn bootstrap(situation: &Situation<'_>) -> Option<Decision> {
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
            Cold::Wait(_) if !has_lasted(situation, PATIENCE) => Decision::Wait("WaitingForPods"),
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
    if readings.len() < wanted || readings.len() < listed.len() || !all_fenced {
        return Some(Decision::Wait("WaitingForPods"));
    }
    let to = first_ordinal(&readings)?;
    Some(if situation.desired.data_expected {
        open(PlanKind::Recover, "DataLost", None, Some(to))
    } else {
        open(PlanKind::Bootstrap, "Bootstrap", None, Some(to))
    })
}

// Is the master alive?

fn health(situation: &Situation<'_>) -> Option<Health> {
    situation.master().map(|(process, _)| judge(situation, process))
}

fn partitioned(situation: &Situation<'_>) -> Option<Decision> {
    let Health::AliveByWitness { witness } = health(situation)? else { return None };
    let since = situation.master()?.1.and_then(|member| member.bad_since).unwrap_or(situation.evidence_since);
    Some(if situation.now.saturating_sub(since) < SETTLE {
        Decision::Wait("PartitionOperatorMaster")
    } else {
        Decision::Hold(
            Held::SupervisorPartitioned,
            format!(
                "the operator cannot reach the master, but its replica {witness} is being fed by it: the master \
                 is alive"
            ),
        )
    })
}

fn access_problem(situation: &Situation<'_>) -> Option<Decision> {
    matches!(health(situation)?, Health::Sick(Class::Denied)).then(|| {
        not_yet_decided("the master answers but does not let the operator in (password, or too many clients)")
    })
}

fn loading_master(situation: &Situation<'_>) -> Option<Decision> {
    matches!(health(situation)?, Health::Sick(Class::Loading))
        .then(|| not_yet_decided("the recorded master process is loading a data set"))
}

fn busy_master(situation: &Situation<'_>) -> Option<Decision> {
    matches!(health(situation)?, Health::Sick(Class::Busy))
        .then(|| not_yet_decided("the master is busy with a script"))
}

fn hung_master(situation: &Situation<'_>) -> Option<Decision> {
    matches!(health(situation)?, Health::Sick(Class::Hung))
        .then(|| not_yet_decided("the master accepts connections but answers nothing"))
}

fn suspect(situation: &Situation<'_>) -> Option<Decision> {
    if health(situation)? != Health::Suspect {
        return None;
    }
    let (process, member) = situation.master()?;
    let since = member.and_then(|member| member.bad_since).unwrap_or(situation.evidence_since);
    let patience = situation.desired.unreachable_after + UNCONFIRMED_AFTER;
    Some(if situation.now.saturating_sub(since.max(situation.evidence_since)) < patience {
        Decision::Wait("Suspect")
    } else {
        Decision::Hold(
            Held::DeathUnconfirmed,
            format!(
                "{} does not answer, but that it is dead is not certain: no replica that answers can tell; it is \
                 replaced when one can, or when it answers again it goes on",
                process.pod
            ),
        )
    })
}

// It is dead. Who replaces it?

fn death(situation: &Situation<'_>) -> Option<(ProcessRef, Death)> {
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

/// A cluster of one pod: whatever its only pod holds is all there is.
fn single(situation: &Situation<'_>) -> Option<Decision> {
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

fn restarted_master_alone(situation: &Situation<'_>) -> Option<Decision> {
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

/// Every pod answers and every pod is empty: the data is gone, and an empty master is better than none.
fn cold_start_empty(situation: &Situation<'_>) -> Option<Decision> {
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
fn cold_start(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let start = match cold::restart(situation, &from)? {
        Cold::Start(start) => start,
        Cold::Refuse(why) => return Some(Decision::Hold(Held::UnknownData, why)),
        Cold::Wait(_) if !has_lasted(situation, SETTLE) => return Some(Decision::Wait("ColdStart")),
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
    if matches!(death, Death::Presumptive(_)) && !has_lasted(situation, DRAIN) {
        return Some(Decision::Wait("ColdStart"));
    }
    no_quorum(situation).or_else(|| Some(begin(Some(from), start)))
}

/// Have all fenced pods been so for this long?
fn has_lasted(situation: &Situation<'_>, time: Duration) -> bool {
    let fenced = situation.listed().filter(|member| restarted(situation, member).is_some());
    let last = fenced.map(|member| member.fenced_since.unwrap_or(situation.now)).max();
    last.is_some_and(|last| situation.now.saturating_sub(last) >= time)
}

fn begin(from: Option<ProcessRef>, start: Start) -> Decision {
    let Start { to, reason, why, overwrites } = start;
    let draft =
        Draft { to: Some(to), overwrites, why: Some(why), ..Draft::new(PlanKind::Recover, reason, from) };
    Decision::Open(Box::new(draft), Death::Definitive(reason))
}

fn no_safe_candidate(situation: &Situation<'_>) -> Option<Decision> {
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

fn no_quorum(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let quorum = situation.record.write_quorum.effective;
    let will_be_silent =
        |member: &Member| member.is_gone() || member.reading(situation.now).is_some_and(|info| !info.loading);
    match permit(situation, &from, &death, quorum, will_be_silent) {
        Permission::Granted => None,
        Permission::Refused(arithmetic) => Some(Decision::Hold(Held::NoQuorum, arithmetic)),
    }
}

fn dead_master(situation: &Situation<'_>) -> Option<Decision> {
    let (from, death) = death(situation)?;
    let chosen = final_choice(situation, &from, &death);
    let draft = Draft {
        to: chosen.and_then(|best| best.member.process()),
        offset: chosen.map(|best| best.offset),
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
        && situation.others(from).all(|member| member.is_gone() || !member.listed || stands_still(member));
    candidate::best(situation).filter(|best| is_final && best.member.pod.uid != from.uid)
}

// Alive, but about to go.

fn leaving_master(situation: &Situation<'_>) -> Option<Decision> {
    let (member, _) = situation.well_master()?;
    (member.pod.terminating || !member.listed).then(|| {
        not_yet_decided(
            "the master's pod is being deleted but still answers; it is replaced when it has stopped",
        )
    })
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

fn not_yet_decided(what: &str) -> Decision {
    Decision::Hold(Held::NotYetDecided, format!("{what}; what to do then is not decided yet"))
}
