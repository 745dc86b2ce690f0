//! It is dead: who replaces it, and may we?

use super::*;

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
    // They live, but what they hold is of another history.
    for ordinal in [1, 2] {
        scene.lose_link(ordinal, SECOND);
        scene.info(ordinal).replid = format!("other{ordinal}");
    }
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.to.unwrap().pod.as_str()), ("RestartedMasterAlone", "red-0"));
    let mut never_in_sync = scene.clone();
    for ordinal in [1, 2] {
        never_in_sync.info(ordinal).replica_offset = Some(1);
    }
    assert_eq!(rule(&never_in_sync), "StrayReplica", "first they are cut");
    for ordinal in [1, 2] {
        let info = never_in_sync.info(ordinal);
        (info.master_host, info.master_port) = (Some("127.0.0.1".to_owned()), 0);
    }
    let (rule_name, draft, _) = opened(&never_in_sync);
    assert_eq!((rule_name, draft.to.unwrap().pod.as_str()), ("ColdStart", "red-0"));
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

#[test]
fn a_replica_that_waits_for_a_dead_master_without_any_data_is_cut_first() {
    let mut scene = all_booted([(3, None), (3, None), (5, None)], 10 * SECOND);
    let info = scene.info(1);
    (info.master_host, info.master_port) = (Some(ip(0).to_string()), crate::core::facts::REDIS_PORT);
    let cut = Act::Command { uid: "u1".to_owned(), command: RoleCommand::Detach };
    let (name, decision) = decide(&scene.situation());
    assert_eq!((name, decision), ("StrayReplica", Decision::Do(Box::new(cut), None)));
    scene.info(1).sync_in_progress = true;
    assert_ne!(rule(&scene), "StrayReplica", "somebody feeds it");
}

#[test]
fn row_20_two_unrecorded_masters_and_no_replica_of_the_data_are_left_to_a_person() {
    let mut scene = killed();
    let master = Scene::settled(3).info(0).clone();
    for ordinal in [1, 2] {
        let run_id = scene.info(ordinal).run_id.clone();
        *scene.info(ordinal) = Info { run_id, replid: format!("their-{ordinal}"), ..master.clone() };
    }
    scene.unroutable(0, 10 * SECOND);
    scene.member(0).bad_since = Some(NOW.saturating_sub(10 * SECOND));
    scene.member(0).listed = false;
    assert_eq!(held(&scene), ("Ambiguous", Held::Ambiguous));
}

#[test]
fn row_25_a_candidate_that_lacks_too_much_is_refused_until_a_person_accepts_it() {
    let mut scene = killed();
    scene.desired.max_lost_bytes = Some(100);
    assert_eq!(opened(&scene).0, "DeadMaster");
    scene.info(0).master_offset = 1200;
    assert_eq!(decide(&scene.situation()).1, Decision::Wait("TooStale"), "one that has more may come back");
    scene.member(0).bad_since = Some(NOW.saturating_sub(31 * SECOND));
    assert_eq!(held(&scene), ("TooStale", Held::TooStale));
    scene.desired.max_lost_bytes = Some(200);
    assert_eq!(opened(&scene).0, "DeadMaster");
    scene.desired.max_lost_bytes = Some(100);
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert_eq!(opened(&scene).0, "DeadMaster");
}

/// Out of reach for ten seconds, by us and by its replicas.
fn presumed() -> Scene {
    let mut scene = Scene::settled(3);
    scene.unroutable(0, 10 * SECOND);
    for ordinal in [1, 2] {
        scene.info(ordinal).last_io = Some(9);
    }
    scene
}

#[test]
fn presumed_deaths_that_come_too_often_are_left_to_a_person() {
    let ago = |seconds: i64| Time(Timestamp::from_second(-seconds).unwrap());
    let mut scene = presumed();
    scene.record.presumed = vec![ago(61)];
    let (_, draft, _) = opened(&scene);
    assert!(draft.presumed);
    scene.record.presumed = vec![ago(59)];
    assert_eq!(held(&scene), ("Flapping", Held::Flapping));
    scene.record.presumed = vec![ago(899), ago(500), ago(100)];
    assert_eq!(held(&scene), ("Flapping", Held::Flapping));
    scene.record.presumed = vec![ago(901), ago(500), ago(100)];
    assert_eq!(opened(&scene).0, "DeadMaster");
    scene.record.presumed = vec![ago(3), ago(2), ago(1)];
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert_eq!(opened(&scene).0, "DeadMaster", "a person has seen it");
    let mut certain = killed();
    certain.record.presumed = vec![ago(3), ago(2), ago(1)];
    assert_eq!(opened(&certain).0, "DeadMaster", "a certain death is no flapping");
}

#[test]
fn row_13_a_master_on_a_lost_node_is_named_so() {
    let mut scene = presumed();
    scene.member(0).pod.node_state = NodeState::Lost;
    assert_eq!(opened(&scene).2, Death::Presumptive("NodeLost"));
}

#[test]
fn row_42_a_pair_with_quorum_0_is_replaced_when_its_node_is_lost() {
    let mut scene = Scene::settled(2);
    scene.record.write_quorum.effective = 0;
    scene.unroutable(0, 60 * SECOND);
    scene.lose_link(1, 60 * SECOND);
    scene.member(0).pod.node_state = NodeState::Lost;
    assert_eq!(opened(&scene).0, "DeadMaster");
}

#[test]
fn row_42_a_cache_takes_the_word_of_one_silent_replica() {
    let mut scene = Scene::settled(2);
    scene.desired.profile = Profile::Cache;
    scene.record.write_quorum.effective = 0;
    scene.unroutable(0, 60 * SECOND);
    scene.lose_link(1, 60 * SECOND);
    assert_eq!(opened(&scene).0, "DeadMaster");
}

#[test]
fn row_23_durable_waits_for_whoever_may_hold_confirmed_writes() {
    let mut scene = killed();
    scene.unroutable(2, SECOND);
    scene.member(2).streamed_at = None;
    assert_eq!(opened(&scene).0, "DeadMaster");
    scene.desired.profile = Profile::Durable;
    assert_eq!(held(&scene), ("NoQuorum", Held::NoQuorum));
}

#[test]
fn row_15_durable_leaves_data_that_cannot_be_compared_to_a_person() {
    let mut scene = all_booted([(0, None), (3, None), (5, None)], 90 * SECOND);
    assert_eq!(opened(&scene).1.reason, "ColdStartLossUnknown");
    scene.desired.profile = Profile::Durable;
    assert_eq!(held(&scene).1, Held::UnknownData);
    scene.desired.acknowledged = Some(scene.record.epoch);
    assert_eq!(opened(&scene).1.reason, "ColdStartLossUnknown");
}
