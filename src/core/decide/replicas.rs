//! The master is well and stays. What its replicas need is done by healing; these rules name it. Pure.

use super::Decision;
use crate::core::facts::{Info, REDIS_PORT, Role};
use crate::core::heal;
use crate::core::held::Held;
use crate::core::members::{Class, Member};
use crate::core::situation::Situation;

/// A second master: it becomes a replica.
pub(super) fn writable(situation: &Situation<'_>) -> Option<Decision> {
    any_replica(situation, |_, info| info.is_some_and(|info| info.role == Role::Master))
        .then(|| heal_only(situation))
}

/// Its data went on where the recorded history ended. In the profile Durable a person looks before that is overwritten.
pub(super) fn diverged(situation: &Situation<'_>) -> Option<Decision> {
    let held = heal_only(situation);
    matches!(held, Decision::Heal(Some(_))).then_some(held)
}

/// No replica has a link.
pub(super) fn not_replicating(situation: &Situation<'_>) -> Option<Decision> {
    let (_, info) = situation.well_master()?;
    (situation.desired.replicas > 1 && info.attached.is_empty()).then_some(Decision::Heal(None))
}

/// It follows another than the master, or nobody.
pub(super) fn connected_to_wrong(situation: &Situation<'_>) -> Option<Decision> {
    let ip = situation.well_master()?.0.pod.ip?;
    let elsewhere =
        |_: &Member, info: Option<&Info>| info.is_some_and(|info| !Member::follows(info, ip, REDIS_PORT));
    any_replica(situation, elsewhere).then_some(Decision::Heal(None))
}

/// It cannot be reached, or does not answer: Kubernetes restarts or replaces it.
pub(super) fn degraded(situation: &Situation<'_>) -> Option<Decision> {
    let away = |member: &Member, _: Option<&Info>| {
        !matches!(member.class(situation.now), Class::Ok | Class::Loading)
    };
    any_replica(situation, away).then_some(Decision::Heal(None))
}

/// It loads its data or syncs.
pub(super) fn syncing(situation: &Situation<'_>) -> Option<Decision> {
    any_replica(situation, |member, _| !situation.in_sync(member)).then_some(Decision::Heal(None))
}

fn any_replica(situation: &Situation<'_>, is: impl Fn(&Member, Option<&Info>) -> bool) -> bool {
    let Some((master, _)) = situation.well_master() else { return false };
    situation
        .listed()
        .filter(|member| member.pod.uid != master.pod.uid)
        .any(|member| is(member, member.reading(situation.now)))
}

fn heal_only(situation: &Situation<'_>) -> Decision {
    let diverged: Vec<&str> = situation
        .listed()
        .filter(|member| heal::is_kept_apart(situation, member))
        .map(|member| member.pod.name.as_str())
        .collect();
    if diverged.is_empty() {
        return Decision::Heal(None);
    }
    Decision::Heal(Some((
        Held::Diverged,
        format!(
            "{} holds writes that the recorded data does not have, from before the last change of the master: in the \
             profile Durable it is not overwritten before a person has looked. To let it be overwritten, {}",
            diverged.join(", "),
            situation.how_to_acknowledge()
        ),
    )))
}
