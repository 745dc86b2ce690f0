//! The decision table, row by row, and what must hold for all of it.

use std::time::Duration;

use proptest::prelude::*;

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
        (rule, Decision::Open(draft, death)) => (rule, draft, death),
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
    let mut silent = scene.clone();
    silent.hang(2, SECOND);
    assert_eq!(decide(&silent.situation()).1, Decision::Wait("WaitingForPods"));
    let mut fewer = scene.clone();
    fewer.members.remove("u2");
    assert_eq!(decide(&fewer.situation()).1, Decision::Wait("WaitingForPods"));
    let mut with_data = scene;
    with_data.restart(1, 3);
    assert_eq!(held(&with_data), ("Bootstrap", Held::UnknownData));
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
    for ordinal in 0..3 {
        scene.restart(ordinal, if ordinal == 0 { 10 } else { 0 });
    }
    scene.replaced_confirmed = true;
    let (rule_name, draft, _) = opened(&scene);
    assert_eq!((rule_name, draft.to.unwrap().pod.as_str()), ("RestartedMasterAlone", "red-0"));
}

#[test]
fn a_restarted_empty_master_is_not_promoted_while_a_replica_may_hold_the_data() {
    let mut scene = Scene::settled(3);
    scene.restart(0, 0);
    scene.replaced_confirmed = true;
    for ordinal in [1, 2] {
        scene.unroutable(ordinal, 30 * SECOND);
    }
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

/// How a master can look.
#[derive(Clone, Debug)]
enum MasterLooks {
    Well,
    Hung(u64),
    Refused(u64, bool),
    Unroutable(u64),
    Restarted(u64, bool),
}

/// How a replica can look.
#[derive(Clone, Debug)]
enum ReplicaLooks {
    Streaming(i64),
    LinkDown(u64),
    Restarted(u64),
    Unroutable(u64),
    Behind(i64),
}

fn master_looks() -> impl Strategy<Value = MasterLooks> {
    prop_oneof![
        Just(MasterLooks::Well),
        (0..20_000_u64).prop_map(MasterLooks::Hung),
        (10..20_000_u64, any::<bool>()).prop_map(|(ms, lost)| MasterLooks::Refused(ms, lost)),
        (10..20_000_u64).prop_map(MasterLooks::Unroutable),
        (0..2_u64, any::<bool>()).prop_map(|(keys, confirmed)| MasterLooks::Restarted(keys, confirmed)),
    ]
}

fn replica_looks() -> impl Strategy<Value = ReplicaLooks> {
    prop_oneof![
        (0..6_i64).prop_map(ReplicaLooks::Streaming),
        (0..20_u64).prop_map(ReplicaLooks::LinkDown),
        (0..2_u64).prop_map(ReplicaLooks::Restarted),
        (0..20_000_u64).prop_map(ReplicaLooks::Unroutable),
        (1..1000_i64).prop_map(ReplicaLooks::Behind),
    ]
}

fn scenes() -> impl Strategy<Value = Scene> {
    let replicas = prop::collection::vec(replica_looks(), 1..5);
    (master_looks(), replicas, 0..2_u32, any::<bool>()).prop_map(|(master, replicas, quorum, gone)| {
        let mut scene = Scene::settled(u32::try_from(replicas.len() + 1).unwrap());
        scene.record.write_quorum.effective = quorum;
        let millis = Duration::from_millis;
        match master {
            MasterLooks::Well => {}
            MasterLooks::Hung(ms) => scene.hang(0, millis(ms)),
            MasterLooks::Refused(ms, lost) => {
                scene.refuse(0, millis(ms));
                if !lost {
                    scene.member(0).lost_at = None;
                }
            }
            MasterLooks::Unroutable(ms) => scene.unroutable(0, millis(ms)),
            MasterLooks::Restarted(keys, confirmed) => {
                scene.restart(0, keys);
                scene.replaced_confirmed = confirmed;
            }
        }
        scene.member(0).listed = !gone;
        for (ordinal, looks) in (1..).zip(replicas) {
            match looks {
                ReplicaLooks::Streaming(word) => scene.info(ordinal).last_io = Some(word),
                ReplicaLooks::LinkDown(s) => scene.lose_link(ordinal, Duration::from_secs(s)),
                ReplicaLooks::Restarted(keys) => scene.restart(ordinal, keys),
                ReplicaLooks::Unroutable(ms) => scene.unroutable(ordinal, millis(ms)),
                ReplicaLooks::Behind(bytes) => {
                    scene.lose_link(ordinal, Duration::ZERO);
                    scene.info(ordinal).replica_offset = Some(1000 - bytes);
                }
            }
        }
        scene
    })
}

fn opens(scene: &Scene) -> bool {
    matches!(decide(&scene.situation()).1, Decision::Open(..))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Knowing less never leads to a role change that knowing more forbade. With write quorum 0 it can: there
    /// only witnesses speak for a master that is out of reach, and a lost witness says nothing.
    #[test]
    fn removing_evidence_never_turns_a_hold_into_a_promotion(scene in scenes()) {
        if !opens(&scene) && scene.record.write_quorum.effective > 0 {
            for ordinal in 1..u32::try_from(scene.members.len()).unwrap() {
                let mut less = scene.clone();
                less.member(ordinal).sample = None;
                prop_assert!(!opens(&less), "without the word of red-{ordinal}: {:?}", decide(&less.situation()));
                let mut unreachable = scene.clone();
                unreachable.unroutable(ordinal, 30 * SECOND);
                prop_assert!(!opens(&unreachable), "with red-{ordinal} out of reach: {:?}", decide(&unreachable.situation()));
            }
        }
    }

    /// Whoever answers as the recorded master is never replaced.
    #[test]
    fn a_master_that_answers_is_never_replaced(scene in scenes()) {
        if scene.situation().well_master().is_some() {
            prop_assert!(!opens(&scene));
        }
    }

    /// While a replica is being fed by the recorded process, it is never replaced.
    #[test]
    fn a_master_with_a_living_witness_is_never_replaced(scene in scenes()) {
        let situation = scene.situation();
        let fed = situation.members.values().any(|member| {
            member.pod.uid != "u0"
                && member.reading(NOW).is_some_and(|info| info.link_up && info.last_io.is_some_and(|word| word <= 2))
        });
        let replaced = situation.replaced_confirmed;
        if fed && !replaced {
            prop_assert!(!opens(&scene));
        }
    }

    /// Nothing empty is promoted while somebody holds data.
    #[test]
    fn nothing_empty_is_promoted_over_data(scene in scenes()) {
        if let Decision::Open(draft, _) = decide(&scene.situation()).1
            && let Some(to) = draft.to
        {
            let empty = scene.members[&to.uid].sample.as_ref().unwrap().info.keys == 0;
            let data = scene.members.values().any(|member| member.sample.as_ref().is_some_and(|sample| sample.info.keys > 0));
            prop_assert!(!(empty && data));
        }
    }
}
