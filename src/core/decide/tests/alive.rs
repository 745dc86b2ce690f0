//! Is the master alive?

use super::*;

#[test]
fn row_10_a_master_that_feeds_a_replica_is_alive_whatever_we_see() {
    let mut scene = Scene::settled(3);
    scene.refuse(0, 30 * SECOND);
    scene.lose_link(1, 20 * SECOND);
    assert_eq!(held(&scene), ("PartitionOperatorMaster", Held::SupervisorPartitioned));
    scene.info(2).last_io = Some(5);
    assert_ne!(rule(&scene), "PartitionOperatorMaster", "five seconds without word are no sign of life");
}

#[test]
fn row_26_a_master_that_loads_a_data_set_is_named_and_waited_for() {
    let mut scene = Scene::settled(3);
    scene.info(0).loading = true;
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("LoadingMaster"));
    scene.member(0).loading_since = Some(NOW.saturating_sub(2 * SECOND));
    assert_eq!(held(&scene), ("LoadingMaster", Held::LoadingMaster));
}

/// It hangs for this long, and its replicas have had no word for `silence` seconds.
fn hung(since: Duration, silence: i64) -> Scene {
    let mut scene = Scene::settled(3);
    scene.hang(0, since);
    for ordinal in [1, 2] {
        scene.info(ordinal).last_io = Some(silence);
    }
    scene
}

#[test]
fn row_28_a_hung_master_is_presumed_dead_after_its_time() {
    let (name, _, death) = opened(&hung(7 * SECOND, 6));
    assert_eq!((name, death), ("DeadMaster", Death::Presumptive("MasterHung")));
    assert_eq!(decide(&hung(5 * SECOND, 4).situation()).1, Decision::Wait("HungMaster"));
    let mut cache = hung(3 * SECOND, 3);
    cache.desired.hung_after = 2 * SECOND;
    assert_eq!(opened(&cache).0, "DeadMaster");
    assert_eq!(rule(&hung(20 * SECOND, 1)), "PartitionOperatorMaster", "its replicas are being fed");
}

#[test]
fn row_28_a_replaced_master_that_goes_on_hanging_is_ended_where_that_can_be_done() {
    let mut scene = Scene::settled(3);
    let old = scene.info(0).clone();
    *scene.info(2) = Info { run_id: scene.info(2).run_id.clone(), ..old };
    scene.hang(2, 61 * SECOND);
    let ends = |scene: &Scene| {
        crate::core::heal::heal(&scene.situation(), true).contains(&Act::DeletePod { uid: "u2".to_owned() })
    };
    assert!(ends(&scene));
    scene.member(2).pod.node_state = NodeState::Lost;
    assert!(!ends(&scene), "nobody could end it there");
    scene.member(2).pod.node_state = NodeState::Fit;
    scene.step_since = NOW.saturating_sub(30 * SECOND);
    assert!(!ends(&scene), "a minute after the promotion");
}

#[test]
fn row_29_a_busy_master_is_waited_for_then_its_script_is_ended_then_it_counts_as_hung() {
    let busy_for = |time: Duration| {
        let mut scene = Scene::settled(3);
        scene.member(0).busy_since = Some(NOW.saturating_sub(time));
        scene
    };
    assert_eq!(decide(&busy_for(500 * MS).situation()).1, Decision::Wait("BusyMaster"));
    assert_eq!(held(&busy_for(10 * SECOND)), ("BusyMaster", Held::BusyMaster));
    let (name, decision) = decide(&busy_for(16 * SECOND).situation());
    let kill = Act::Command { uid: "u0".to_owned(), command: RoleCommand::KillScript };
    assert_eq!(name, "BusyMaster");
    assert!(
        matches!(&decision, Decision::Do(act, Some((Held::BusyMaster, _))) if **act == kill),
        "{decision:?}"
    );
    let mut after_a_silence = busy_for(2 * SECOND);
    after_a_silence.member(0).bad_since = Some(NOW.saturating_sub(7 * SECOND));
    for ordinal in [1, 2] {
        after_a_silence.info(ordinal).last_io = Some(6);
    }
    assert_eq!(
        held(&after_a_silence),
        ("BusyMaster", Held::BusyMaster),
        "first it was silent, now it says why"
    );
    let mut for_long = busy_for(61 * SECOND);
    for ordinal in [1, 2] {
        for_long.lose_link(ordinal, 50 * SECOND);
    }
    assert_eq!(opened(&for_long).2, Death::Presumptive("MasterBusy"));
}

#[test]
fn row_30_a_paused_master_whose_replicas_hear_it_is_alive() {
    assert_eq!(rule(&hung(30 * SECOND, 1)), "PartitionOperatorMaster");
}

#[test]
fn row_33_a_master_that_lets_nobody_in_is_never_replaced_for_it() {
    let mut scene = Scene::settled(3);
    scene.member(0).link_lost(NOW.saturating_sub(10 * SECOND));
    scene.member(0).denied = Some("WRONGPASS".to_owned());
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, 9 * SECOND);
    }
    assert_eq!(held(&scene), ("AccessProblem", Held::AccessProblem));
    let mut on_the_open_connection = Scene::settled(3);
    on_the_open_connection.member(0).denied = Some("NOPERM".to_owned());
    assert_eq!(held(&on_the_open_connection), ("AccessProblem", Held::AccessProblem));
}
