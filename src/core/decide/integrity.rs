//! Is what is recorded still true? Pure.

use std::time::Duration;

use super::Decision;
use crate::core::advance::{Act, Recorded};
use crate::core::facts::{Info, Role};
use crate::core::held::Held;
use crate::core::mechanism::{Mechanism, on};
use crate::core::members::Member;
use crate::core::plan::{self, Author};
use crate::core::situation::Situation;

/// A FAILOVER of somebody else may take this long.
const FOREIGN_FAILOVER: Duration = Duration::from_secs(10);

/// The same process, empty under another replication id, while replicas hold data: emptied on purpose, or not?
/// Replicas would lose theirs with the next sync, so a person says.
pub(super) fn empty_master(situation: &Situation<'_>) -> Option<Decision> {
    let (master, info) = situation.well_master()?;
    let others_have_data = situation.members.values().any(|member| {
        member.pod.uid != master.pod.uid
            && member.reading(situation.now).is_some_and(|info| info.keys > 0 && !info.link_up)
    });
    let unrecorded = situation.current_id() != Some(info.replid.as_str());
    let suspicious = situation.record.ever_had_data && info.keys == 0 && unrecorded && others_have_data;
    (suspicious && on(Mechanism::ShrinkGuard) && !situation.acknowledged()).then(|| {
        Decision::Hold(
            Held::EmptyMaster,
            format!(
                "{} has no keys, under a replication id that is not on record, while replicas hold data: nothing is \
                 synced from it. If it was emptied on purpose, {}; if not, delete its pod, and a replica takes its place",
                master.pod.name,
                situation.how_to_acknowledge()
            ),
        )
    })
}

/// The recorded master follows another of our pods, which is a master of the same history: somebody moved it.
pub(super) fn external_failover(situation: &Situation<'_>) -> Option<Decision> {
    let (process, member) = situation.master()?;
    let member = member?;
    let info =
        member.settled(situation.now).filter(|info| info.role == Role::Replica && member.is(process))?;
    let (successor, theirs) = situation.listed().find_map(|other| {
        let theirs = other.settled(situation.now).filter(|theirs| theirs.role == Role::Master)?;
        let follows =
            other.pod.ip.is_some_and(|ip| Member::follows(info, ip, crate::core::facts::REDIS_PORT));
        follows.then_some((other, theirs))
    })?;
    if !descends(situation, theirs) {
        return None; // of another history: the recorded one goes on without it
    }
    let position = Member::position(info).unwrap_or(i64::MAX);
    let complete = info.link_up || position < theirs.second_offset;
    let (Some(to), Some(term)) = (successor.process(), situation.term) else { return None };
    Some(if complete || situation.acknowledged() {
        let author = Author { term, next_epoch: situation.next_epoch };
        let next = plan::adopt(situation.record, &author, &to, theirs);
        let what = Recorded::Adopted { pod: to.pod, from: process.pod.clone() };
        Decision::Do(Box::new(Act::Record { next: Box::new(next), what }), None)
    } else {
        Decision::Hold(
            Held::ExternalFailover,
            format!(
                "somebody made {} the master and {} its replica, which may hold writes that {} does not have: nothing \
                 is changed. To let {} be the master, {}",
                to.pod,
                process.pod,
                to.pod,
                to.pod,
                situation.how_to_acknowledge()
            ),
        )
    })
}

/// Its data is the recorded one's, or was when it became a master.
fn descends(situation: &Situation<'_>, info: &Info) -> bool {
    let was_promoted = situation.in_lineage(&info.replid2, info.second_offset.saturating_sub(1));
    was_promoted || situation.current_id() == Some(info.replid.as_str())
}

/// Somebody sent FAILOVER: its end is waited for, since role commands are refused meanwhile.
pub(super) fn foreign_failover(situation: &Situation<'_>) -> Option<Decision> {
    let (master, _) = situation.well_master()?;
    let since = master.failover_since?;
    Some(if situation.now.saturating_sub(since) < FOREIGN_FAILOVER {
        Decision::Wait("ForeignFailover")
    } else {
        Decision::Heal(Some((
            Held::ForeignFailover,
            format!(
                "somebody sent FAILOVER to {}, and it does not come to its end, perhaps since its target is gone: send \
                 FAILOVER ABORT there as the one who began it",
                master.pod.name
            ),
        )))
    })
}
