//! The planned switch: a well master hands over to a replica, and no acknowledged write is lost. Pure.
//!
//! No safety rests on the pause of the clients: it only keeps the gap short. What protects the data is the order: the
//! old master is demoted in a transaction that tells its final position, and the successor is promoted only once it
//! has that position. Where it does not get there, the old master is made the master again.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::time::Duration;

use super::advance::{Act, Advance, Recorded, command, is_silent};
use super::candidate;
use super::event::RoleCommand;
use super::facts::{Info, NodeState, Role};
use super::health::{Death, Health, judge};
use super::mechanism::{Mechanism, on};
use super::members::{Member, Paused};
use super::plan::{self, Author};
use super::situation::Situation;
use super::successor::{self, Fate};
use crate::api::status::{Plan, ProcessRef};

/// How long the clients' writes are held back at most, in milliseconds.
const PAUSE_MS: u64 = 300;

/// How long the successor may take to receive what the old master had when the pause began.
const CATCH_UP: Duration = Duration::from_millis(80);

/// How long it may take to receive the rest, once the old master has stepped down.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// A switch that has not demoted anybody by then is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// A switch asked for as `any` is refused so soon after the last one, in seconds: something may ask for it again and
/// again.
const NOT_TWICE_WITHIN: i64 = 60;

/// Value of the annotation that leaves the choice to the operator.
pub const ANY: &str = "any";

/// A pod that may take over.
#[derive(Clone, Copy, Debug)]
pub struct Successor<'a> {
    pub member: &'a Member,
    pub info: &'a Info,
}

/// The best pod to take over from the well master, or why there is none. `also`: what else is asked of it.
///
/// # Errors
/// What is wrong with each pod, in words.
pub fn successor<'a>(
    situation: &Situation<'a>,
    also: impl Fn(&Info) -> Result<(), &'static str>,
) -> Result<Successor<'a>, String> {
    let Some((master, _)) = situation.well_master() else {
        return Err("there is no master that answers".to_owned());
    };
    let mut reasons = Vec::new();
    let mut fit = Vec::new();
    for member in situation.listed().filter(|member| member.pod.uid != master.pod.uid) {
        match examine(situation, member).and_then(|found| also(found.info).map(|()| found)) {
            Ok(found) => fit.push(found),
            Err(why) => reasons.push(format!("{} {why}", member.pod.name)),
        }
    }
    let best = fit.into_iter().max_by_key(|found| {
        let elsewhere = found.member.pod.node != master.pod.node;
        (elsewhere, Member::position(found.info), Reverse(found.member.pod.ordinal))
    });
    best.ok_or_else(|| if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") })
}

/// What a person asked for: `None` when it is so already.
///
/// # Errors
/// Why it is refused, in words.
pub fn requested<'a>(situation: &Situation<'a>, wanted: &str) -> Result<Option<Successor<'a>>, String> {
    let Some((master, _)) = situation.well_master() else {
        return Err("there is no master that answers".to_owned());
    };
    if wanted == ANY {
        if let Some(ago) = situation.last_switch_ago.filter(|ago| (0..NOT_TWICE_WITHIN).contains(ago)) {
            return Err(format!(
                "the master was moved {ago} s ago, and any pod is asked for again: within a minute a pod must be named"
            ));
        }
        return successor(situation, |_| Ok(())).map(Some);
    }
    if wanted == master.pod.name {
        return Ok(None);
    }
    let Some(member) = situation.listed().find(|member| member.pod.name == wanted) else {
        return Err(format!("there is no pod {wanted:?} in this cluster; write the name of a pod, or any"));
    };
    examine(situation, member).map(Some).map_err(|why| format!("{wanted} {why}"))
}

/// May this pod take over now?
fn examine<'a>(situation: &Situation<'a>, member: &'a Member) -> Result<Successor<'a>, &'static str> {
    // Its last answer may be older than the first key; it is promoted only with everything that the master had.
    let found = candidate::comparable(situation, member).map_err(candidate::Exclusion::as_str)?;
    if !situation.in_sync(member) {
        return Err("is not in sync");
    }
    match member.pod.node_state {
        NodeState::Fit => {}
        NodeState::Leaving => return Err("is on a node that is cordoned or is being emptied"),
        NodeState::Lost => return Err("is on a node that is not ready"),
    }
    if situation.desired.scale_in_to.is_some_and(|pods| member.pod.ordinal >= pods) {
        return Err("would be removed by scaling in");
    }
    Ok(Successor { member, info: found.info })
}

/// What the open switch needs now, by what both servers say.
pub fn advance(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    let (Some(from), Some(to)) = (&plan.from, &plan.to) else {
        return Advance::record(plan::give_up(situation.record), Recorded::Abandoned);
    };
    // By this plan, or by an older one; whatever became of the old master.
    if let Some(member) = situation.member_of(to).filter(|member| member.is(to))
        && let Some(info) = member.settled(situation.now).filter(|info| info.role == Role::Master)
    {
        return successor::found_as_master(situation, plan, to, info);
    }
    let busy = |process: &ProcessRef| {
        situation.member_of(process).is_some_and(|member| member.outstanding.is_some())
    };
    // While its reply may come. One that hangs on a command is looked at like one that does not answer.
    if busy(to) && situation.member_of(to).is_some_and(|member| member.reading(situation.now).is_some()) {
        return Advance::default();
    }
    match judge(situation, from) {
        Health::Well | Health::Demoted if busy(from) => Advance::default(),
        Health::Well => hand_over(situation, from, to),
        // Nobody was demoted: whatever it is, the table decides anew.
        _ if situation.nothing_sent => give_up(situation, from, "the master stopped answering"),
        Health::Demoted => take_over(situation, from, to, author),
        Health::Dead(Death::Definitive(_)) => {
            Advance::record(plan::revoke_switch(situation.record, author), Recorded::SwitchBroken)
        }
        _ => overdue(situation, from, author),
    }
}

/// The old master still is one: pause, let the successor catch up, step down.
fn hand_over(situation: &Situation<'_>, from: &ProcessRef, to: &ProcessRef) -> Advance {
    let Some((master, _)) = situation.well_master().filter(|(member, _)| member.is(from)) else {
        return Advance::default();
    };
    if situation.now >= situation.step_since + GIVE_UP_AFTER {
        return give_up(situation, from, "it took too long");
    }
    // It may have been sent, and its answer lost: only what is read from now on counts.
    let found =
        situation.member_of(to).filter(|member| member.is(to)).map(|member| examine(situation, member));
    let info = match found {
        Some(Ok(found)) => found.info,
        Some(Err(why)) => return give_up(situation, from, &format!("{} {why}", to.pod)),
        None => return give_up(situation, from, &format!("{} is another process now", to.pod)),
    };
    let Some(pause) = paused_for_this(situation, master) else {
        return command(&from.uid, RoleCommand::Pause { millis: PAUSE_MS });
    };
    let caught_up = Member::position(info).is_some_and(|position| position >= pause.goal);
    if caught_up && !pause.ended {
        command(&from.uid, RoleCommand::StepDown)
    } else if pause.ended || situation.now >= pause.at + CATCH_UP {
        give_up(situation, from, &format!("{} did not catch up in time", to.pod))
    } else {
        look_at(to)
    }
}

/// The pause of this plan: one of an earlier switch says nothing.
fn paused_for_this(situation: &Situation<'_>, master: &Member) -> Option<Paused> {
    master.paused.filter(|paused| paused.at >= situation.step_since)
}

/// The old master has stepped down: its position is final. The successor is promoted once it has all of it.
fn take_over(situation: &Situation<'_>, from: &ProcessRef, to: &ProcessRef, author: &Author<'_>) -> Advance {
    let Some(old) = situation.member_of(from) else { return Advance::default() };
    let Some(old_info) = old.settled(situation.now) else { return Advance::default() };
    if !old_info.is_fenced() {
        return command(&from.uid, RoleCommand::Detach);
    }
    let undo = || Advance::record(plan::undo(situation.record, author, from), Recorded::Undone);
    let (member, info) = match successor::fate(situation, to) {
        Fate::Ended => return undo(),
        Fate::Open(wait) => return wait,
        Fate::Answers { member, info } => (member, info),
    };
    let Some(end) = Member::position(old_info) else { return undo_when_silent(situation, member, undo) };
    let same = info.replid == old_info.replid;
    let complete = Member::position(info).is_some_and(|position| position >= end);
    if same && !info.loading && (complete || !on(Mechanism::FinalOffset)) {
        return successor::promote(situation, to);
    }
    let since = old.fenced_since.unwrap_or(situation.now);
    if same && info.link_up && situation.now < since + LAST_BYTES {
        return look_at(to);
    }
    undo_when_silent(situation, member, undo)
}

/// Clients wait: the successor is asked again at once, not in its rhythm.
fn look_at(to: &ProcessRef) -> Advance {
    Advance { acts: vec![Act::Look { uid: to.uid.clone() }], held: None }
}

/// The old master may be promoted again only when the successor certainly is not: it was read fenced.
fn undo_when_silent(situation: &Situation<'_>, to: &Member, undo: impl Fn() -> Advance) -> Advance {
    if is_silent(situation, to) { undo() } else { command(&to.pod.uid, RoleCommand::Detach) }
}

/// The demotion may have been sent, and the old master does not say: after its time it counts as lost, whatever its
/// replicas say of it, since a demoted master goes on feeding them.
fn overdue(situation: &Situation<'_>, from: &ProcessRef, author: &Author<'_>) -> Advance {
    let member = situation.member_of(from);
    let since = member.and_then(|member| member.bad_since).unwrap_or(situation.step_since);
    let patience = situation.desired.unreachable_after.max(situation.desired.hung_after);
    if situation.now < since.max(situation.step_since) + patience {
        return Advance::default();
    }
    Advance::record(plan::revoke_switch(situation.record, author), Recorded::SwitchBroken)
}

/// Nobody was demoted: let the clients go on, and close the plan.
fn give_up(situation: &Situation<'_>, from: &ProcessRef, why: &str) -> Advance {
    let paused = situation
        .member_of(from)
        .filter(|member| member.is(from) && member.outstanding.is_none())
        .and_then(|member| paused_for_this(situation, member))
        .is_some_and(|paused| !paused.ended && situation.now < paused.at + Duration::from_millis(PAUSE_MS));
    if paused {
        return command(&from.uid, RoleCommand::Unpause);
    }
    Advance::record(plan::give_up(situation.record), Recorded::SwitchGivenUp { why: why.to_owned() })
}
