//! What a well cluster gets.

use std::time::Duration;

use super::*;
use crate::core::scene::{NOW, Scene, ip};

fn commands(scene: &Scene) -> Vec<(String, RoleCommand)> {
    heal(&scene.situation(), true)
        .into_iter()
        .filter_map(|act| match act {
            Act::Command { uid, command } => Some((uid, command)),
            _ => None,
        })
        .collect()
}

fn next_record(scene: &Scene) -> Option<Supervision> {
    heal(&scene.situation(), true).into_iter().find_map(|act| match act {
        Act::Record { next, .. } => Some(*next),
        _ => None,
    })
}

fn follow(cut_clients: bool) -> RoleCommand {
    RoleCommand::Follow { ip: ip(0), port: REDIS_PORT, cut_clients }
}

#[test]
fn a_well_cluster_needs_nothing() {
    assert_eq!(heal(&Scene::settled(3).situation(), true), []);
}

#[test]
fn nothing_is_done_while_the_master_is_in_doubt() {
    let mut scene = Scene::settled(3);
    scene.restart(1, 0);
    scene.member(0).suspect(NOW);
    assert_eq!(heal(&scene.situation(), true), []);
}

#[test]
fn a_restarted_replica_is_pointed_to_the_master_again() {
    let mut scene = Scene::settled(3);
    scene.restart(1, 10);
    assert_eq!(commands(&scene), [("u1".to_owned(), follow(false))]);
}

#[test]
fn an_unrecorded_master_is_demoted_and_its_clients_are_cut() {
    let mut scene = Scene::settled(3);
    let run_id = scene.info(1).run_id.clone();
    let master = scene.info(0).clone();
    *scene.info(1) = Info { run_id, ..master };
    assert_eq!(commands(&scene), [("u1".to_owned(), follow(true))]);
}

#[test]
fn full_syncs_go_singly_and_partial_ones_at_once() {
    let mut scene = Scene::settled(4);
    for ordinal in [1, 2, 3] {
        scene.restart(ordinal, 10);
    }
    assert_eq!(commands(&scene).len(), 1);
    let mut scene = Scene::settled(4);
    for ordinal in [1, 2, 3] {
        scene.lose_link(ordinal, Duration::ZERO);
        scene.info(ordinal).master_host = Some("10.9.9.9".to_owned());
    }
    assert_eq!(commands(&scene).len(), 3);
}

#[test]
fn unknown_data_is_replaced_only_when_the_masters_has_a_second_copy_and_that_is_on_record() {
    let mut scene = Scene::settled(3);
    scene.restart(1, 10);
    scene.record.registered.retain(|uid| uid != "u1");
    assert_eq!(commands(&scene), []);
    assert!(next_record(&scene).unwrap().registered.contains(&"u1".to_owned()));
    let mut without_copy = scene.clone();
    without_copy.lose_link(2, Duration::from_secs(1));
    let record = next_record(&without_copy);
    assert!(!record.is_some_and(|next| next.registered.contains(&"u1".to_owned())));
    let mut empty_master = scene.clone();
    empty_master.info(0).keys = 0;
    assert_eq!(next_record(&empty_master), None);
    scene.record.registered.push("u1".to_owned());
    assert_eq!(commands(&scene).len(), 1);
    scene.record.registered.pop();
    scene.restart(1, 0);
    assert_eq!(commands(&scene).len(), 1, "an empty pod has nothing to lose");
}

#[test]
fn nobody_follows_before_the_masters_id_is_on_record() {
    let mut scene = Scene::settled(3);
    scene.restart(1, 0);
    scene.info(0).replid = "changed".to_owned();
    assert_eq!(commands(&scene), []);
    assert_eq!(next_record(&scene).unwrap().lineage.last().unwrap().id, "changed");
}

#[test]
fn the_master_lets_replicas_in_before_they_are_pointed_to_it() {
    let mut scene = Scene::settled(2);
    scene.record.write_quorum.effective = 0;
    scene.info(0).attached.clear();
    scene.info(0).good_replicas = None;
    scene.restart(1, 0);
    assert_eq!(commands(&scene), [("u0".to_owned(), RoleCommand::Serve)]);
    scene.member(0).served_at = Some(NOW);
    assert_eq!(commands(&scene), [("u1".to_owned(), follow(false))]);
}

#[test]
fn the_write_quorum_is_raised_on_the_server_first_and_on_record_after() {
    let mut scene = Scene::settled(3);
    scene.record.write_quorum.effective = 0;
    scene.info(0).good_replicas = None;
    assert_eq!(commands(&scene), [("u0".to_owned(), RoleCommand::SetWriteQuorum(1))]);
    assert_eq!(next_record(&scene), None);
    scene.info(0).good_replicas = Some(2);
    assert_eq!(commands(&scene), []);
    assert_eq!(next_record(&scene).unwrap().write_quorum.effective, 1);
}

#[test]
fn the_write_quorum_is_lowered_on_record_first_and_on_the_server_after() {
    let mut scene = Scene::settled(2);
    scene.unroutable(1, Duration::from_secs(20));
    scene.member(1).out_of_sync_since = Some(NOW.saturating_sub(RELAX_AFTER));
    scene.info(0).good_replicas = Some(0);
    assert_eq!(commands(&scene), []);
    assert_eq!(next_record(&scene).unwrap().write_quorum.effective, 0);
    scene.record.write_quorum.effective = 0;
    assert_eq!(commands(&scene), [("u0".to_owned(), RoleCommand::SetWriteQuorum(0))]);
}

#[test]
fn the_write_quorum_stays_while_the_last_replica_is_only_late() {
    let mut scene = Scene::settled(2);
    scene.unroutable(1, Duration::from_secs(5));
    scene.member(1).out_of_sync_since = Some(NOW.saturating_sub(Duration::from_secs(5)));
    assert_eq!(heal(&scene.situation(), true), []);
}

#[test]
fn a_pod_that_is_gone_for_good_is_no_member_any_more() {
    let mut scene = Scene::settled(3);
    scene.record.registered.push("an older pod".to_owned());
    assert!(!next_record(&scene).unwrap().registered.contains(&"an older pod".to_owned()));
}

#[test]
fn a_master_nobody_knows_is_fenced_with_its_data() {
    let mut scene = Scene::settled(3);
    scene.restart(1, 10);
    scene.record.registered.retain(|uid| uid != "u1");
    scene.info(1).role = Role::Master;
    assert_eq!(commands(&scene), [("u1".to_owned(), RoleCommand::Demote)]);
}

/// Scaled in to one and out again: the volumes of before are all that the other pods have.
#[test]
fn pods_on_old_volumes_follow_a_master_that_is_alone() {
    let mut scene = Scene::settled(3);
    scene.info(0).attached.clear();
    for ordinal in [1, 2] {
        scene.restart(ordinal, 5);
    }
    scene.record.registered = vec!["u0".to_owned()];
    assert!(next_record(&scene).unwrap().registered.contains(&"u1".to_owned()));
}
