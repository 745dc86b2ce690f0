//! May we fail over? R + W > N, in the form "enough replicas are proven silent". Pure.
//!
//! A master with write quorum W stops by itself when fewer than W replicas acknowledge. If `N_r - W + 1` of its
//! `N_r` replicas are certainly not acknowledging, it cannot reach W: it has stopped, or will within the drain.

#[cfg(test)]
mod tests;

use super::facts::{NodeState, Profile};
use super::health::Death;
use super::mechanism::{Mechanism, on};
use super::members::Member;
use super::situation::Situation;
use crate::api::status::ProcessRef;

/// The answer, with the numbers that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Granted,
    /// The arithmetic, for people.
    Refused(String),
}

/// Is a failover away from `from` allowed, given that these replicas are or will be silent?
pub fn permit(
    situation: &Situation<'_>,
    from: &ProcessRef,
    death: &Death,
    write_quorum: u32,
    silent: impl Fn(&Member) -> bool,
) -> Permission {
    if !on(Mechanism::Permission) {
        return Permission::Granted;
    }
    let replicas = replica_count(situation, from);
    if matches!(death, Death::Definitive(_)) {
        return confirmed_data(situation, from, replicas, write_quorum);
    }
    // The master's own place holds no replica of it, whoever is there now.
    let proven: u32 = situation
        .others(from)
        .filter(|member| member.pod.name != from.pod && silent(member))
        .count()
        .try_into()
        .unwrap_or(u32::MAX);
    let foreign = situation.foreign_replicas() > 0;
    let quorum = if foreign { 0 } else { write_quorum };
    if quorum == 0 {
        // A cache is to be writable: one silent witness is enough, and two may take writes for a while.
        if situation.desired.profile == Profile::Cache && proven > 0 {
            return Permission::Granted;
        }
        let gone = situation
            .member_of(from)
            .is_none_or(|member| !member.listed || member.pod.node_state == NodeState::Lost);
        // Without any replica there is nobody whose silence could tell.
        let majority = proven * 2 > replicas || replicas == 0;
        return if gone && majority {
            Permission::Granted
        } else {
            Permission::Refused(format!(
                "the write quorum is 0, so a master that is only unreachable may still take writes; that needs \
                 its pod or node to be gone and a majority of replicas silent ({proven} of {replicas} are)"
            ))
        };
    }
    let needed = (replicas + 1).saturating_sub(quorum);
    if proven >= needed {
        Permission::Granted
    } else {
        Permission::Refused(format!(
            "{replicas} replicas, write quorum {quorum}, {proven} proven silent: {proven} + {quorum} > {replicas} \
             is false, the old master may still be acknowledged by a replica we cannot see"
        ))
    }
}

/// After a certain death nobody can be acknowledged any more. What was may be held by a replica that does not answer: in
/// the profile Durable so many have to answer that each confirmed write is among them.
fn confirmed_data(
    situation: &Situation<'_>,
    from: &ProcessRef,
    replicas: u32,
    write_quorum: u32,
) -> Permission {
    if situation.desired.profile != Profile::Durable || write_quorum == 0 {
        return Permission::Granted;
    }
    let answers = |member: &&Member| member.pod.name != from.pod && member.reading(situation.now).is_some();
    let seen: u32 = situation.others(from).filter(answers).count().try_into().unwrap_or(u32::MAX);
    if seen + write_quorum > replicas {
        return Permission::Granted;
    }
    Permission::Refused(format!(
        "{replicas} replicas, write quorum {write_quorum}, {seen} answer: {seen} + {write_quorum} > {replicas} is false, a \
         replica that does not answer may hold confirmed writes that the others lack (profile Durable)"
    ))
}

/// N - 1: the largest of spec, registered members and existing pods, without the master's place.
pub fn replica_count(situation: &Situation<'_>, master: &ProcessRef) -> u32 {
    let existing = 1 + situation.listed().filter(|member| member.pod.name != master.pod).count();
    let registered = situation.record.registered.len();
    let pods: u32 = existing.max(registered).try_into().unwrap_or(u32::MAX);
    pods.max(situation.desired.replicas).saturating_sub(1)
}
