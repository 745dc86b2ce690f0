//! Is the master alive? Pure.

use std::time::Duration;

use super::{Decision, SETTLE};
use crate::core::advance::Act;
use crate::core::event::RoleCommand;
use crate::core::facts::Mono;
use crate::core::health::{Health, judge};
use crate::core::held::Held;
use crate::core::members::Class;
use crate::core::situation::Situation;

/// How long a suspicion that is neither confirmed nor refuted stays unsaid.
const UNCONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// How long a script may keep the master busy before it is ended.
const SCRIPT: Duration = Duration::from_secs(15);

fn health(situation: &Situation<'_>) -> Option<Health> {
    situation.master().map(|(process, _)| judge(situation, process))
}

/// Since when the recorded master has not answered as it should.
fn bad_since(situation: &Situation<'_>) -> Mono {
    let since = situation.master().and_then(|(_, member)| member?.bad_since);
    since.map_or(situation.evidence_since, |since| since.max(situation.evidence_since))
}

pub(super) fn partitioned(situation: &Situation<'_>) -> Option<Decision> {
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

/// It answers, so it is alive; that we are not let in is no reason to replace it.
pub(super) fn access_problem(situation: &Situation<'_>) -> Option<Decision> {
    if !matches!(health(situation)?, Health::Sick(Class::Denied)) {
        return None;
    }
    let (process, member) = situation.master()?;
    let why = member.and_then(|member| member.denied.as_deref()).unwrap_or("it gives no reason");
    Some(Decision::Hold(
        Held::AccessProblem,
        format!(
            "{} is alive but does not let the operator in ({why}): it is left as it is. When it has too many clients, end \
             some or raise maxclients; when the operator's user was changed there by hand, restart that pod",
            process.pod
        ),
    ))
}

/// The recorded process loads a data set: somebody told it to, since a restarted one would be another process.
pub(super) fn loading_master(situation: &Situation<'_>) -> Option<Decision> {
    if !matches!(health(situation)?, Health::Sick(Class::Loading)) {
        return None;
    }
    let (process, member) = situation.master()?;
    let since = member.and_then(|member| member.loading_since).unwrap_or(situation.now);
    Some(if situation.now.saturating_sub(since) < SETTLE {
        Decision::Wait("LoadingMaster")
    } else {
        Decision::Hold(
            Held::LoadingMaster,
            format!(
                "{} is loading a data set without having been restarted; it takes no command meanwhile, and goes on by \
                 itself when it is done. To replace it at once, delete its pod",
                process.pod
            ),
        )
    })
}

/// A script keeps it from everything else. One that has not written yet can be ended; one that has cannot, and after a
/// minute the master counts like one that hangs.
pub(super) fn busy_master(situation: &Situation<'_>) -> Option<Decision> {
    if !matches!(health(situation)?, Health::Sick(Class::Busy)) {
        return None;
    }
    let (process, member) = situation.master()?;
    let member = member?;
    let busy = situation.now.saturating_sub(member.busy_since.unwrap_or(situation.now));
    if busy < SETTLE {
        return Some(Decision::Wait("BusyMaster"));
    }
    let held = (
        Held::BusyMaster,
        format!(
            "{} is busy with a script, and nobody else is served: after 15 s the script is ended, if it has not written \
             yet; after a minute the master is replaced, once no replica has word from it. Shorten the script",
            process.pod
        ),
    );
    if busy < SCRIPT || !situation.desired.automatic {
        return Some(Decision::Hold(held.0, held.1));
    }
    let kill = Act::Command { uid: process.uid.clone(), command: RoleCommand::KillScript };
    Some(Decision::Do(Box::new(kill), Some(held)))
}

/// It accepts connections and answers nothing, not for long enough yet.
pub(super) fn hung_master(situation: &Situation<'_>) -> Option<Decision> {
    let (_, member) = situation.master()?;
    let hangs = member.is_some_and(|member| member.class(situation.now) == Class::Hung);
    if !hangs || health(situation)? != Health::Suspect {
        return None;
    }
    let patience = situation.desired.hung_after + UNCONFIRMED_AFTER;
    (situation.now.saturating_sub(bad_since(situation)) < patience).then_some(Decision::Wait("HungMaster"))
}

pub(super) fn suspect(situation: &Situation<'_>) -> Option<Decision> {
    if health(situation)? != Health::Suspect {
        return None;
    }
    let (process, _) = situation.master()?;
    let patience = situation.desired.unreachable_after + UNCONFIRMED_AFTER;
    Some(if situation.now.saturating_sub(bad_since(situation)) < patience {
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
