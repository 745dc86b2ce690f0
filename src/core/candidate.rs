//! Who should be master: newest data of the recorded lineage; each exclusion has a reason. Pure.

use super::facts::{Info, Role};
use super::mechanism::{Mechanism, on};
use super::members::Member;
use super::situation::Situation;
use crate::api::status::ProcessRef;

/// A pod that may be promoted, with the position that was read.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub member: &'a Member,
    pub info: &'a Info,
    pub offset: i64,
}

/// Why a pod may not be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    Unreachable,
    Terminating,
    CommandUnderWay,
    Loading,
    NotAReplica,
    NoPosition,
    StaleLineage,
    Empty,
}

impl Exclusion {
    pub fn as_str(self) -> &'static str {
        match self {
            Exclusion::Unreachable => "does not answer",
            Exclusion::Terminating => "is being deleted",
            Exclusion::CommandUnderWay => "is carrying out a command",
            Exclusion::Loading => "is loading its data",
            Exclusion::NotAReplica => "is not a replica",
            Exclusion::NoPosition => "has no position in the stream (never in sync, or restarted)",
            Exclusion::StaleLineage => "holds data of another lineage",
            Exclusion::Empty => "is empty, and this cluster has data",
        }
    }
}

/// May this pod be promoted?
pub fn examine<'a>(situation: &Situation<'a>, member: &'a Member) -> Result<Candidate<'a>, Exclusion> {
    let found = comparable(situation, member)?;
    let empty = found.info.keys == 0 && situation.record.ever_had_data;
    if empty && !emptied_by_users(situation) && !nobody_has_data(situation) {
        return Err(Exclusion::Empty);
    }
    Ok(found)
}

/// Could its position be compared with others'? Whether it has data is not asked.
pub fn comparable<'a>(situation: &Situation<'a>, member: &'a Member) -> Result<Candidate<'a>, Exclusion> {
    let Some(info) = member.reading(situation.now) else { return Err(Exclusion::Unreachable) };
    if member.outstanding.is_some() {
        return Err(Exclusion::CommandUnderWay);
    }
    if member.pod.terminating || !member.listed {
        return Err(Exclusion::Terminating);
    }
    if info.loading || info.sync_in_progress {
        return Err(Exclusion::Loading);
    }
    if info.role != Role::Replica {
        return Err(Exclusion::NotAReplica);
    }
    let Some(offset) = Member::position(info) else { return Err(Exclusion::NoPosition) };
    let foreign = !situation.in_lineage(&info.replid, offset) && !is_only_id(situation, &info.replid);
    if foreign && on(Mechanism::LineageCompared) {
        return Err(Exclusion::StaleLineage);
    }
    Ok(Candidate { member, info, offset })
}

/// The recorded master itself had no keys when it last answered: somebody flushed the data, and an empty
/// replica is a true copy.
fn emptied_by_users(situation: &Situation<'_>) -> bool {
    situation.master().and_then(|(master, member)| member.map(|member| (master, member))).is_some_and(
        |(master, member)| {
            member.run_id.as_deref() == Some(&master.run_id)
                && member.sample.as_ref().is_some_and(|sample| sample.info.keys == 0)
        },
    )
}

/// Redis changes a master's replication id when the first replica attaches; the master may die before that is on
/// record. An id that is not listed counts when it is the only one among all pods that answer with data, and most
/// pods answer.
fn is_only_id(situation: &Situation<'_>, id: &str) -> bool {
    if situation.record.lineage.iter().any(|lineage| lineage.id == id) {
        return false; // its recorded end counts
    }
    let with_position: Vec<&Info> = situation
        .listed()
        .filter_map(|member| member.reading(situation.now))
        .filter(|info| Member::position(info).is_some() || info.keys > 0)
        .collect();
    let pods =
        situation.listed().count().max(usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX));
    with_position.iter().all(|info| info.replid == id) && with_position.len() * 2 > pods
}

/// Every pod that could hold data answers and has none: with a position in the lineage, that is the data set.
fn nobody_has_data(situation: &Situation<'_>) -> bool {
    let is_master =
        |member: &Member| situation.record.master.as_ref().is_some_and(|it| it.uid == member.pod.uid);
    let is_empty = |info: &Info| info.keys == 0 && !info.loading && !info.sync_in_progress;
    let expected = usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX).saturating_sub(1);
    situation.listed().filter(|member| !is_master(member)).count() >= expected
        && situation
            .listed()
            .all(|member| member.reading(situation.now).map_or_else(|| is_master(member), is_empty))
}

/// The best pod: largest offset under the current id first, then the lowest ordinal.
pub fn best<'a>(situation: &Situation<'a>) -> Option<Candidate<'a>> {
    let current = situation.current_id();
    situation.members.values().filter_map(|member| examine(situation, member).ok()).max_by_key(|candidate| {
        let is_current = current == Some(candidate.info.replid.as_str());
        let offset = if on(Mechanism::OffsetOrder) { candidate.offset } else { 0 };
        (is_current, offset, std::cmp::Reverse(candidate.member.pod.ordinal))
    })
}

/// Why this candidate is known to lack more of the old master's stream than the user allows, in words.
pub fn too_stale(situation: &Situation<'_>, from: &ProcessRef, best: &Candidate<'_>) -> Option<String> {
    let allowed = situation.desired.max_lost_bytes?;
    let sample =
        situation.member_of(from)?.sample.as_ref().filter(|sample| sample.info.run_id == from.run_id)?;
    // What it said last as a master, or where it ended when it was demoted.
    let end = match sample.info.role {
        Role::Master => sample.info.master_offset,
        Role::Replica => Member::position(&sample.info)?,
    };
    let missing = u64::try_from(end.saturating_sub(best.offset)).unwrap_or(0);
    (missing > allowed && best.member.pod.uid != from.uid && !situation.acknowledged()).then(|| {
        format!(
            "{} has the newest data, but lacks {missing} bytes of what {} had, and spec.failover.maxLostBytes is \
             {allowed}: a pod that has more is waited for. To accept the loss, {}",
            best.member.pod.name,
            from.pod,
            situation.how_to_acknowledge()
        )
    })
}

/// Every pod that may not be promoted, in words.
pub fn exclusions(situation: &Situation<'_>) -> String {
    let reasons: Vec<String> = situation
        .members
        .values()
        .filter_map(|member| {
            let exclusion = examine(situation, member).err()?;
            Some(format!("{} {}", member.pod.name, exclusion.as_str()))
        })
        .collect();
    reasons.join("; ")
}
