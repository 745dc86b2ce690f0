//! Where the replicas Service should lead: to replicas in sync, else to the master. Pure.
//!
//! A replica that says it is not in sync leaves at once; it joins after a while. While the master changes, nothing is moved here: a replica
//! without a master refuses reads by itself, and kube-proxy takes one change at once but lets the next one wait, and
//! that one is the master's.

use super::event::Endpoint;
use super::facts::{Mono, ReadsFact};
use super::members::{Class, Member};
use super::situation::Situation;
use crate::api::status::PlanStep;

/// In sync for this long, which is three good reads, a replica counts as one, for readers and in its label.
pub const JOIN_AFTER: Mono = Mono::from_secs(1);

/// A replica that only does not answer leaves after this.
const SILENCE: Mono = Mono::from_secs(1);

/// The endpoints that the slice should have, by ordinal.
pub fn wanted(situation: &Situation<'_>, seen: &ReadsFact) -> Vec<Endpoint> {
    let changing = situation.plan().is_some_and(|plan| plan.step < PlanStep::Promoted);
    let Some((master, _)) = situation.well_master().filter(|_| !changing) else {
        // Only what exists no more: its address may be given to another pod.
        let mut kept: Vec<&Member> = situation.listed().filter(|member| is_among(seen, member)).collect();
        kept.sort_by_key(|member| member.pod.ordinal);
        return kept.into_iter().filter_map(endpoint).collect();
    };
    let serves = |member: &&Member| {
        let joined = member.in_sync_since.is_some_and(|since| situation.now >= since + JOIN_AFTER);
        member.pod.uid != master.pod.uid
            && !member.pod.terminating
            && if is_among(seen, member) {
                situation.in_sync(member) || is_only_late(situation, member)
            } else {
                situation.in_sync(member) && joined
            }
    };
    let mut replicas: Vec<&Member> = situation.listed().filter(serves).collect();
    if replicas.is_empty() && master.listed {
        replicas.push(master);
    }
    replicas.sort_by_key(|member| member.pod.ordinal);
    replicas.into_iter().filter_map(endpoint).collect()
}

/// Does the slice already say that?
pub fn leads_to(seen: &ReadsFact, endpoints: &[Endpoint]) -> bool {
    seen.endpoints.len() == endpoints.len()
        && endpoints
            .iter()
            .all(|endpoint| seen.endpoints.contains(&(endpoint.ip.to_string(), endpoint.uid.clone())))
}

fn is_among(seen: &ReadsFact, member: &Member) -> bool {
    member.pod.ip.is_some_and(|ip| seen.endpoints.contains(&(ip.to_string(), member.pod.uid.clone())))
}

/// Connected, and silent for a moment: that says nothing about its data.
fn is_only_late(situation: &Situation<'_>, member: &Member) -> bool {
    let for_long = member.out_of_sync_since.is_some_and(|since| situation.now >= since + SILENCE);
    member.class(situation.now) == Class::Hung && member.link_id().is_some() && !for_long
}

fn endpoint(member: &Member) -> Option<Endpoint> {
    Some(Endpoint {
        pod: member.pod.name.clone(),
        uid: member.pod.uid.clone(),
        ip: member.pod.ip?,
        node: member.pod.node.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::scene::{NOW, Scene, ip};

    fn seen(ordinals: &[u32]) -> ReadsFact {
        let endpoints =
            ordinals.iter().map(|ordinal| (ip(*ordinal).to_string(), format!("u{ordinal}"))).collect();
        ReadsFact { endpoints, epoch: 7 }
    }

    fn pods(scene: &Scene, now: &[u32]) -> Vec<String> {
        wanted(&scene.situation(), &seen(now)).into_iter().map(|endpoint| endpoint.pod).collect()
    }

    fn in_sync(replicas: u32) -> Scene {
        let mut scene = Scene::settled(replicas);
        for ordinal in 1..replicas {
            scene.member(ordinal).in_sync_since = Some(NOW.saturating_sub(Mono::from_secs(60)));
        }
        scene
    }

    #[test]
    fn replicas_in_sync_serve_and_the_master_does_not() {
        assert_eq!(pods(&in_sync(3), &[]), ["red-1", "red-2"]);
    }

    #[test]
    fn a_replica_leaves_at_once_and_joins_after_a_while() {
        let mut scene = in_sync(3);
        scene.lose_link(1, Mono::ZERO);
        assert_eq!(pods(&scene, &[1, 2]), ["red-2"]);
        let mut scene = in_sync(3);
        scene.member(1).in_sync_since = Some(NOW.saturating_sub(Mono::from_millis(900)));
        assert_eq!(pods(&scene, &[2]), ["red-2"]);
        assert_eq!(pods(&scene, &[1, 2]), ["red-1", "red-2"]);
        scene.member(1).in_sync_since = Some(NOW.saturating_sub(JOIN_AFTER));
        assert_eq!(pods(&scene, &[2]), ["red-1", "red-2"]);
    }

    #[test]
    fn without_replicas_in_sync_the_master_serves_reads() {
        let mut scene = in_sync(2);
        scene.lose_link(1, Mono::ZERO);
        assert_eq!(pods(&scene, &[1]), ["red-0"]);
        assert_eq!(pods(&Scene::settled(1), &[]), ["red-0"]);
    }

    #[test]
    fn a_replica_that_is_being_deleted_leaves() {
        let mut scene = in_sync(3);
        scene.member(1).pod.terminating = true;
        assert_eq!(pods(&scene, &[1, 2]), ["red-2"]);
    }

    #[test]
    fn while_the_master_is_away_only_pods_that_are_gone_leave() {
        let mut scene = in_sync(3);
        scene.refuse(0, Mono::from_millis(50));
        scene.lose_link(1, Mono::ZERO);
        assert_eq!(pods(&scene, &[1, 2]), ["red-1", "red-2"]);
        scene.members.remove("u2");
        assert_eq!(pods(&scene, &[1, 2]), ["red-1"]);
        scene.member(1).pod.ip = Some(ip(9));
        assert_eq!(pods(&scene, &[1, 2]), [] as [&str; 0]);
    }
}
