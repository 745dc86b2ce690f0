//! The decision table, row by row.

use std::time::Duration;

use super::*;
use crate::api::status::{Plan, Supervision};
use crate::core::scene::{NOW, Scene, ip};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn rule(scene: &Scene) -> &'static str {
    decide(&scene.situation()).0
}

fn held(scene: &Scene) -> (&'static str, Held) {
    match decide(&scene.situation()) {
        (rule, Decision::Hold(held, _)) => (rule, held),
        other => panic!("expected a hold, not {other:?}"),
    }
}

fn opened(scene: &Scene) -> (&'static str, Draft, Death) {
    match decide(&scene.situation()) {
        (rule, Decision::Open(draft, death)) => (rule, *draft, death),
        other => panic!("expected a role change, not {other:?}"),
    }
}

/// The master was killed 20 ms ago and every replica noticed.
fn killed() -> Scene {
    let mut scene = Scene::settled(3);
    scene.refuse(0, 20 * MS);
    scene.lose_link(1, Duration::ZERO);
    scene.lose_link(2, Duration::ZERO);
    scene
}

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

fn plan(step: PlanStep) -> Plan {
    Plan {
        id: "p".to_owned(),
        kind: PlanKind::Failover,
        step,
        reason: "Test".to_owned(),
        from: None,
        to: None,
        holder: "term".to_owned(),
        overwrites: Vec::new(),
        w_before: 1,
        started_at: Time(Timestamp::UNIX_EPOCH),
    }
}

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
        with_data.member(ordinal).fenced_since = Some(NOW.saturating_sub(PATIENCE));
    }
    assert_eq!(held(&with_data), ("Bootstrap", Held::WaitingForMembers));
}

#[test]
fn row_9_a_well_cluster_is_healed_only() {
    assert_eq!(decide(&Scene::settled(3).situation()), ("Healthy", Decision::Heal));
}

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
fn row_11_a_killed_master_is_certainly_dead_when_every_qualified_witness_lost_it() {
    let (rule_name, draft, death) = opened(&killed());
    assert_eq!((rule_name, draft.kind), ("DeadMaster", PlanKind::Failover));
    assert_eq!(death, Death::Definitive("MasterProcessEnded"));
}

#[test]
fn row_11_the_successor_is_recorded_at_once_only_by_what_was_said_after_the_death() {
    assert_eq!(opened(&killed()).1.to.unwrap().pod, "red-1");
    let mut scene = killed();
    // It was no witness, and has not been asked since.
    scene.member(2).streamed_at = None;
    scene.member(2).sample.as_mut().unwrap().asked_at = NOW.saturating_sub(40 * MS);
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.to), ("DeadMaster", None));
    let mut scene = killed();
    scene.info(2).link_up = true;
    scene.info(2).master_host = Some("10.9.9.9".to_owned());
    scene.member(2).streamed_at = None;
    assert_eq!(opened(&scene).1.to, None, "whoever is fed may still grow");
}

#[test]
fn row_11_one_witness_that_has_not_said_so_yet_delays_the_verdict() {
    let mut scene = killed();
    scene.member(2).sample.as_mut().unwrap().asked_at = NOW.saturating_sub(40 * MS);
    scene.info(2).last_io = Some(-1);
    assert_eq!(rule(&scene), "Suspect");
}

#[test]
fn row_11_a_refusal_without_a_lost_connection_is_not_certain() {
    let mut scene = killed();
    scene.member(0).lost_at = None;
    assert_eq!(rule(&scene), "Suspect");
}

#[test]
fn row_11_a_fenced_replica_is_no_witness_of_death() {
    let mut scene = killed();
    for ordinal in [1, 2] {
        scene.info(ordinal).link_down_since = Some(-1);
    }
    assert_eq!(rule(&scene), "Suspect");
}

#[test]
fn row_11_a_new_run_id_is_certain_after_a_live_read_of_the_pod() {
    let mut scene = Scene::settled(3);
    scene.restart(0, 0);
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, Duration::ZERO);
    }
    assert_eq!(rule(&scene), "Suspect");
    scene.replaced_confirmed = true;
    let (rule_name, _, death) = opened(&scene);
    assert_eq!((rule_name, death), ("DeadMaster", Death::Definitive("MasterRestarted")));
}

#[test]
fn in_manual_mode_a_failover_is_named_and_not_done_and_a_single_pod_starts_again() {
    let mut scene = killed();
    scene.desired.automatic = false;
    assert_eq!(held(&scene), ("DeadMaster", Held::ManualMode));
    let mut single = Scene::settled(1);
    single.desired.automatic = false;
    single.restart(0, 10);
    assert_eq!(opened(&single).0, "Single");
}

#[test]
fn row_12_a_master_whose_pod_is_being_deleted_is_left_while_it_answers() {
    let mut scene = Scene::settled(3);
    scene.member(0).pod.terminating = true;
    assert_eq!(held(&scene), ("LeavingMaster", Held::NotYetDecided));
}

#[test]
fn row_13_an_unreachable_master_is_presumed_dead_after_its_time_and_without_witnesses() {
    let mut scene = Scene::settled(3);
    scene.unroutable(0, 4 * SECOND);
    for ordinal in [1, 2] {
        scene.info(ordinal).last_io = Some(3);
    }
    let (rule_name, _, death) = opened(&scene);
    assert_eq!((rule_name, death), ("DeadMaster", Death::Presumptive("MasterUnreachable")));
    scene.unroutable(0, 2 * SECOND);
    scene.member(0).bad_since = Some(NOW.saturating_sub(2 * SECOND));
    assert_eq!(rule(&scene), "Suspect");
}

/// All pods booted anew, this long ago: `(keys, offset of the recorded history)`.
fn all_booted(pods: [(u64, Option<i64>); 3], ago: Duration) -> Scene {
    let mut scene = Scene::settled(3);
    for (ordinal, (keys, offset)) in (0..).zip(pods) {
        scene.restart(ordinal, keys);
        scene.member(ordinal).fenced_since = Some(NOW.saturating_sub(ago));
        if let Some(offset) = offset {
            scene.info(ordinal).replid = "line".to_owned();
            scene.info(ordinal).replica_offset = Some(offset);
        }
    }
    scene.replaced_confirmed = true;
    scene
}

#[test]
fn row_14_with_snapshots_the_newest_position_wins_once_all_are_back() {
    let scene = all_booted([(7, Some(700)), (9, Some(900)), (8, Some(800))], 20 * MS);
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.reason), ("ColdStart", "ColdStart"));
    assert_eq!(draft.to.unwrap().pod, "red-1");
    assert_eq!(draft.overwrites, ["u0", "u2"]);
}

#[test]
fn row_14_a_pod_that_is_not_back_may_have_the_newest_data() {
    let scene = |ago: Duration| {
        let mut scene = all_booted([(7, Some(700)), (9, Some(900)), (8, Some(800))], ago);
        scene.refuse(1, ago);
        scene
    };
    assert_eq!(decide(&scene(20 * MS).situation()), ("ColdStart", Decision::Wait("ColdStart")));
    assert_eq!(held(&scene(20 * SECOND)), ("ColdStart", Held::WaitingForMembers));
    assert_eq!(opened(&scene(31 * SECOND)).1.to.unwrap().pod, "red-2");
}

#[test]
fn row_14_without_the_last_master_a_minute_is_waited() {
    let scene = |ago: Duration| {
        let mut scene = all_booted([(7, Some(700)), (9, Some(900)), (8, Some(800))], ago);
        scene.refuse(0, ago);
        scene
    };
    assert_eq!(held(&scene(31 * SECOND)), ("ColdStart", Held::WaitingForMembers));
    assert_eq!(opened(&scene(61 * SECOND)).1.to.unwrap().pod, "red-1");
}

#[test]
fn row_14_a_pod_that_loads_its_data_is_waited_for_however_long_that_takes() {
    let mut scene = all_booted([(7, None), (9, None), (8, None)], 90 * SECOND);
    scene.info(0).loading = true;
    assert_eq!(held(&scene), ("ColdStart", Held::WaitingForMembers));
    scene.info(0).loading = false;
    assert_eq!(opened(&scene).1.to.unwrap().pod, "red-0");
}

#[test]
fn row_15_without_positions_the_last_masters_data_wins_and_then_the_most_keys() {
    let mut scene = all_booted([(7, None), (9, None), (8, None)], 20 * MS);
    // Its pod is another one now, on the same volume.
    scene.record.master.as_mut().unwrap().uid = "u0-of-before".to_owned();
    scene.evidence_since = NOW.saturating_sub(20 * SECOND);
    assert_eq!(
        decide(&scene.situation()),
        ("ColdStart", Decision::Wait("ColdStart")),
        "it is only presumed dead"
    );
    for ordinal in 0..3 {
        scene.member(ordinal).fenced_since = Some(NOW.saturating_sub(6 * SECOND));
    }
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.reason), ("ColdStart", "ColdStart"));
    assert_eq!(draft.to.unwrap().pod, "red-0");
    assert_eq!(draft.overwrites, ["u1", "u2"]);
    // Its volume is lost.
    scene.info(0).keys = 0;
    let (_, draft, _) = opened(&scene);
    assert_eq!((draft.reason, draft.to.unwrap().pod.as_str()), ("ColdStartLossUnknown", "red-1"));
    assert_eq!(draft.overwrites, ["u2"]);
}

#[test]
fn row_15_a_process_that_survived_is_no_cold_start() {
    let mut scene = all_booted([(7, None), (9, None), (8, None)], 20 * MS);
    let survivor = Scene::settled(3).member(2).clone();
    *scene.member(2) = survivor;
    scene.lose_link(2, Duration::ZERO);
    assert_eq!(opened(&scene).0, "DeadMaster");
}

#[test]
fn row_16_when_all_came_back_empty_the_first_is_promoted_and_the_loss_is_named() {
    let mut scene = Scene::settled(3);
    for ordinal in 0..3 {
        scene.restart(ordinal, 0);
    }
    scene.replaced_confirmed = true;
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.reason), ("ColdStartEmpty", "DataLost"));
    scene.restart(2, 5);
    assert_ne!(rule(&scene), "ColdStartEmpty", "nothing empty ever wins over data");
}

#[test]
fn row_18_an_empty_master_of_another_lineage_is_not_served_to_replicas_with_data() {
    let mut scene = Scene::settled(3);
    scene.info(0).keys = 0;
    scene.info(0).replid = "other".to_owned();
    scene.lose_link(1, SECOND);
    assert_eq!(held(&scene), ("EmptyMaster", Held::NotYetDecided));
}

#[test]
fn row_21_a_master_that_somebody_else_moved_is_named() {
    let mut scene = Scene::settled(3);
    let promoted = scene.info(0).clone();
    let follows = scene.info(2).clone();
    let run_id = scene.info(1).run_id.clone();
    *scene.info(1) = Info { run_id, ..promoted };
    *scene.info(0) = Info { run_id: "run0".to_owned(), master_host: Some(ip(1).to_string()), ..follows };
    assert_eq!(held(&scene), ("ExternalFailover", Held::NotYetDecided));
}

#[test]
fn row_22_a_recorded_master_that_was_fenced_is_compared_like_a_replica() {
    let mut scene = Scene::settled(3);
    let mut fenced = scene.info(1).clone();
    fenced.run_id = "run0".to_owned();
    fenced.master_host = Some("127.0.0.1".to_owned());
    fenced.master_port = 0;
    fenced.link_up = false;
    fenced.replica_offset = Some(2000);
    *scene.info(0) = fenced;
    let (_, _, death) = opened(&scene);
    assert_eq!(death, Death::Definitive("MasterDemoted"));
    let best = crate::core::candidate::best(&scene.situation()).unwrap();
    assert_eq!(best.member.pod.name, "red-0");
}

#[test]
fn row_23_a_replica_that_cannot_be_seen_may_still_feed_the_old_master() {
    let mut scene = Scene::settled(3);
    scene.unroutable(0, 10 * SECOND);
    scene.unroutable(1, 10 * SECOND);
    scene.lose_link(2, 10 * SECOND);
    assert_eq!(held(&scene), ("NoQuorum", Held::NoQuorum));
}

#[test]
fn row_23_a_foreign_replica_makes_the_write_quorum_worthless() {
    let mut scene = Scene::settled(3);
    scene.info(0).attached[0].ip = "10.9.9.9".to_owned();
    assert_eq!(scene.situation().foreign_replicas(), 1);
}

#[test]
fn row_24_data_of_another_lineage_is_no_candidate() {
    let mut scene = killed();
    for ordinal in [1, 2] {
        scene.info(ordinal).replid = format!("other{ordinal}");
    }
    assert_eq!(held(&scene), ("NoSafeCandidate", Held::NoSafeCandidate));
}

#[test]
fn row_24_an_unlisted_id_counts_when_it_is_the_only_one_among_most_pods() {
    let mut scene = killed();
    for ordinal in [1, 2] {
        scene.info(ordinal).replid = "changed when the first replica attached".to_owned();
    }
    assert_eq!(rule(&scene), "DeadMaster");
    scene.unroutable(2, SECOND);
    assert_eq!(rule(&scene), "NoSafeCandidate", "one of three is no majority");
}

#[test]
fn row_24_an_older_id_counts_only_up_to_its_recorded_end() {
    let mut scene = killed();
    scene.record.lineage = vec![
        crate::api::status::Lineage { id: "line".to_owned(), valid_up_to: Some(999) },
        crate::api::status::Lineage { id: "newer".to_owned(), valid_up_to: None },
    ];
    assert_eq!(rule(&scene), "NoSafeCandidate");
    scene.info(1).replica_offset = Some(999);
    assert_eq!(rule(&scene), "DeadMaster");
}

#[test]
fn rows_26_28_29_33_a_sick_master_is_named_and_left() {
    let mut loading = Scene::settled(3);
    loading.info(0).loading = true;
    assert_eq!(held(&loading), ("LoadingMaster", Held::NotYetDecided));

    let mut hung = Scene::settled(3);
    hung.hang(0, 10 * SECOND);
    for ordinal in [1, 2] {
        hung.info(ordinal).last_io = Some(9);
    }
    assert_eq!(held(&hung), ("HungMaster", Held::NotYetDecided));

    let mut busy = Scene::settled(3);
    busy.member(0).busy_script = true;
    assert_eq!(held(&busy), ("BusyMaster", Held::NotYetDecided));

    let mut denied = Scene::settled(3);
    denied.member(0).link_lost(NOW.saturating_sub(10 * SECOND));
    denied.member(0).denied = Some("WRONGPASS".to_owned());
    for ordinal in [1, 2] {
        denied.lose_link(ordinal, 9 * SECOND);
    }
    assert_eq!(held(&denied), ("AccessProblem", Held::NotYetDecided));
}

#[test]
fn row_40_a_fresh_leader_waits_for_evidence_of_its_own() {
    let mut scene = killed();
    scene.evidence_since = NOW.saturating_sub(100 * MS);
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("WarmUp"));
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

#[test]
fn row_42_a_pair_with_quorum_0_never_presumes_death() {
    let mut scene = Scene::settled(2);
    scene.record.write_quorum.effective = 0;
    scene.unroutable(0, 60 * SECOND);
    scene.lose_link(1, 60 * SECOND);
    assert_eq!(held(&scene), ("NoQuorum", Held::NoQuorum));
}

#[test]
fn the_restarted_master_is_promoted_when_nobody_can_replace_it() {
    let mut scene = Scene::settled(3);
    scene.restart(0, 10);
    scene.replaced_confirmed = true;
    // They live, but were never in sync.
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, SECOND);
        scene.info(ordinal).replica_offset = Some(1);
    }
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.to.unwrap().pod.as_str()), ("RestartedMasterAlone", "red-0"));
    let mut lately = scene.clone();
    lately.hang(2, 2 * SECOND);
    assert_eq!(decide(&lately.situation()).1, Decision::Wait("RestartedMasterAlone"));
    scene.hang(2, 6 * SECOND);
    assert_eq!(opened(&scene).0, "RestartedMasterAlone");
}

#[test]
fn a_restarted_empty_master_is_not_promoted_while_a_replica_may_hold_the_data() {
    let mut scene = Scene::settled(3);
    scene.restart(0, 0);
    scene.replaced_confirmed = true;
    for ordinal in [1, 2] {
        scene.unroutable(ordinal, 30 * SECOND);
    }
    scene.member(0).fenced_since = Some(NOW.saturating_sub(30 * SECOND));
    assert_eq!(held(&scene).1, Held::WaitingForMembers);
    scene.member(0).fenced_since = Some(NOW.saturating_sub(90 * SECOND));
    assert_eq!(held(&scene).1, Held::NoSafeCandidate);
}

#[test]
fn a_member_under_a_command_is_not_chosen_and_the_largest_offset_is() {
    let mut scene = killed();
    scene.info(2).replica_offset = Some(1001);
    assert_eq!(crate::core::candidate::best(&scene.situation()).unwrap().member.pod.name, "red-2");
    scene.command_under_way(2);
    assert_eq!(crate::core::candidate::best(&scene.situation()).unwrap().member.pod.name, "red-1");
}
