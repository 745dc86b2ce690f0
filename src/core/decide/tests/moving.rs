//! It is well, but should not stay.

use super::*;

fn switches(scene: &Scene) -> (&'static str, &'static str, String) {
    let (rule, draft, _) = opened(scene);
    assert_eq!(draft.kind, PlanKind::Switchover);
    (rule, draft.reason, draft.to.unwrap().pod)
}

#[test]
fn row_12_a_master_whose_pod_is_being_deleted_hands_over() {
    let mut scene = Scene::settled(3);
    scene.member(0).pod.terminating = true;
    assert_eq!(switches(&scene), ("LeavingMaster", "PodDeleted", "red-1".to_owned()));
    scene.member(1).pod.terminating = true;
    assert_eq!(switches(&scene).2, "red-2", "not to one that leaves as well");
    scene.switch_not_before = NOW + SECOND;
    assert_eq!(said(&scene), ("LeavingMaster", Some(Held::NoSuccessor)), "the last attempt was a moment ago");
}

#[test]
fn row_12_without_a_successor_the_rest_is_healed_and_the_reason_said() {
    let mut scene = Scene::settled(3);
    scene.member(0).pod.terminating = true;
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, SECOND);
    }
    assert_eq!(said(&scene), ("LeavingMaster", Some(Held::NoSuccessor)));
    assert_eq!(
        said(&{
            let mut single = Scene::settled(1);
            single.member(0).pod.terminating = true;
            single
        })
        .1,
        None,
        "a single pod has nobody"
    );
}

#[test]
fn row_32_a_master_that_cannot_save_hands_over_to_one_that_can() {
    let mut scene = Scene::settled(3);
    scene.info(0).cannot_save = true;
    scene.info(1).cannot_save = true;
    assert_eq!(switches(&scene), ("SickMaster", "MasterCannotSave", "red-2".to_owned()));
    scene.last_switch_ago = Some(100);
    assert_eq!(said(&scene), ("SickMaster", None), "it was moved a moment ago");
    scene.last_switch_ago = None;
    scene.info(2).cannot_save = true;
    assert_eq!(said(&scene), ("SickMaster", Some(Held::SickMaster)), "they share the fault");
}

#[test]
fn row_38_a_master_on_a_node_that_is_being_emptied_hands_over_to_another_node() {
    let mut scene = Scene::settled(3);
    scene.member(0).pod.node_state = NodeState::Leaving;
    scene.member(1).pod.node_state = NodeState::Leaving;
    assert_eq!(switches(&scene), ("DrainMaster", "NodeDrained", "red-2".to_owned()));
    scene.member(2).pod.node_state = NodeState::Lost;
    assert_eq!(said(&scene), ("DrainMaster", Some(Held::NoSuccessor)));
}

#[test]
fn scaling_in_moves_the_master_to_a_pod_that_stays() {
    let mut scene = Scene::settled(3);
    scene.record.master = scene.member(2).process();
    let master = scene.info(0).clone();
    let replica = scene.info(1).clone();
    let (run0, run2) = (scene.info(0).run_id.clone(), scene.info(2).run_id.clone());
    let host = Some(ip(2).to_string());
    *scene.info(0) = Info { run_id: run0, master_host: host.clone(), ..replica };
    scene.info(1).master_host = host;
    *scene.info(2) = Info { run_id: run2, ..master };
    scene.info(2).attached[0].ip = ip(0).to_string();
    scene.info(2).attached[1].ip = ip(1).to_string();
    assert_eq!(rule(&scene), "Healthy");
    scene.desired.scale_in_to = Some(1);
    assert_eq!(switches(&scene), ("SurplusMaster", "ScaleIn", "red-0".to_owned()));
}

#[test]
fn a_person_may_ask_for_any_pod_or_one_by_name_also_in_manual_mode() {
    let mut scene = Scene::settled(3);
    scene.desired.automatic = false;
    scene.request = Some("red-2".to_owned());
    assert_eq!(switches(&scene), ("Requested", "Requested", "red-2".to_owned()));
    scene.request = Some("any".to_owned());
    assert_eq!(switches(&scene).2, "red-1");
    for refused in ["red-0", "red-9", "other"] {
        scene.request = Some(refused.to_owned());
        assert_eq!(rule(&scene), "Healthy", "{refused}");
    }
    scene.request = Some("any".to_owned());
    scene.last_switch_ago = Some(30);
    assert_eq!(rule(&scene), "Healthy", "somebody asks again and again");
    scene.request = Some("red-2".to_owned());
    assert_eq!(rule(&scene), "Requested", "a named pod is no accident");
}
