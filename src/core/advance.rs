//! Carrying out an open plan: for each step, what is still missing. Pure.
//!
//! Nothing here remembers having done something: each look compares the record with what the servers say, so
//! that a leader who finds the plan does the same as the one who wrote it.

use std::time::Duration;

use super::candidate;
use super::event::RoleCommand;
use super::facts::{Info, Mono, Profile, Role};
use super::health::{Death, Health, judge};
use super::held::Held;
use super::mechanism::{Mechanism, on};
use super::members::{Class, Member, PROBE_DEADLINE};
use super::permission::{Permission, permit};
use super::plan::{self, Author};
use super::situation::Situation;
use super::successor::{self, Fate};
use super::switch;
use crate::api::status::{Plan, PlanKind, PlanStep, ProcessRef, Supervision};

/// Longest wait for a replica to take in what the dead master had sent.
const DELIVERY: Duration = Duration::from_millis(500);

/// Reads in a row with the same position after which everything delivered has been taken in.
const STOOD_STILL: u32 = 3;

/// A new leader looks at the old master for this long before it carries on somebody else's plan.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// How long members that do not answer may delay the choice.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// `min-replicas-max-lag` plus the time until the server's cron looks at it, plus reserve.
pub const DRAIN: Duration = Duration::from_secs(5);

/// One thing to do for the plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Command {
        uid: String,
        command: RoleCommand,
    },
    /// Ask this pod now, besides its rhythm: connect if there is no connection.
    Look {
        uid: String,
    },
    /// Delete this pod: it hangs, and is in the way.
    DeletePod {
        uid: String,
    },
    /// Let another operator try.
    YieldLease,
    /// Write the next record. `what` names the step in Events.
    Record {
        next: Box<Supervision>,
        what: Recorded,
    },
}

/// What a record says, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    Opened(Opened),
    Claimed,
    Revoked,
    Chosen {
        offset: i64,
    },
    ChooseAgain,
    Promoted,
    FalseAlarm,
    Abandoned,
    /// A switch was given up before anybody was demoted.
    SwitchGivenUp {
        why: String,
    },
    /// The old master of a switch was lost on the way: it goes on as a failover.
    SwitchBroken,
    /// The successor of a switch did not get everything: the old master is promoted again.
    Undone,
    /// Somebody else made this pod the master.
    Adopted {
        pod: String,
        from: String,
    },
    Closed,
    /// This pod's unknown data may be replaced by the master's.
    Admitted {
        pod: String,
    },
    Kept,
}

/// A new plan, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    pub definitive: bool,
    /// The successor's position, where it was chosen at once.
    pub offset: Option<i64>,
    pub why: Option<String>,
}

/// What the plan needs now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advance {
    pub acts: Vec<Act>,
    pub held: Option<(Held, String)>,
}

impl Advance {
    fn act(act: Act) -> Self {
        Self { acts: vec![act], held: None }
    }

    pub(super) fn hold(held: Held, message: String) -> Self {
        Self { acts: Vec::new(), held: Some((held, message)) }
    }

    pub(super) fn record(next: Supervision, what: Recorded) -> Self {
        Self::act(Act::Record { next: Box::new(next), what })
    }
}

/// What the open plan needs now. The record already names this term as the plan's holder.
pub fn advance(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    if adopts_any()
        && let Some(found) = any_master(situation, plan)
    {
        return found;
    }
    match plan.step {
        PlanStep::Recorded if plan.kind == PlanKind::Switchover => switch::advance(situation, plan, author),
        PlanStep::Recorded => recorded(situation, plan, author),
        PlanStep::Revoked => revoked(situation, plan, author),
        PlanStep::Chosen => chosen(situation, plan, author),
        PlanStep::Promoted => Advance::default(), // healing closes it
    }
}

/// Without these two, whoever is found as a master is taken for the successor.
fn adopts_any() -> bool {
    !on(Mechanism::OnlyRecordedSuccessor) || !on(Mechanism::SuccessorOnRecord)
}

fn any_master(situation: &Situation<'_>, plan: &Plan) -> Option<Advance> {
    let from = plan.from.as_ref()?;
    let (member, info) = situation.others(from).find_map(|member| {
        let info = member.settled(situation.now).filter(|info| info.role == Role::Master)?;
        Some((member, info))
    })?;
    let to = member.process()?;
    let members = vec![to.uid.clone()];
    Some(Advance::record(plan::promoted(situation.record, &to, info, members), Recorded::Promoted))
}

/// Cut the replicas from the old master, then look at it once more.
fn recorded(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    let Some(from) = &plan.from else {
        return Advance::record(plan::give_up(situation.record), Recorded::Abandoned);
    };
    let health = judge(situation, from);
    if health == Health::Well && on(Mechanism::Veto) {
        return Advance::record(plan::give_up(situation.record), Recorded::FalseAlarm);
    }
    // A replica is still fed by it, whatever we see, and nothing was demoted: the table says what to do then.
    if matches!(health, Health::AliveByWitness { .. }) {
        return Advance::record(plan::give_up(situation.record), Recorded::Abandoned);
    }
    // A leader that did not open this plan, and finds nobody detached, needs a verdict of its own.
    let anybody_cut = situation.others(from).any(|member| was_cut(situation, member));
    let verdict = situation.definitive || matches!(health, Health::Dead(_) | Health::Demoted);
    if !verdict && !anybody_cut {
        return match health {
            Health::Sick(_) => Advance::record(plan::give_up(situation.record), Recorded::Abandoned),
            _ => Advance::default(),
        };
    }
    // It has had no time to look at the old master yet.
    if !verdict && situation.now < situation.evidence_since + FIRST_LOOK {
        return Advance::default();
    }
    let definitive = situation.definitive || matches!(health, Health::Dead(Death::Definitive(_)));
    let mut acts = detach(situation, plan, from, definitive);
    let cut = situation
        .others(from)
        .filter(|member| member.listed)
        .all(|member| is_silent(situation, member) || is_out(situation, member));
    if !acts.is_empty() || !cut {
        return Advance { acts, held: None };
    }
    if !on(Mechanism::LastLook) {
        return choose(situation, plan, author, &Death::Definitive(""));
    }
    match last_look(situation, from) {
        LastLook::Pending => {
            acts.push(Act::Look { uid: from.uid.clone() });
            Advance { acts, held: None }
        }
        LastLook::Nothing if definitive => choose(situation, plan, author, &Death::Definitive("")),
        LastLook::Nothing => Advance::record(plan::revoke(situation.record), Recorded::Revoked),
    }
}

/// Demote the old master wherever it can be reached, wait until its write lease is over, choose.
fn revoked(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    let demoted = plan.from.as_ref().is_some_and(|from| {
        situation.member_of(from).is_some_and(|member| member.is(from) && is_silent(situation, member))
    });
    let mut acts = Vec::new();
    if let Some(from) = &plan.from {
        acts.extend(demote_old(situation, from));
        acts.extend(detach(situation, plan, from, situation.definitive || demoted));
    }
    if !acts.is_empty() {
        return Advance { acts, held: None };
    }
    // From the last moment at which anybody may have acknowledged it.
    let silent_since = plan.from.as_ref().map_or(situation.step_since, |from| cut_at(situation, from));
    let drain = if situation.desired.profile == Profile::Cache || !on(Mechanism::Drain) {
        Duration::ZERO
    } else {
        DRAIN
    };
    if !situation.definitive && !demoted && situation.now < silent_since + drain {
        return Advance::default();
    }
    let death = if situation.definitive || demoted { Death::Definitive("") } else { Death::Presumptive("") };
    choose(situation, plan, author, &death)
}

/// Promote exactly the recorded process; nobody else while its fate is open.
fn chosen(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    let Some(to) = &plan.to else {
        return Advance::record(plan::choose_again(situation.record, author), Recorded::ChooseAgain);
    };
    let (member, info) = match successor::fate(situation, to) {
        Fate::Ended => return ended(situation, plan, author),
        Fate::Open(wait) => return wait,
        Fate::Answers { member, info } => (member, info),
    };
    if member.outstanding.is_some() {
        return Advance::default();
    }
    if info.role == Role::Master {
        return successor::found_as_master(situation, plan, to, info);
    }
    // It was read, and it is no master: nothing is done yet that could not be left.
    if matches!(plan.kind, PlanKind::Failover | PlanKind::Switchover)
        && let Some(from) = plan.from.as_ref().filter(|from| *from != to)
        && judge(situation, from) == Health::Well
        && on(Mechanism::Veto)
    {
        return Advance::record(plan::give_up(&plan::claim(situation.record, author)), Recorded::FalseAlarm);
    }
    if info.loading {
        return successor::waiting_for(to, "it is loading its data");
    }
    successor::promote(situation, to)
}

/// The recorded successor is proven ended.
fn ended(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>) -> Advance {
    match plan.kind {
        PlanKind::Failover | PlanKind::Switchover => {
            Advance::record(plan::choose_again(situation.record, author), Recorded::ChooseAgain)
        }
        // Nothing was cut or chosen from: look at the whole again.
        PlanKind::Bootstrap | PlanKind::Recover => {
            Advance::record(plan::give_up(situation.record), Recorded::Abandoned)
        }
    }
}

/// Record the best candidate, if it may be promoted now.
fn choose(situation: &Situation<'_>, plan: &Plan, author: &Author<'_>, death: &Death) -> Advance {
    let Some(from) = &plan.from else { return Advance::default() };
    if let Some(to) = &plan.to
        && let Some(open) = unsettled(situation, plan, to)
    {
        return open;
    }
    let silent = |member: &Member| is_silent(situation, member) || member.is_gone();
    let quorum = if on(Mechanism::QuorumBefore) { plan.w_before } else { situation.desired.write_quorum };
    if let Permission::Refused(arithmetic) = permit(situation, from, death, quorum, silent) {
        return Advance::hold(Held::NoQuorum, arithmetic);
    }
    // Members that were streaming may hold more: give them a moment to answer.
    let straggling = situation.listed().any(|member| {
        member.pod.uid != from.uid && member.settled(situation.now).is_none() && !member.is_gone()
    });
    if straggling && on(Mechanism::Stragglers) && situation.now < situation.step_since + STRAGGLERS {
        return Advance::default();
    }
    match candidate::best(situation) {
        Some(best) if !is_silent(situation, best.member) => Advance::hold(
            Held::NoSafeCandidate,
            format!(
                "{} has the newest data, but does not let itself be cut from its source",
                best.member.pod.name
            ),
        ),
        Some(best) => match best.member.process() {
            Some(to) if !on(Mechanism::SuccessorOnRecord) => successor::promote(situation, &to),
            Some(to) => match candidate::too_stale(situation, from, &best) {
                Some(message) if !was_accepted(situation, plan) => Advance::hold(Held::TooStale, message),
                _ => {
                    let next = plan::choose(situation.record, author, to);
                    Advance::record(next, Recorded::Chosen { offset: best.offset })
                }
            },
            None => Advance::default(),
        },
        // Nobody was promoted and the old master is certainly gone: other rules may know a way, like its restarted
        // process or a start of all pods.
        None if matches!(death, Death::Definitive(_)) => {
            Advance::record(plan::close(situation.record), Recorded::Abandoned)
        }
        None => Advance::hold(
            Held::NoSafeCandidate,
            format!("no pod can replace {}: {}", from.pod, candidate::exclusions(situation)),
        ),
    }
}

/// What a person acknowledged when this plan was opened holds for the plan, whose own epoch is the next.
fn was_accepted(situation: &Situation<'_>, plan: &Plan) -> bool {
    let opened = plan.id.split('-').next().and_then(|epoch| epoch.parse::<u64>().ok());
    situation
        .desired
        .acknowledged
        .zip(opened)
        .is_some_and(|(acknowledged, opened)| acknowledged + 1 >= opened)
}

/// A switch left a successor on record: nobody else is chosen before it was read fenced, or has ended.
fn unsettled(situation: &Situation<'_>, plan: &Plan, to: &ProcessRef) -> Option<Advance> {
    if !on(Mechanism::NobodyElseMeanwhile) {
        return None;
    }
    match successor::fate(situation, to) {
        Fate::Ended => None,
        Fate::Open(wait) => Some(wait),
        Fate::Answers { member, .. } if member.outstanding.is_some() => {
            Some(successor::waiting_for_answer(situation, to, member))
        }
        Fate::Answers { info, .. } if info.role == Role::Master => {
            Some(successor::found_as_master(situation, plan, to, info))
        }
        Fate::Answers { info, .. } => (!info.is_fenced()).then(Advance::default), // it is being cut
    }
}

/// Cut each replica that can be reached and is not cut yet, the old master included if somebody made it one. Any
/// other master found is demoted.
fn detach(situation: &Situation<'_>, plan: &Plan, from: &ProcessRef, definitive: bool) -> Vec<Act> {
    let started = situation.step_since;
    situation
        .members
        .values()
        .filter_map(|member| {
            let info = member.settled(situation.now)?;
            let is_from = member.pod.uid == from.uid;
            if info.is_fenced() || info.loading || (is_from && info.role == Role::Master) {
                return None;
            }
            if info.role == Role::Master && !adopts_any() {
                let is_target = plan.to.as_ref().is_some_and(|to| member.is(to));
                return (!is_target).then(|| demote(member));
            }
            let delivered = !on(Mechanism::DeliveredBytes)
                || !definitive
                || !info.link_up
                || member.stood_still.1 >= STOOD_STILL
                || situation.now >= started + DELIVERY;
            delivered.then(|| Act::Command { uid: member.pod.uid.clone(), command: RoleCommand::Detach })
        })
        .collect()
}

/// The old master, answering or not, on its open connection: the command waits in its socket if it hangs.
fn demote_old(situation: &Situation<'_>, from: &ProcessRef) -> Option<Act> {
    let member = situation.member_of(from)?;
    let needed = member.is(from)
        && member.outstanding.is_none()
        && member.sample.as_ref().is_none_or(|sample| sample.info.role == Role::Master);
    needed.then(|| demote(member))
}

fn demote(member: &Member) -> Act {
    Act::Command { uid: member.pod.uid.clone(), command: RoleCommand::Demote }
}

pub(super) fn command(uid: &str, command: RoleCommand) -> Advance {
    Advance::act(Act::Command { uid: uid.to_owned(), command })
}

/// Fenced by a command of ours, or since its boot: it acknowledges nobody.
pub fn is_silent(situation: &Situation<'_>, member: &Member) -> bool {
    member.settled(situation.now).is_some_and(Info::is_fenced)
}

/// Cut by somebody, and not merely restarted: it still has a position in the data set.
fn was_cut(situation: &Situation<'_>, member: &Member) -> bool {
    let position =
        member.reading(situation.now).and_then(|info| Some((&info.replid, Member::position(info)?)));
    is_silent(situation, member) && position.is_some_and(|(id, offset)| situation.in_lineage(id, offset))
}

/// A member for which the plan does not wait: dead, out of reach, or not able to carry out a command now.
fn is_out(situation: &Situation<'_>, member: &Member) -> bool {
    let hopeless = member.is_gone()
        || matches!(member.class(situation.now), Class::Refused | Class::Denied)
        || member.pod.ip.is_none();
    hopeless || situation.now >= situation.step_since + STRAGGLERS
}

enum LastLook {
    Pending,
    Nothing,
}

/// A question to the old master asked after the replicas were cut. A good answer ends the plan elsewhere (its
/// health is then `Well`); here it only matters that it had its chance.
fn last_look(situation: &Situation<'_>, from: &ProcessRef) -> LastLook {
    let Some(member) = situation.member_of(from) else { return LastLook::Nothing };
    let since = cut_at(situation, from);
    let had_its_chance = match member.class(situation.now) {
        // Another process answers in its place, or it answered that it is no master.
        Class::Ok | Class::Loading | Class::Busy => member.answer_since(since).is_some(),
        Class::Refused => member.refused.is_some_and(|(_, last)| last >= since),
        Class::Unroutable | Class::Hung | Class::Unknown | Class::Denied => {
            situation.now >= since + PROBE_DEADLINE
        }
    };
    if had_its_chance || !member.listed { LastLook::Nothing } else { LastLook::Pending }
}

/// When the last replica was cut.
fn cut_at(situation: &Situation<'_>, from: &ProcessRef) -> Mono {
    situation
        .others(from)
        .filter(|member| is_silent(situation, member))
        .filter_map(|member| member.fenced_since)
        .max()
        .unwrap_or(situation.step_since)
        .max(situation.step_since)
}
