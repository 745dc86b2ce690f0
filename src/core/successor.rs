//! The process on record that is to become the master: while its fate is open, nobody else is promoted. Pure.

use std::time::Duration;

use super::advance::{Act, Advance, DRAIN, Recorded, command};
use super::event::RoleCommand;
use super::facts::Info;
use super::heal;
use super::held::Held;
use super::mechanism::{Mechanism, on};
use super::members::{Class, Member};
use super::plan;
use super::situation::Situation;
use crate::api::status::{Plan, ProcessRef};

/// A process on which the plan depends may be out of reach for so long before another operator tries.
const YIELD_AFTER: Duration = Duration::from_secs(30);

/// What is known of it.
pub enum Fate<'a> {
    /// Nothing of it is left.
    Ended,
    /// It may have been promoted already; what is done meanwhile, and said.
    Open(Advance),
    /// It answers; a command to it may be under way.
    Answers { member: &'a Member, info: &'a Info },
}

/// Looks at it.
pub fn fate<'a>(situation: &Situation<'a>, to: &ProcessRef) -> Fate<'a> {
    let member = situation.member_of(to);
    let answer = member.and_then(|member| member.reading(situation.now));
    if has_ended(situation, to, member) || (answer.is_none() && !on(Mechanism::NobodyElseMeanwhile)) {
        return Fate::Ended;
    }
    match (member, answer) {
        (None, _) => Fate::Open(waiting_for(to, "its pod is gone, but its process is not proven ended")),
        (Some(member), Some(info)) if member.is(to) => Fate::Answers { member, info },
        (Some(member), _) => Fate::Open(waiting_for_answer(situation, to, member)),
    }
}

/// Nothing of the recorded successor is left: its pod runs another process; or its listener went away with our
/// connection; or its pod has been gone for longer than any lease. Until it is on record nobody was routed to
/// it and nobody could sync from it.
fn has_ended(situation: &Situation<'_>, to: &ProcessRef, member: Option<&Member>) -> bool {
    let Some(member) = member else { return situation.now >= situation.step_since + DRAIN };
    let replaced = member.process().is_some_and(|process| process.run_id != to.run_id);
    let gone = member.is_gone() && member.run_id.as_deref() == Some(&to.run_id);
    let deleted = member.link_id().is_none()
        && member
            .unlisted_since
            .is_some_and(|since| situation.now >= since.max(situation.step_since) + DRAIN);
    replaced || gone || deleted
}

/// It was read as a master: by this plan, and goes on record; or by an older one, and is made a replica first.
pub fn found_as_master(situation: &Situation<'_>, plan: &Plan, to: &ProcessRef, info: &Info) -> Advance {
    let known = situation.record.lineage.iter().any(|lineage| lineage.id == info.replid);
    if known {
        return command(&to.uid, RoleCommand::Demote);
    }
    let members = std::iter::once(&to.uid).chain(&plan.overwrites).cloned().collect();
    Advance::record(plan::promoted(situation.record, to, info, members), Recorded::Promoted)
}

/// With the write quorum that the plan recorded: what the record says is in force from the promotion on.
pub fn promote(situation: &Situation<'_>, to: &ProcessRef) -> Advance {
    command(&to.uid, RoleCommand::Promote { write_quorum: situation.record.write_quorum.effective })
}

/// Nobody is promoted until this is over.
pub fn waiting_for(to: &ProcessRef, why: &str) -> Advance {
    Advance::hold(
        Held::WaitingForTarget,
        format!(
            "{} is recorded as the next master and may have been promoted already, but {why}; nobody else is \
             promoted until that is known",
            to.pod
        ),
    )
}

/// It does not answer. A hung process is ended with its pod; one that cannot be reached from here may be from another
/// operator.
pub fn waiting_for_answer(situation: &Situation<'_>, to: &ProcessRef, member: &Member) -> Advance {
    let mut wait = waiting_for(to, "it does not answer");
    if heal::has_hung(situation, member) {
        wait.acts.push(Act::DeletePod { uid: member.pod.uid.clone() });
    } else if member.class(situation.now) == Class::Unroutable
        && situation.now >= situation.step_since + YIELD_AFTER
    {
        wait.acts.push(Act::YieldLease);
    }
    wait
}
