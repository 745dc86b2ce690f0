//! It is well and stays: its replicas.

use super::*;

#[test]
fn row_9_a_well_cluster_is_healed_only() {
    assert_eq!(said(&Scene::settled(3)), ("Healthy", None));
}

#[test]
fn row_17_a_master_that_users_emptied_under_its_recorded_id_is_legitimate() {
    let mut scene = Scene::settled(3);
    for ordinal in 0..3 {
        scene.info(ordinal).keys = 0;
    }
    assert_eq!(said(&scene), ("Healthy", None));
}

#[test]
fn row_19_a_second_master_is_made_a_replica() {
    let mut scene = Scene::settled(3);
    let master = scene.info(0).clone();
    let run_id = scene.info(2).run_id.clone();
    *scene.info(2) = Info { run_id, replid: "other".to_owned(), ..master };
    assert_eq!(said(&scene), ("ReplicaIsWritable", None));
    let acts = crate::core::heal::heal(&scene.situation(), true);
    assert!(
        acts.iter().any(|act| matches!(act, Act::Command { uid, command: RoleCommand::Follow { cut_clients: true, .. } } if uid == "u2")),
        "{acts:?}"
    );
}

#[test]
fn row_27_a_replica_in_a_full_sync_is_waited_for() {
    let mut scene = Scene::settled(3);
    scene.info(2).sync_in_progress = true;
    assert_eq!(said(&scene), ("Syncing", None));
    assert!(
        !crate::core::heal::heal(&scene.situation(), true)
            .iter()
            .any(|act| matches!(act, Act::Command { .. }))
    );
}

#[test]
fn row_34_a_master_without_any_replica_stays_the_master() {
    let mut scene = Scene::settled(3);
    scene.info(0).attached.clear();
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, SECOND);
    }
    assert_eq!(said(&scene), ("NotReplicating", None));
}

#[test]
fn row_35_a_replica_that_follows_another_is_repointed() {
    let mut scene = Scene::settled(3);
    scene.info(2).master_host = Some(ip(1).to_string());
    assert_eq!(said(&scene), ("ConnectedToWrong", None));
    let acts = crate::core::heal::heal(&scene.situation(), true);
    assert!(
        acts.iter().any(
            |act| matches!(act, Act::Command { uid, command: RoleCommand::Follow { .. } } if uid == "u2")
        ),
        "{acts:?}"
    );
}

#[test]
fn row_36_a_replica_out_of_reach_changes_nothing_else() {
    let mut scene = Scene::settled(3);
    scene.unroutable(2, 20 * SECOND);
    assert_eq!(said(&scene), ("DegradedReplica", None));
}

#[test]
fn row_37_diverged_writes_are_overwritten_or_kept_by_profile() {
    let mut scene = Scene::settled(3);
    scene
        .record
        .lineage
        .insert(0, crate::api::status::Lineage { id: "old".to_owned(), valid_up_to: Some(900) });
    scene.lose_link(2, SECOND);
    let info = scene.info(2);
    info.master_host = Some("127.0.0.1".to_owned());
    info.master_port = 0;
    info.replid = "old".to_owned();
    info.replica_offset = Some(950);
    let followed = |scene: &Scene| {
        let acts = crate::core::heal::heal(&scene.situation(), true);
        acts.iter().any(
            |act| matches!(act, Act::Command { uid, command: RoleCommand::Follow { .. } } if uid == "u2"),
        )
    };
    assert!(followed(&scene), "a full sync, in the profile Balanced");
    scene.desired.profile = Profile::Durable;
    assert_eq!(said(&scene), ("Diverged", Some(Held::Diverged)));
    assert!(!followed(&scene));
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert!(followed(&scene), "a person has looked");
}
