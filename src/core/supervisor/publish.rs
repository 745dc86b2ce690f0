//! The status that people read, from what is known now. Pure.
//!
//! Nothing here moves while nothing changes: steady messages carry no numbers that move, and a transition time
//! moves only with its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::Supervisor;
use crate::api::status::{LastFailover, MemberStatus, Phase, PlanStep, RedisClusterStatus, Supervision};
use crate::core::advance::Recorded;
use crate::core::event::{Effect, Measure, StateGauges};
use crate::core::facts::{Info, Mono, Now, Role};
use crate::core::heal::may_be_overwritten;
use crate::core::members::{Class, Member};
use crate::core::readiness::readiness;
use crate::core::situation::Situation;

/// Smallest pause between two writes that only tell.
const PAUSE: Mono = Mono::from_millis(500);

/// What lasts less than this is not told: one late answer would cost two writes.
const FLICKER: Mono = Mono::from_millis(700);

/// How long after a promotion the repointing comes first: the record that closes the plan publishes as well.
const HEALING: Mono = Mono::from_secs(2);

/// How long a suspicion may keep the status as it is.
const SUSPENSE: Mono = Mono::from_secs(2);

/// (type, status, reason, message)
type Verdict = (&'static str, bool, String, String);

impl Supervisor {
    /// Write the status when what people should read has changed.
    pub(super) fn publish(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.measure(now, effects);
        // An open plan has better things to write, unless it is stuck and people should know.
        let changing = self
            .record
            .plan
            .as_ref()
            .is_some_and(|plan| plan.step < PlanStep::Promoted || now.mono < self.step_since + HEALING);
        let urgent = changing && self.held.is_none();
        let Some(stored) = self.stored.as_ref().filter(|_| self.write.is_none() && !urgent) else { return };
        let status = self.compose(now, &self.record);
        if status == *stored {
            self.differs_since = None;
            return;
        }
        let since = *self.differs_since.get_or_insert(now.mono);
        self.publish_at = self.publish_at.max(since + FLICKER);
        if now.mono < self.publish_at {
            return;
        }
        // A failover may be next: it will say more, and its write must not wait for this one.
        if self.suspected_since.is_some_and(|since| now.mono < since + SUSPENSE) {
            return;
        }
        self.publish_at = now.mono + PAUSE;
        let next = if self.is_claimed() { Some(self.record.clone()) } else { self.claim() };
        let Some(next) = next else { return };
        self.write(now, &next, Recorded::Kept, effects);
    }

    /// The whole status around this record.
    pub(super) fn compose(&self, now: Now, record: &Supervision) -> RedisClusterStatus {
        let before = self.stored.clone().unwrap_or_default();
        let (members, ready, verdicts) = match &self.desired {
            Some(desired) => {
                let situation = Situation { record, ..self.situation(now, desired) };
                (member_states(&situation), ready(&situation), self.verdicts(&situation))
            }
            None => (before.members.clone(), 0, vec![spec_valid(self)]),
        };
        RedisClusterStatus {
            phase: Some(phase(&verdicts, record)),
            master: record.master.as_ref().map(|master| master.pod.clone()),
            epoch: record.epoch,
            replicas: self.report.replicas,
            ready_replicas: ready,
            selector: self.report.selector.clone(),
            observed_generation: self.report.observed_generation,
            members,
            supervision: (record.epoch > 0).then(|| record.clone()),
            last_failover: before.last_failover,
            conditions: conditions(now, self.report.observed_generation, &before.conditions, verdicts),
        }
    }

    fn verdicts(&self, situation: &Situation<'_>) -> Vec<Verdict> {
        vec![
            available(situation, self.is_routed()),
            writes_accepted(situation),
            replication_healthy(situation),
            failover_ready(situation),
            self.progressing(situation),
            self.held_verdict(),
            spec_valid(self),
        ]
    }

    fn progressing(&self, situation: &Situation<'_>) -> Verdict {
        if self.report.paused {
            let message = "spec.paused: objects are left as they are; failover goes on".to_owned();
            return ("Progressing", false, "Paused".to_owned(), message);
        }
        if let Some((reason, message)) = &self.report.progressing {
            return ("Progressing", true, reason.clone(), message.clone());
        }
        if let Some(plan) = situation.plan() {
            let message = format!("changing the master: {:?}, step {:?}", plan.kind, plan.step);
            return ("Progressing", true, plan.reason.clone(), message);
        }
        if situation.record.master.is_none() {
            let message = "waiting until every pod answers; then the first one becomes the master".to_owned();
            return ("Progressing", true, "WaitingForPods".to_owned(), message);
        }
        ("Progressing", false, "UpToDate".to_owned(), "all objects equal the spec".to_owned())
    }

    fn held_verdict(&self) -> Verdict {
        match &self.held {
            Some((held, message)) => ("Held", true, held.as_str().to_owned(), message.clone()),
            None => ("Held", false, "NotHeld".to_owned(), "nothing is held back".to_owned()),
        }
    }

    /// The finished role change, for the status and the metrics.
    pub(super) fn conclude(&self, now: Now) -> Option<LastFailover> {
        let plan = self.record.plan.as_ref()?;
        let lived = self.story.plan == plan.id;
        Some(LastFailover {
            at: Time(now.wall),
            kind: plan.kind,
            from: plan.from.as_ref().map(|from| from.pod.clone()),
            to: plan.to.as_ref().map(|to| to.pod.clone()).unwrap_or_default(),
            reason: plan.reason.clone(),
            took_ms: self.story.took_ms().filter(|_| lived),
            lost_bytes_known: self.story.lost_bytes_known().filter(|_| lived),
            stages: self.story.stages().filter(|_| lived),
        })
    }

    fn measure(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(desired) = self.desired.clone() else { return };
        let situation = self.situation(now, &desired);
        let gauges = StateGauges {
            epoch: self.record.epoch,
            has_master: situation.well_master().is_some(),
            writes_accepted: writes_accepted(&situation).1,
            failover_ready: failover_ready(&situation).1,
            members_in_sync: u32::try_from(ready(&situation)).unwrap_or(0),
            members: u32::try_from(situation.listed().count()).unwrap_or(u32::MAX),
            write_quorum_effective: self.record.write_quorum.effective,
            held: self.held.as_ref().map(|(held, _)| held.as_str()),
        };
        if self.gauges.as_ref() != Some(&gauges) {
            effects.push(Effect::Measure(Measure::State(gauges.clone())));
            self.gauges = Some(gauges);
        }
    }
}

fn phase(verdicts: &[Verdict], record: &Supervision) -> Phase {
    let is = |name: &str| verdicts.iter().any(|(kind, status, ..)| *kind == name && *status);
    if !is("SpecValid") {
        Phase::Failed
    } else if is("Held") {
        Phase::Held
    } else if record.master.is_none() {
        Phase::Creating
    } else if record.plan.as_ref().is_some_and(|plan| plan.step < PlanStep::Promoted) {
        Phase::FailingOver
    } else if is("Available") && is("ReplicationHealthy") {
        Phase::Ready
    } else {
        Phase::Degraded
    }
}

fn available(situation: &Situation<'_>, routed: bool) -> Verdict {
    let (status, reason, message) = match (situation.record.master.as_ref(), situation.well_master()) {
        (None, _) => (false, "NoMasterYet", "no pod has been made the master yet".to_owned()),
        (Some(master), None) => {
            (false, "MasterNotAnswering", format!("{} does not answer as the master", master.pod))
        }
        (Some(_), Some(_)) if !routed => {
            (false, "NotRouted", "the master Service does not lead to the master yet".to_owned())
        }
        (Some(master), Some(_)) => (true, "MasterAnswers", format!("{} is the master", master.pod)),
    };
    ("Available", status, reason.to_owned(), message)
}

fn writes_accepted(situation: &Situation<'_>) -> Verdict {
    let Some((_, info)) = situation.well_master() else {
        let message = "there is no master that answers".to_owned();
        return ("WritesAccepted", false, "NoMaster".to_owned(), message);
    };
    let starved = info.good_replicas.is_some_and(|good| good == 0);
    if starved {
        let message =
            "the master refuses writes because too few replicas acknowledge (min-replicas-to-write)";
        return ("WritesAccepted", false, "WriteQuorumNotMet".to_owned(), message.to_owned());
    }
    ("WritesAccepted", true, "MasterAcceptsWrites".to_owned(), "the master accepts writes".to_owned())
}

fn replication_healthy(situation: &Situation<'_>) -> Verdict {
    let wanted = situation.desired.replicas.saturating_sub(1);
    if situation.foreign_replicas() > 0 {
        let message = "the master feeds a replica that is none of this cluster's pods".to_owned();
        return ("ReplicationHealthy", false, "ForeignReplica".to_owned(), message);
    }
    let in_sync = situation.in_sync_count();
    if in_sync >= wanted {
        let message = if wanted == 0 { "a single pod has no replicas" } else { "every replica is in sync" };
        return ("ReplicationHealthy", true, "AllInSync".to_owned(), message.to_owned());
    }
    let message = format!("{in_sync} of {wanted} replicas are in sync");
    ("ReplicationHealthy", false, "ReplicasMissing".to_owned(), message)
}

fn failover_ready(situation: &Situation<'_>) -> Verdict {
    match readiness(situation) {
        Ok((reason, message)) => ("FailoverReady", true, reason.to_owned(), message),
        Err((reason, message)) => ("FailoverReady", false, reason.to_owned(), message),
    }
}

fn spec_valid(supervisor: &Supervisor) -> Verdict {
    match &supervisor.report.spec_invalid {
        None => ("SpecValid", true, "Valid".to_owned(), "the spec is valid".to_owned()),
        Some((reason, message)) => ("SpecValid", false, reason.clone(), message.clone()),
    }
}

fn ready(situation: &Situation<'_>) -> i32 {
    let master = u32::from(situation.well_master().is_some());
    i32::try_from(master + situation.in_sync_count()).unwrap_or(i32::MAX)
}

fn member_states(situation: &Situation<'_>) -> Vec<MemberStatus> {
    let mut members: Vec<&Member> = situation.listed().collect();
    members.sort_by_key(|member| member.pod.ordinal);
    members
        .into_iter()
        .map(|member| {
            let is_master = situation.record.master.as_ref().is_some_and(|master| member.is(master));
            let info = member.reading(situation.now);
            let role = match info.map(|info| info.role) {
                Some(Role::Master) if is_master => "master",
                Some(Role::Replica) if info.is_some_and(|info| !info.is_fenced()) => "replica",
                _ => "none",
            };
            let state = state_of(situation, member, info);
            MemberStatus { pod: member.pod.name.clone(), role: role.to_owned(), state: state.to_owned() }
        })
        .collect()
}

fn state_of(situation: &Situation<'_>, member: &Member, info: Option<&Info>) -> &'static str {
    let is_master = situation.record.master.as_ref().is_some_and(|master| member.is(master));
    match (info, member.class(situation.now)) {
        (_, Class::Refused | Class::Unroutable) => "Unreachable",
        (_, Class::Hung) => "Hung",
        (_, Class::Busy) => "Busy",
        (_, Class::Denied) => "AccessDenied",
        (None, _) => "Unknown",
        (Some(info), _) if info.loading => "Loading",
        (Some(info), _) if info.role == Role::Master => {
            if is_master {
                "Master"
            } else {
                "UnrecordedMaster"
            }
        }
        (Some(info), _) if !may_be_overwritten(situation, member, info) => "ForeignData",
        (Some(info), _) if info.is_fenced() => "Fenced",
        (Some(_), _) if situation.in_sync(member) => "InSync",
        (Some(_), _) => "Syncing",
    }
}

/// Conditions with their transition times: a time moves only with the status.
fn conditions(
    now: Now,
    generation: Option<i64>,
    before: &[Condition],
    verdicts: Vec<Verdict>,
) -> Vec<Condition> {
    verdicts
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let status = if status { "True" } else { "False" };
            let last_transition_time = before
                .iter()
                .find(|condition| condition.type_ == kind && condition.status == status)
                .map_or_else(|| Time(now.wall), |condition| condition.last_transition_time.clone());
            Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason,
                message,
                observed_generation: generation,
                last_transition_time,
            }
        })
        .collect()
}
