//! The master dies, in all the ways that are decided.

use std::time::Duration;

use super::stage::{MS, Stage};
use crate::api::status::PlanStep;
use crate::core::event::RoleCommand;

const SECOND: Duration = Duration::from_secs(1);

fn finished(stage: &Stage, not: &str) -> bool {
    let record = stage.record();
    record.plan.is_none() && record.master.is_some_and(|master| master.pod != not)
}

#[test]
fn a_killed_master_is_replaced_within_milliseconds_and_routed_with_one_write() {
    let mut stage = Stage::settled(3);
    let start = stage.now;
    stage.kill("cache-0");
    assert!(stage.until(SECOND, |stage| !stage.masters().is_empty()));
    let took = stage.now.saturating_sub(start);
    assert!(took < 40 * MS, "promoted after {took:?} of virtual time");
    assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.record());
    assert_eq!(stage.route_writes, 1);
    assert_eq!(stage.masters().len(), 1);
    assert!(stage.until(5 * SECOND, |stage| stage.condition("FailoverReady").1 == "NoQuorum"), "one is away");
    stage.restart("cache-0", false);
    assert!(stage.until(9 * SECOND, |stage| stage.condition("FailoverReady").0 == "True"));
    let last = stage.status.clone().unwrap().last_failover.unwrap();
    assert_eq!((last.from.as_deref(), last.to.as_str()), (Some("cache-0"), stage.master().as_str()));
    assert!(last.stages.is_some());
}

#[test]
fn one_record_precedes_the_promotion_when_nothing_can_change_the_choice() {
    let mut stage = Stage::settled(3);
    let before = stage.status_writes;
    stage.kill("cache-0");
    assert!(stage.until(SECOND, |stage| !stage.masters().is_empty()));
    assert_eq!(stage.status_writes - before, 1);
    assert!(!stage.commands.iter().any(|(_, command)| *command == RoleCommand::Detach));
    assert!(stage.reasons().contains(&"ReplicaSelected"));
}

#[test]
fn a_replica_that_cannot_be_read_makes_the_choice_wait_for_the_cut() {
    let mut stage = Stage::settled(3);
    stage.node("cache-1").cut_off = true;
    stage.run(9 * SECOND);
    stage.kill("cache-0");
    assert!(stage.until(9 * SECOND, |stage| !stage.masters().is_empty()), "{:?}", stage.reasons());
    assert_eq!(stage.masters(), ["cache-2"]);
    assert!(stage.commands.contains(&("cache-2".to_owned(), RoleCommand::Detach)));
}

/// Names of the pods that serve reads.
fn readers(stage: &Stage) -> Vec<String> {
    let endpoints = stage.reads_slice.clone().unwrap_or_default().endpoints;
    let serves = |uid: &String| endpoints.iter().any(|(_, other)| other == uid);
    stage.nodes.iter().filter(|node| serves(&node.uid)).map(|node| node.name.clone()).collect()
}

#[test]
fn reads_move_a_second_after_the_master_and_never_lead_to_a_pod_out_of_sync() {
    let mut stage = Stage::settled(3);
    assert!(stage.until(5 * SECOND, |stage| readers(stage) == ["cache-1", "cache-2"]));
    let writes = stage.reads_writes;
    stage.kill("cache-0");
    assert!(stage.until(SECOND, |stage| stage.route_writes == 1));
    stage.run(900 * MS);
    assert_eq!(stage.reads_writes, writes, "the proxies' one immediate change is the master's");
    stage.run(400 * MS);
    let other = if stage.master() == "cache-1" { "cache-2" } else { "cache-1" };
    assert_eq!(readers(&stage), [other]);
    stage.restart("cache-0", false);
    assert!(stage.until(9 * SECOND, |stage| readers(stage).len() == 2));
    assert!(readers(&stage).contains(&"cache-0".to_owned()));
}

#[test]
fn a_late_answer_moves_no_reads_and_a_long_silence_does() {
    let mut stage = Stage::settled(3);
    assert!(stage.until(5 * SECOND, |stage| readers(stage) == ["cache-1", "cache-2"]));
    let writes = stage.reads_writes;
    stage.node("cache-1").frozen = true;
    stage.run(600 * MS);
    stage.node("cache-1").frozen = false;
    stage.run(3 * SECOND);
    assert_eq!(stage.reads_writes, writes);
    stage.node("cache-1").frozen = true;
    assert!(stage.until(3 * SECOND, |stage| readers(stage) == ["cache-2"]));
}

#[test]
fn a_lost_replica_leaves_the_reads_at_once_and_the_master_stands_in() {
    let mut stage = Stage::settled(2);
    assert!(stage.until(5 * SECOND, |stage| readers(stage) == ["cache-1"]));
    stage.kill("cache-1");
    assert!(stage.until(500 * MS, |stage| readers(stage) == ["cache-0"]));
    stage.restart("cache-1", false);
    assert!(stage.until(9 * SECOND, |stage| readers(stage) == ["cache-1"]));
}

#[test]
fn the_replica_with_the_largest_offset_is_promoted() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    stage.node("cache-1").offset -= 1;
    assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")));
    assert_eq!(stage.master(), "cache-2");
}

#[test]
fn survivors_resync_partially() {
    let mut stage = Stage::settled(3);
    let before = (stage.nodes[1].full_syncs, stage.nodes[2].full_syncs);
    stage.kill("cache-0");
    assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")));
    stage.run(SECOND);
    assert_eq!((stage.nodes[1].full_syncs, stage.nodes[2].full_syncs), before);
    assert!(stage.nodes[1].link_up || stage.nodes[2].link_up);
}

#[test]
fn a_master_that_restarts_empty_at_once_is_a_failover_and_no_key_is_lost() {
    let mut stage = Stage::settled(3);
    let keys = stage.nodes[1].keys;
    stage.kill("cache-0");
    stage.restart("cache-0", false);
    assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")));
    assert!(stage.until(5 * SECOND, |stage| stage.nodes.iter().all(|node| node.keys == keys)));
    assert_eq!(stage.masters().len(), 1);
}

#[test]
fn clients_that_came_to_the_old_master_after_its_restart_are_cut() {
    for watch_is_fast in [false, true] {
        let mut stage = Stage::settled(3);
        stage.watch_is_fast = watch_is_fast;
        stage.kill("cache-0");
        stage.restart("cache-0", false);
        assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")));
        assert!(stage.status.clone().unwrap().last_failover.unwrap().stages.unwrap().routed.is_some());
        stage.run(3 * SECOND);
        let cuts: Vec<_> =
            stage.commands.iter().filter(|(_, command)| *command == RoleCommand::CutClients).collect();
        assert_eq!(cuts, [&("cache-0".to_owned(), RoleCommand::CutClients)]);
    }
}

#[test]
fn a_deleted_master_pod_is_replaced() {
    let mut stage = Stage::settled(3);
    stage.replace_pod("cache-0");
    assert!(stage.until(SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.reasons());
    assert!(stage.until(9 * SECOND, |stage| stage.nodes[0].link_up));
    assert!(stage.until(9 * SECOND, |stage| stage.condition("ReplicationHealthy").0 == "True"));
}

#[test]
fn the_restarted_master_is_promoted_when_no_replica_ever_synced() {
    let mut stage = Stage::settled(3);
    for name in ["cache-1", "cache-2"] {
        stage.kill(name);
    }
    stage.run(2 * SECOND);
    stage.kill("cache-0");
    stage.restart("cache-0", true);
    for name in ["cache-1", "cache-2"] {
        stage.restart(name, false);
    }
    assert!(stage.until(15 * SECOND, |stage| stage.masters() == ["cache-0"]), "{:?}", stage.reasons());
    assert!(stage.until(15 * SECOND, |stage| stage.nodes.iter().all(|node| node.keys == 10)));
}

#[test]
fn when_every_pod_comes_back_empty_the_first_one_is_promoted_and_the_loss_is_said() {
    let mut stage = Stage::settled(3);
    for name in ["cache-0", "cache-1", "cache-2"] {
        stage.kill(name);
    }
    stage.run(SECOND);
    for name in ["cache-0", "cache-1", "cache-2"] {
        stage.restart(name, false);
    }
    assert!(stage.until(20 * SECOND, |stage| stage.masters() == ["cache-0"]), "{:?}", stage.reasons());
    assert!(stage.reasons().contains(&"DataLost"));
}

#[test]
fn a_fresh_leader_replaces_a_master_that_stays_refused_after_the_drain() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    stage.start_operator();
    let start = stage.now;
    assert!(stage.until(20 * SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.record());
    assert!(
        stage.now.saturating_sub(start) > 8 * SECOND,
        "three seconds of refusal and the drain come first"
    );
    assert!(stage.reasons().contains(&"OldMasterRevoked"));
    assert_eq!(stage.masters().len(), 1);
}

#[test]
fn a_failover_is_called_off_when_the_master_answers_before_the_point_of_no_return() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    // The replicas lose it too.
    for name in ["cache-1", "cache-2"] {
        stage.cut(name, "cache-0");
    }
    assert!(stage.until(20 * SECOND, |stage| {
        stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Recorded)
    }));
    stage.node("cache-0").cut_off = false;
    stage.cuts.clear();
    assert!(stage.until(9 * SECOND, |stage| stage.record().plan.is_none()));
    assert_eq!(stage.master(), "cache-0");
    assert_eq!(stage.masters(), ["cache-0"]);
    assert!(stage.until(9 * SECOND, |stage| stage.nodes[1].link_up && stage.nodes[2].link_up));
}

#[test]
fn a_second_failure_during_the_first_ends_with_one_master() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    assert!(stage.until(SECOND, |stage| !stage.masters().is_empty()));
    let second = stage.masters().remove(0);
    stage.kill(&second);
    stage.restart(&second, false);
    stage.restart("cache-0", false);
    assert!(
        stage.until(20 * SECOND, |stage| {
            stage.masters().len() == 1
                && stage.record().plan.is_none()
                && stage.nodes.iter().all(|node| node.keys == 10)
        }),
        "{:?} {:?}",
        stage.record(),
        stage.nodes
    );
}

/// The leader is killed before and after each changing effect of a failover; another operator takes over.
fn a_crash_at_any_effect(restart_after: Duration) {
    a_crash_at_any_effect_of(&Stage::settled(3), restart_after);
}

fn a_crash_at_any_effect_of(settled: &Stage, restart_after: Duration) {
    let mut undisturbed = settled.clone();
    undisturbed.kill("cache-0");
    undisturbed.run(10 * SECOND);
    assert!(undisturbed.effects > 6);
    for point in 1..=undisturbed.effects {
        for after in [false, true] {
            crash_run(settled.clone(), point, after, restart_after);
        }
    }
}

#[test]
fn a_crash_at_any_effect_ends_with_one_master_when_the_old_one_restarts_at_once() {
    a_crash_at_any_effect(Duration::ZERO);
}

#[test]
fn a_crash_at_any_effect_ends_with_one_master_when_the_old_one_restarts_in_the_middle() {
    a_crash_at_any_effect(50 * MS);
}

#[test]
fn a_crash_at_any_effect_ends_with_one_master_when_the_old_one_stays_away() {
    a_crash_at_any_effect(30 * SECOND);
}

/// A replica that cannot be read for a while makes the failover take all its steps.
#[test]
fn a_crash_at_any_effect_ends_with_one_master_when_a_replica_is_out_of_sight() {
    let mut settled = Stage::settled(3);
    settled.node("cache-2").cut_off = true;
    settled.run(9 * SECOND);
    let mut undisturbed = settled.clone();
    undisturbed.kill("cache-0");
    undisturbed.run(10 * SECOND);
    assert!(undisturbed.commands.iter().any(|(_, command)| *command == RoleCommand::Detach));
    for restart_after in [Duration::ZERO, 50 * MS, 30 * SECOND] {
        a_crash_at_any_effect_of(&settled, restart_after);
    }
}

fn crash_run(mut stage: Stage, point: u32, after: bool, restart_after: Duration) {
    stage.crash_at = Some((point, after));
    stage.kill("cache-0");
    let restarts_at = stage.now + restart_after;
    let mut restarted = false;
    let mut settle = |stage: &mut Stage, time: Duration| {
        let end = stage.now + time;
        if !restarted && restarts_at <= end {
            stage.run(restarts_at.saturating_sub(stage.now));
            if !stage.crashed {
                stage.restart("cache-0", false);
                restarted = true;
            }
        }
        stage.run(end.saturating_sub(stage.now));
    };
    settle(&mut stage, 5 * SECOND);
    if stage.crashed {
        stage.now += 8 * SECOND;
        if !restarted && stage.now >= restarts_at {
            stage.restart("cache-0", false);
            restarted = true;
        }
        stage.crash_at = None;
        stage.start_operator();
    }
    stage.until(30 * SECOND, |stage| stage.masters().len() == 1);
    stage.node("cache-2").cut_off = false;
    if !restarted {
        stage.restart("cache-0", false);
    }
    let done =
        |stage: &Stage| stage.record().plan.is_none() && stage.nodes.iter().all(|node| node.keys == 10);
    stage.until(30 * SECOND, done);
    stage.run(SECOND);
    let label = format!(
        "crash {} effect {point}, restart after {restart_after:?}",
        if after { "after" } else { "before" }
    );
    let record = stage.record();
    assert_eq!(stage.masters(), [stage.master()], "{label}: {:?} {record:?}", stage.reasons());
    assert!(record.plan.is_none(), "{label}: {record:?}");
    assert!(stage.nodes.iter().all(|node| node.keys == 10), "{label}: {:?}", stage.nodes);
    assert_eq!(
        stage.slice.as_ref().and_then(|slice| slice.uid.clone()),
        record.master.map(|master| master.uid),
        "{label}"
    );
    assert_ne!(stage.master(), "cache-0", "{label}");
    let promotions: u32 = stage.nodes.iter().map(|node| node.promotions).sum();
    assert_eq!(promotions, 2, "{label}: bootstrap and one failover");
}
