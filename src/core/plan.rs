//! The recorded plan and its steps: functions from one record to the next. Pure.
//!
//! Each of these becomes one compare-and-swap. Every one that decides anew who is or may become master raises
//! the epoch.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::facts::{Info, Profile};
use super::mechanism::{Mechanism, on};
use crate::api::status::{Lineage, Plan, PlanKind, PlanStep, ProcessRef, Supervision, WriteQuorum};

/// How many replication ids are remembered.
const LINEAGE_LENGTH: usize = 8;

/// How many failovers after a presumed death are remembered.
pub const PRESUMED_LENGTH: usize = 3;

/// A plan that is about to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub kind: PlanKind,
    pub reason: &'static str,
    pub from: Option<ProcessRef>,
    /// Known from the start where there is no choice to make, or it is final already.
    pub to: Option<ProcessRef>,
    /// Position of a successor that was chosen among several.
    pub offset: Option<i64>,
    /// Uids of pods whose data may be replaced by the successor's.
    pub overwrites: Vec<String>,
    /// Why it is this one, for people.
    pub why: Option<String>,
    /// The death of `from` is presumed only.
    pub presumed: bool,
}

impl Draft {
    /// A change whose successor is still to be chosen.
    pub fn new(kind: PlanKind, reason: &'static str, from: Option<ProcessRef>) -> Self {
        Self {
            kind,
            reason,
            from,
            to: None,
            offset: None,
            overwrites: Vec::new(),
            why: None,
            presumed: false,
        }
    }
}

/// Who writes, and the epoch to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author<'a> {
    pub term: &'a str,
    /// Larger than any epoch seen in status, slice or memory.
    pub next_epoch: u64,
}

/// The first changing act of a lease term on this cluster: raises the epoch and names the holder.
pub fn claim(record: &Supervision, author: &Author<'_>) -> Supervision {
    let mut next = record.clone();
    next.epoch = author.next_epoch;
    next.holder = Some(author.term.to_owned());
    if let Some(plan) = &mut next.plan {
        author.term.clone_into(&mut plan.holder);
    }
    next
}

/// Record the intent. The effective write quorum is what the successor begins with from here on; the plan keeps the
/// old one.
pub fn open(
    record: &Supervision,
    author: &Author<'_>,
    draft: &Draft,
    profile: Profile,
    at: Timestamp,
) -> Supervision {
    let mut next = claim(record, author);
    // Also when it replaces a plan whose promotion is on record: that record began with its own.
    let w_before = record.write_quorum.effective;
    if profile != Profile::Durable {
        next.write_quorum.effective = 0;
    }
    // A switch looks at both once more before anything is promoted.
    let is_chosen = draft.to.is_some() && draft.kind != PlanKind::Switchover;
    if draft.presumed {
        next.presumed.push(Time(at));
        let surplus = next.presumed.len().saturating_sub(PRESUMED_LENGTH);
        next.presumed.drain(..surplus);
    }
    next.plan = Some(Plan {
        id: format!("{}-{}", author.next_epoch, author.term),
        kind: draft.kind,
        step: if is_chosen { PlanStep::Chosen } else { PlanStep::Recorded },
        reason: draft.reason.to_owned(),
        from: draft.from.clone(),
        to: draft.to.clone(),
        overwrites: draft.overwrites.clone(),
        holder: author.term.to_owned(),
        w_before,
        started_at: Time(at),
    });
    next
}

/// The point of no return.
pub fn revoke(record: &Supervision) -> Supervision {
    with_plan(record, |plan| plan.step = PlanStep::Revoked)
}

/// Record the successor, before its promotion is sent. Another one than is on record needs a new epoch.
pub fn choose(record: &Supervision, author: &Author<'_>, to: ProcessRef) -> Supervision {
    let other = record.plan.as_ref().and_then(|plan| plan.to.as_ref()).is_some_and(|before| *before != to);
    let base = if other && on(Mechanism::EpochAtUndo) { claim(record, author) } else { record.clone() };
    let begins_with = record.write_quorum.effective;
    with_plan(&base, |plan| {
        // Once the old master itself may be promoted, what it enforced before protects nobody.
        if plan.from.as_ref() == Some(&to) {
            plan.w_before = plan.w_before.min(begins_with);
        }
        plan.step = PlanStep::Chosen;
        plan.to = Some(to);
    })
}

/// The successor of a switch cannot take over: the old master is promoted again, as a successor of its own.
pub fn undo(record: &Supervision, author: &Author<'_>, from: &ProcessRef) -> Supervision {
    choose(record, author, from.clone())
}

/// A switch whose old master was lost on the way goes on as a failover; its successor stays on record.
pub fn revoke_switch(record: &Supervision, author: &Author<'_>) -> Supervision {
    revoke(&claim(record, author))
}

/// A master that somebody else made is the master from now on.
pub fn adopt(record: &Supervision, author: &Author<'_>, to: &ProcessRef, info: &Info) -> Supervision {
    promoted(&claim(record, author), to, info, vec![to.uid.clone()])
}

/// The recorded successor is proven ended: choose again, under a new epoch.
pub fn choose_again(record: &Supervision, author: &Author<'_>) -> Supervision {
    with_plan(&claim(record, author), |plan| {
        plan.step = PlanStep::Revoked;
        plan.to = None;
    })
}

/// The successor is master.
pub fn promoted(record: &Supervision, to: &ProcessRef, info: &Info, members: Vec<String>) -> Supervision {
    let mut next = with_plan(record, |plan| plan.step = PlanStep::Promoted);
    next.master = Some(to.clone());
    if record.plan.is_none() {
        next.write_quorum.effective = 0; // nobody knows what somebody else left in force
    }
    next.ever_had_data |= info.keys > 0;
    if info.replid2_is_current(record) {
        end_current_id(&mut next, info.second_offset - 1);
    } else {
        // Nothing under the recorded id can be compared with what was promoted; what has the promoted one's former
        // id can.
        end_current_id(&mut next, -1);
        append_id(&mut next, &info.replid2);
        end_current_id(&mut next, info.second_offset - 1);
    }
    append_id(&mut next, &info.replid);
    // Who was not compared when a pod's own data was taken may hold newer data: it has to be admitted anew.
    if record.plan.as_ref().is_some_and(|plan| plan.kind == PlanKind::Recover) {
        next.registered.clear();
    }
    for uid in members {
        register(&mut next, uid);
    }
    next
}

/// The same process shows another replication id: Redis makes one when the first replica attaches to a master
/// without backlog. Its data went on without a break.
pub fn id_changed(record: &Supervision, info: &Info) -> Supervision {
    let mut next = record.clone();
    end_current_id(&mut next, info.master_offset);
    append_id(&mut next, &info.replid);
    next
}

/// The plan is done.
pub fn close(record: &Supervision) -> Supervision {
    let mut next = record.clone();
    next.plan = None;
    next
}

/// Nothing was demoted: the old master stays, and so does its write quorum.
pub fn give_up(record: &Supervision) -> Supervision {
    let mut next = close(record);
    if let Some(plan) = &record.plan {
        next.write_quorum.effective = plan.w_before;
    }
    next
}

pub fn quorum(record: &Supervision, write_quorum: WriteQuorum) -> Supervision {
    Supervision { write_quorum, ..record.clone() }
}

/// Remember a pod that was in sync with the recorded master.
pub fn register(record: &mut Supervision, uid: String) {
    if !record.registered.contains(&uid) {
        record.registered.push(uid);
        record.registered.sort();
    }
}

fn with_plan(record: &Supervision, change: impl FnOnce(&mut Plan)) -> Supervision {
    let mut next = record.clone();
    if let Some(plan) = &mut next.plan {
        change(plan);
    }
    next
}

fn end_current_id(record: &mut Supervision, valid_up_to: i64) {
    if let Some(current) = record.lineage.last_mut() {
        current.valid_up_to.get_or_insert(valid_up_to);
    }
}

fn append_id(record: &mut Supervision, id: &str) {
    record.lineage.push(Lineage { id: id.to_owned(), valid_up_to: None });
    let surplus = record.lineage.len().saturating_sub(LINEAGE_LENGTH);
    record.lineage.drain(..surplus);
}

impl Info {
    fn replid2_is_current(&self, record: &Supervision) -> bool {
        record.lineage.last().is_some_and(|current| current.id == self.replid2)
    }
}
