//! Is what is recorded still true?

use super::*;

#[test]
fn row_18_an_empty_master_of_another_lineage_is_not_served_to_replicas_with_data() {
    let mut scene = Scene::settled(3);
    scene.info(0).keys = 0;
    scene.info(0).replid = "other".to_owned();
    scene.lose_link(1, SECOND);
    assert_eq!(held(&scene), ("EmptyMaster", Held::EmptyMaster));
    scene.desired.acknowledged = Some(scene.record.epoch - 1);
    assert_eq!(held(&scene), ("EmptyMaster", Held::EmptyMaster), "that was said of something earlier");
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert_ne!(rule(&scene), "EmptyMaster", "a person says that it was emptied on purpose");
}

/// `red-1` was made the master, and the recorded `red-0` its replica, at this position.
fn moved(position: i64, link_up: bool) -> Scene {
    let mut scene = Scene::settled(3);
    let promoted = scene.info(0).clone();
    let follows = scene.info(2).clone();
    let run_id = scene.info(1).run_id.clone();
    *scene.info(1) = Info {
        run_id,
        replid: "theirs".to_owned(),
        replid2: "line".to_owned(),
        second_offset: 1001,
        ..promoted
    };
    *scene.info(0) = Info {
        run_id: "run0".to_owned(),
        master_host: Some(ip(1).to_string()),
        replica_offset: Some(position),
        link_up,
        ..follows
    };
    scene
}

#[test]
fn row_21_a_master_that_somebody_else_moved_is_adopted() {
    let adopted = |scene: &Scene| match decide(&scene.situation()) {
        ("ExternalFailover", Decision::Do(act, None)) => match *act {
            Act::Record { next, .. } => *next,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let next = adopted(&moved(1000, false));
    assert_eq!(next.master.unwrap().pod, "red-1");
    assert_eq!(next.epoch, 8);
    assert_eq!(next.lineage.last().unwrap().id, "theirs");
    assert_eq!(next.lineage[0].valid_up_to, Some(1000));
    assert_eq!(next.write_quorum.effective, 0, "nobody knows what is in force there");
}

#[test]
fn row_21_where_it_may_cost_writes_a_person_decides() {
    let mut scene = moved(1500, false);
    assert_eq!(held(&scene), ("ExternalFailover", Held::ExternalFailover));
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert!(matches!(decide(&scene.situation()).1, Decision::Do(..)));
}

#[test]
fn row_21_a_master_of_another_history_is_not_adopted() {
    let mut scene = moved(1000, false);
    scene.info(1).replid2 = "unknown".to_owned();
    assert_ne!(rule(&scene), "ExternalFailover");
}

#[test]
fn row_31_somebody_elses_failover_is_waited_for_and_then_named() {
    let mut scene = Scene::settled(3);
    scene.member(0).failover_since = Some(NOW.saturating_sub(2 * SECOND));
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("ForeignFailover"));
    scene.member(0).failover_since = Some(NOW.saturating_sub(11 * SECOND));
    assert_eq!(said(&scene), ("ForeignFailover", Some(Held::ForeignFailover)));
}
