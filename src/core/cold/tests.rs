//! Starts without a record. Those with one are in the decision table's tests.

use super::*;
use crate::api::status::Supervision;
use crate::core::scene::Scene;

/// Three pods that booted anew, and no record. `(keys, history, position)`
fn unrecorded(pods: [(u64, &str, Option<i64>); 3]) -> Scene {
    let mut scene = Scene::settled(3);
    scene.record = Supervision::default();
    for (ordinal, (keys, history, position)) in (0..).zip(pods) {
        scene.restart(ordinal, keys);
        scene.info(ordinal).replid = history.to_owned();
        if let Some(position) = position {
            scene.info(ordinal).replica_offset = Some(position);
        }
    }
    scene
}

fn started(scene: &Scene) -> Start {
    match adopt(&scene.situation()) {
        Some(Cold::Start(start)) => start,
        other => panic!("expected a start, not {other:?}"),
    }
}

#[test]
fn pods_without_data_are_no_cold_start() {
    assert_eq!(adopt(&unrecorded([(0, "a", None), (0, "b", None), (0, "c", None)]).situation()), None);
}

#[test]
fn pods_that_share_a_history_are_compared_by_position_not_by_keys() {
    let start =
        started(&unrecorded([(9, "line", Some(500)), (7, "line", Some(600)), (8, "other", Some(900))]));
    assert_eq!(start.to.pod, "red-1");
    assert_eq!(start.overwrites, ["u0", "u2"]);
    assert!(start.why.contains("2 pods share one history"), "{}", start.why);
}

#[test]
fn without_a_shared_history_the_most_keys_win_and_an_empty_pod_never() {
    let start = started(&unrecorded([(0, "a", Some(900)), (7, "b", None), (7, "c", None)]));
    assert_eq!(start.to.pod, "red-1");
    assert_eq!(start.overwrites, ["u2"]);
}

#[test]
fn a_loading_pod_is_waited_for() {
    let mut scene = unrecorded([(9, "a", None), (7, "b", None), (7, "c", None)]);
    scene.info(2).loading = true;
    assert_eq!(adopt(&scene.situation()), Some(Cold::Wait("red-2".to_owned())));
    scene.members.remove("u1");
    assert_eq!(adopt(&scene.situation()), Some(Cold::Wait("red-2 and 1 that do not exist yet".to_owned())));
}

#[test]
fn a_running_master_is_taken_up_without_waiting_for_the_rest() {
    let mut scene = Scene::settled(3);
    scene.record = Supervision::default();
    scene.unroutable(2, Duration::from_secs(1));
    let start = started(&scene);
    assert_eq!((start.to.pod.as_str(), start.reason), ("red-0", "AdoptedMaster"));
    assert_eq!(start.overwrites, [] as [&str; 0]);
    // One that feeds nobody may be one of two.
    scene.info(1).link_up = false;
    assert_eq!(adopt(&scene.situation()), Some(Cold::Wait("red-2".to_owned())));
}

#[test]
fn an_empty_master_beside_pods_with_data_is_nobodys_choice() {
    let mut scene = Scene::settled(3);
    scene.record = Supervision::default();
    scene.info(0).keys = 0;
    scene.info(1).link_up = false;
    scene.info(2).link_up = false;
    assert!(matches!(adopt(&scene.situation()), Some(Cold::Refuse(_))));
}
