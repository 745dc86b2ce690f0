//! Starting.

use super::*;

#[test]
fn row_8_the_first_ordinal_is_promoted_only_when_all_pods_answer_and_are_empty() {
    let mut scene = Scene::settled(3);
    scene.record = Supervision::default();
    for ordinal in 0..3 {
        scene.restart(ordinal, 0);
    }
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!(
        (rule_name, draft.kind, draft.to.unwrap().pod.as_str()),
        ("Bootstrap", PlanKind::Bootstrap, "red-0")
    );
    let mut kept = scene.clone();
    kept.desired.data_expected = true;
    assert_eq!(opened(&kept).1.reason, "DataLost", "its volumes say that there was data");
    let mut silent = scene.clone();
    silent.hang(2, SECOND);
    assert_eq!(decide(&silent.situation()).1, Decision::Wait("WaitingForPods"));
    let mut fewer = scene.clone();
    fewer.members.remove("u2");
    assert_eq!(decide(&fewer.situation()).1, Decision::Wait("WaitingForPods"));
    let mut with_data = scene;
    with_data.restart(1, 3);
    let (rule_name, draft, _) = opened(&with_data);
    assert_eq!((rule_name, draft.kind, draft.reason), ("Bootstrap", PlanKind::Recover, "AdoptedData"));
    assert_eq!(draft.to.unwrap().pod, "red-1");
    with_data.hang(2, SECOND);
    assert_eq!(rule(&with_data), "Bootstrap");
    for ordinal in 0..3 {
        with_data.member(ordinal).fenced_since =
            Some(NOW.saturating_sub(crate::core::decide::starting::PATIENCE));
    }
    assert_eq!(held(&with_data), ("Bootstrap", Held::WaitingForMembers));
}

#[test]
fn row_41_a_single_pod_is_promoted_again_after_its_restart() {
    let mut scene = Scene::settled(1);
    scene.desired.write_quorum = 0;
    scene.restart(0, 10);
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.kind, draft.reason), ("Single", PlanKind::Recover, "SinglePodRestarted"));
    scene.restart(0, 0);
    assert_eq!(opened(&scene).1.reason, "DataLost");
}
