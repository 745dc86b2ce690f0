//! The master is well and on record: keep everything else well. Pure.
//!
//! Replicas follow the recorded master, its replication id is on record, the write quorum is as high as the
//! replicas allow, and a plan whose work is done is closed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::advance::{Act, Recorded};
use super::event::RoleCommand;
use super::facts::{Info, NodeState, Profile, REDIS_PORT, Role};
use super::mechanism::{Mechanism, on};
use super::members::{Class, Member};
use super::plan;
use super::situation::Situation;
use crate::api::status::{PlanStep, Supervision, WriteQuorum};

/// A process that hangs for so long in the way of something is ended with its pod.
const HUNG_FOR: Duration = Duration::from_secs(60);

/// Silence of the last replica before the master's write quorum is relaxed.
pub const RELAX_AFTER: Duration = Duration::from_secs(10);

/// A replica may take this long to connect before it is taken for stuck.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a member out of sync is expected to become the second copy of the data.
const EXPECTED_FOR: Duration = Duration::from_secs(60);

/// An unfinished repoint keeps a plan open for at most this long.
const CLOSE_AFTER: Duration = Duration::from_secs(10);

/// What the cluster needs now. `routed`: the master Service leads to the recorded master.
pub fn heal(situation: &Situation<'_>, routed: bool) -> Vec<Act> {
    let Some((master, info)) = situation.well_master() else { return Vec::new() };
    let mut acts = Vec::new();
    acts.extend(serve(situation, master, info));
    acts.extend(follow(situation, master, info));
    acts.extend(end_hung(situation, master));
    acts.extend(set_quorum(situation, master, info));
    acts.extend(record(situation, info, routed));
    acts
}

/// Let replicas sync from the recorded master, once its id is on record.
fn serve(situation: &Situation<'_>, master: &Member, info: &Info) -> Option<Act> {
    let ip = master.pod.ip?;
    let knocking = situation.members.values().any(|member| {
        member
            .reading(situation.now)
            .is_some_and(|info| Member::follows(info, ip, REDIS_PORT) && !info.link_up && !info.loading)
    });
    let wanted = situation.members.values().any(|member| {
        member.pod.uid != master.pod.uid && member.reading(situation.now).is_some_and(Info::is_fenced)
    });
    let served = master.served_at.is_some_and(|at| !knocking || situation.now < at + CONNECT);
    // A pod alone serves nobody; its end waits for nobody either.
    let planned = situation.plan().is_some() && situation.desired.replicas > 1;
    let needed = knocking || (wanted && info.attached.is_empty()) || planned;
    (needed && !served && id_recorded(situation, info) && master.outstanding.is_none())
        .then(|| command(master, RoleCommand::Serve))
}

fn id_recorded(situation: &Situation<'_>, info: &Info) -> bool {
    situation.current_id() == Some(info.replid.as_str()) || !on(Mechanism::IdChangeRecorded)
}

/// Point every other pod to the master: partial syncs at once, full ones singly.
fn follow(situation: &Situation<'_>, master: &Member, master_info: &Info) -> Vec<Act> {
    let Some(ip) = master.pod.ip else { return Vec::new() };
    let open = master.served_at.is_some() || !master_info.attached.is_empty();
    if !open || !id_recorded(situation, master_info) {
        return Vec::new();
    }
    let mut full_syncs = situation
        .members
        .values()
        .filter(|member| {
            let told = member.followed_at.is_some_and(|at| situation.now < at + CONNECT);
            member.reading(situation.now).is_some_and(|info| {
                Member::follows(info, ip, REDIS_PORT) && !info.link_up && (told || info.sync_in_progress)
            })
        })
        .count();
    let mut acts = Vec::new();
    for member in situation.listed().filter(|member| member.pod.uid != master.pod.uid) {
        let Some(info) = member.settled(situation.now) else { continue };
        if Member::follows(info, ip, REDIS_PORT) || info.loading || member.pod.terminating {
            continue;
        }
        if !may_be_overwritten(situation, member, info) {
            if info.role == Role::Master {
                acts.push(command(member, RoleCommand::Demote)); // its data stays
            }
            continue;
        }
        let partial = Member::position(info).is_some()
            && (info.replid == master_info.replid || info.replid == master_info.replid2);
        if !partial && master_info.keys > 0 {
            if full_syncs > 0 {
                continue;
            }
            full_syncs += 1;
        }
        let cut_clients = info.role == Role::Master;
        acts.push(command(member, RoleCommand::Follow { ip, port: REDIS_PORT, cut_clients }));
    }
    acts
}

/// Data that this cluster does not know is not overwritten before the pod is admitted: see [`admit`].
pub fn may_be_overwritten(situation: &Situation<'_>, member: &Member, info: &Info) -> bool {
    let registered = situation.record.registered.contains(&member.pod.uid);
    let known = situation.record.lineage.iter().any(|lineage| lineage.id == info.replid);
    let harmless = info.keys == 0 || registered || known || !on(Mechanism::ShrinkGuard);
    harmless && !is_kept_apart(situation, member)
}

/// A master that was replaced and still hangs would wake as one: it is better ended. Elsewhere than on a node that is
/// fit nobody could end it.
fn end_hung(situation: &Situation<'_>, master: &Member) -> Option<Act> {
    let hung = situation.listed().filter(|member| member.pod.uid != master.pod.uid).find(|member| {
        let was_master = member.sample.as_ref().is_some_and(|sample| sample.info.role == Role::Master);
        was_master && has_hung(situation, member)
    })?;
    Some(Act::DeletePod { uid: hung.pod.uid.clone() })
}

/// Hung for so long that it is to be ended, on a node where that can be done.
pub fn has_hung(situation: &Situation<'_>, member: &Member) -> bool {
    let since =
        member.bad_since.unwrap_or(situation.now).max(situation.evidence_since).max(situation.step_since);
    member.class(situation.now) == Class::Hung
        && member.pod.node_state == NodeState::Fit
        && !member.pod.terminating
        && situation.now.saturating_sub(since) >= HUNG_FOR
}

/// In the profile Durable, writes that the recorded data does not have are kept until a person has looked.
pub fn is_kept_apart(situation: &Situation<'_>, member: &Member) -> bool {
    let is_master = situation.record.master.as_ref().is_some_and(|master| member.is(master));
    if situation.desired.profile != Profile::Durable || situation.acknowledged() || is_master {
        return false;
    }
    member.reading(situation.now).is_some_and(|info| {
        let position =
            if info.role == Role::Master { Some(info.master_offset) } else { Member::position(info) };
        let ended = situation.record.lineage.iter().find(|lineage| lineage.id == info.replid);
        let beyond = ended.and_then(|lineage| lineage.valid_up_to).zip(position);
        info.keys > 0 && beyond.is_some_and(|(end, position)| position > end)
    })
}

/// Raise the write quorum when enough replicas acknowledge; take it back when the record says 0.
fn set_quorum(situation: &Situation<'_>, master: &Member, info: &Info) -> Option<Act> {
    if master.outstanding.is_some() {
        return None;
    }
    let in_force = info.good_replicas.is_some();
    let wanted = wanted_quorum(situation, info);
    if wanted > 0 && !in_force {
        return Some(command(master, RoleCommand::SetWriteQuorum(wanted)));
    }
    // The record is lowered first; here it has been.
    let may_lower = situation.desired.profile != Profile::Durable || situation.desired.write_quorum == 0;
    let lower = wanted == 0 && situation.record.write_quorum.effective == 0 && in_force && may_lower;
    let worthless = situation.desired.write_quorum == 0 || situation.in_sync_count() == 0;
    (lower && worthless).then(|| command(master, RoleCommand::SetWriteQuorum(0)))
}

/// The write quorum that the replicas in sync allow now.
fn wanted_quorum(situation: &Situation<'_>, info: &Info) -> u32 {
    let desired = situation.desired.write_quorum;
    let allowed = situation.in_sync_count() >= desired
        && id_recorded(situation, info)
        && situation.foreign_replicas() == 0
        && situation.plan().is_none_or(|plan| plan.step == PlanStep::Promoted);
    if allowed { desired } else { 0 }
}

/// Bring the record up to what is true now: one write for all of it.
fn record(situation: &Situation<'_>, info: &Info, routed: bool) -> Option<Act> {
    let mut next = situation.record.clone();
    let mut what = Recorded::Kept;
    if !id_recorded(situation, info) {
        next = plan::id_changed(&next, info);
    }
    next.ever_had_data |= info.keys > 0;
    register_members(situation, &mut next);
    let admitted = admit(situation, info);
    if let Some(member) = admitted {
        plan::register(&mut next, member.pod.uid.clone());
        what = Recorded::Admitted { pod: member.pod.name.clone() };
    }
    next = plan::quorum(&next, quorum_on_record(situation, info));
    if admitted.is_none() && situation.plan().is_some() && routed && settled_down(situation) {
        next = plan::close(&next);
        what = Recorded::Closed;
    }
    (next != *situation.record).then(|| Act::Record { next: Box::new(next), what })
}

/// A pod came with data that is not in the recorded history: a volume of before a scale in, or the last master's
/// after others went on without it. Once the recorded data has a second copy, or no other pod can become one sooner,
/// the pod may follow; that it may is on record before it is told to.
fn admit<'a>(situation: &Situation<'a>, master_info: &Info) -> Option<&'a Member> {
    let (master, _) = situation.master()?;
    let stranger = |member: &Member| {
        member.settled(situation.now).is_some_and(|info| {
            info.is_fenced() && !info.loading && !may_be_overwritten(situation, member, info)
        })
    };
    let others = || situation.others(master).filter(|member| member.listed && !member.pod.terminating);
    // One that has been away for long may never come back.
    let expected = |member: &Member| {
        situation.record.registered.contains(&member.pod.uid)
            && member.out_of_sync_since.is_none_or(|since| situation.now < since + EXPECTED_FOR)
    };
    let sooner = |member: &Member| {
        expected(member) || member.settled(situation.now).is_some_and(|_| !stranger(member))
    };
    let copied = situation.in_sync_count() > 0 || !others().any(sooner);
    let worth = master_info.keys > 0 && id_recorded(situation, master_info);
    if worth && copied { others().find(|member| stranger(member)) } else { None }
}

/// Pods in sync are members; pods that are gone for good are not any more.
fn register_members(situation: &Situation<'_>, next: &mut Supervision) {
    for member in situation.listed().filter(|member| situation.in_sync(member)) {
        plan::register(next, member.pod.uid.clone());
    }
    if situation.foreign_replicas() == 0 {
        let listed = |uid: &String| situation.members.get(uid).is_some_and(|member| member.listed);
        next.registered.retain(listed);
    }
}

/// Raised after the server has it; lowered before.
fn quorum_on_record(situation: &Situation<'_>, info: &Info) -> WriteQuorum {
    let desired = situation.desired.write_quorum;
    let effective = situation.record.write_quorum.effective;
    let in_force = info.good_replicas.is_some() || !on(Mechanism::QuorumOrder);
    let effective = if wanted_quorum(situation, info) > 0 && in_force {
        desired
    } else if effective > 0 && is_worthless(situation, info) {
        0
    } else {
        effective.min(desired)
    };
    WriteQuorum { desired, effective }
}

/// The recorded quorum stands for nothing: the master does not enforce it, a stranger may fulfil it, or nobody does.
fn is_worthless(situation: &Situation<'_>, info: &Info) -> bool {
    info.good_replicas.is_none() || situation.foreign_replicas() > 0 || must_relax(situation, info)
}

/// No replica acknowledges, and none will soon: better writes without a quorum than none. The master's word
/// counts: we may be the ones who cannot see the replicas.
fn must_relax(situation: &Situation<'_>, info: &Info) -> bool {
    let Some((process, _)) = situation.master() else { return false };
    situation.desired.profile != Profile::Durable
        && info.good_replicas.is_none_or(|good| good == 0)
        && situation.in_sync_count() == 0
        && situation.others(process).all(|member| {
            let silent = member.out_of_sync_since.is_some_and(|since| situation.now >= since + RELAX_AFTER);
            member.is_gone() || !member.listed || silent
        })
}

/// Every other pod that can be reached follows the master, or has had its time.
fn settled_down(situation: &Situation<'_>) -> bool {
    let Some((master, _)) = situation.well_master() else { return false };
    let Some(ip) = master.pod.ip else { return false };
    let timed_out = situation.now >= situation.step_since + CLOSE_AFTER;
    timed_out
        || situation.listed().filter(|member| member.pod.uid != master.pod.uid).all(|member| {
            match member.settled(situation.now) {
                Some(info) => {
                    Situation::streams_from(info, ip) || !may_be_overwritten(situation, member, info)
                }
                None => member.is_gone() || member.refused.is_some(),
            }
        })
}

fn command(member: &Member, command: RoleCommand) -> Act {
    Act::Command { uid: member.pod.uid.clone(), command }
}
