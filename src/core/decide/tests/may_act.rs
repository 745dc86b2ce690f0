//! May we act at all?

use super::*;

#[test]
fn row_2_standby_does_nothing_even_with_a_dead_master() {
    let mut scene = killed();
    scene.term = None;
    assert_eq!(decide(&scene.situation()), ("Standby", Decision::Wait("Standby")));
}

#[test]
fn rows_3_and_4_without_an_api_server_nothing_is_decided_and_after_a_second_it_is_said() {
    for mut scene in [Scene::settled(3), killed()] {
        scene.api_lost_since = Some(NOW.saturating_sub(500 * MS));
        assert_eq!(decide(&scene.situation()).1, Decision::Wait("ControlPlaneLost"));
        scene.api_lost_since = Some(NOW.saturating_sub(2 * SECOND));
        assert_eq!(held(&scene), ("ControlPlaneLost", Held::ControlPlaneLost));
    }
}

#[test]
fn row_5_when_nobody_can_be_reached_it_is_us() {
    let mut scene = Scene::settled(3);
    for ordinal in 0..3 {
        scene.unroutable(ordinal, 10 * SECOND);
    }
    assert_eq!(held(&scene), ("BlindSupervisor", Held::BlindSupervisor));
}

#[test]
fn row_7_an_open_plan_is_carried_on_whatever_else_is_true() {
    let mut scene = killed();
    scene.record.plan = Some(plan(PlanStep::Recorded));
    assert_eq!(decide(&scene.situation()), ("Resume", Decision::Advance));
    scene.record.plan = Some(plan(PlanStep::Promoted));
    assert_ne!(rule(&scene), "Resume");
}

#[test]
fn row_40_a_fresh_leader_waits_for_evidence_of_its_own() {
    let mut scene = killed();
    scene.evidence_since = NOW.saturating_sub(100 * MS);
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("WarmUp"));
}

#[test]
fn row_1_after_a_stall_old_evidence_is_void() {
    let mut scene = killed();
    scene.evidence_since = NOW;
    for ordinal in 0..3 {
        scene.member(ordinal).void(NOW);
    }
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("WarmUp"));
}

#[test]
fn row_6_manual_mode_decides_and_says_and_does_nothing() {
    let mut scene = killed();
    scene.desired.automatic = false;
    assert_eq!(held(&scene), ("DeadMaster", Held::ManualMode));
    let mut leaving = Scene::settled(3);
    leaving.desired.automatic = false;
    leaving.member(0).pod.terminating = true;
    assert_eq!(said(&leaving), ("LeavingMaster", Some(Held::ManualMode)));
}
