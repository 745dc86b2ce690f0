//! Faults in combination: what must hold whatever happens.

use std::time::Duration;

use super::stage::{MS, Stage};
use crate::api::status::PlanStep;
use crate::core::event::Event;
use crate::core::facts::Role;

const SECOND: Duration = Duration::from_secs(1);

fn finished(stage: &Stage, not: &str) -> bool {
    let record = stage.record();
    record.plan.is_none() && record.master.is_some_and(|master| master.pod != not)
}

/// The master restarts at once, and the one live read of its pod fails.
#[test]
fn a_failed_live_read_of_the_masters_pod_is_tried_again() {
    let mut stage = Stage::settled(3);
    // No witness: only the new run id shows the death.
    stage.start_operator();
    stage.run(SECOND);
    stage.failing_confirmations = 1;
    stage.kill("cache-0");
    stage.restart("cache-0", false);
    assert!(stage.until(20 * SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.condition("Held"));
}

/// Power goes out while a failover is under way: every process ends, every disk keeps its data, and no position
/// survives.
#[test]
fn a_restart_of_every_pod_during_a_failover_ends_with_a_master() {
    let mut stage = Stage::settled(2);
    stage.kill("cache-0");
    assert!(stage.until(SECOND, |stage| stage.record().plan.is_some()));
    stage.kill("cache-1");
    stage.run(2 * SECOND);
    stage.restart("cache-0", true);
    stage.restart("cache-1", true);
    assert!(
        stage.until(60 * SECOND, |stage| stage.masters().len() == 1 && stage.record().plan.is_none()),
        "{:?} {:?}",
        stage.record().plan,
        stage.reasons()
    );
    assert!(stage.until(60 * SECOND, |stage| stage.nodes.iter().all(|node| node.keys == 10)));
}

#[test]
fn certainty_that_comes_after_the_point_of_no_return_ends_the_drain() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    for name in ["cache-1", "cache-2"] {
        stage.cut(name, "cache-0");
    }
    assert!(stage.until(20 * SECOND, |stage| {
        stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Revoked)
    }));
    stage.kill("cache-0");
    stage.node("cache-0").cut_off = false;
    stage.restart("cache-0", false);
    assert!(stage.until(2 * SECOND, |stage| stage.masters().len() == 1), "{:?}", stage.reasons());
}

#[test]
fn a_plan_that_is_held_says_so() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    let chosen = |stage: &Stage| stage.record().plan.and_then(|plan| plan.to);
    while chosen(&stage).is_none() {
        stage.run(MS / 8);
    }
    let to = chosen(&stage).unwrap().pod;
    stage.node(&to).frozen = true;
    stage.run(5 * SECOND);
    assert_eq!(stage.condition("Held"), ("True".to_owned(), "WaitingForTarget".to_owned()));
}

/// The API server takes a write, answers nothing, and carries it out when others have followed.
#[test]
fn a_write_whose_answer_was_lost_cannot_land_on_a_later_decision() {
    let mut stage = Stage::settled(4);
    // While a replica cannot be read, the choice is a record of its own.
    stage.node("cache-3").cut_off = true;
    stage.run(9 * SECOND);
    stage.kill("cache-0");
    assert!(
        stage.until(SECOND, |stage| {
            stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Recorded)
        })
    );
    // The choice is written and hangs; the chosen one dies, and another one is chosen.
    stage.keep_write = true;
    assert!(stage.until(SECOND, |stage| stage.late_write.is_some()));
    stage.kill("cache-1");
    let chosen =
        |stage: &Stage| stage.record().plan.is_some_and(|plan| plan.to.is_some_and(|to| to.pod == "cache-2"));
    assert!(stage.until(SECOND, chosen), "{:?}", stage.record());
    stage.land_late_write();
    assert!(chosen(&stage), "{:?}", stage.record());
    stage.node("cache-3").cut_off = false;
    assert!(stage.until(5 * SECOND, |stage| finished(stage, "cache-0")));
    assert_eq!(stage.broken, [] as [&str; 0]);
}

/// A node reboots without a word: its pod comes back under the same uid, with another address.
#[test]
fn a_pod_that_comes_back_with_another_address_is_reached_there() {
    let mut stage = Stage::settled(3);
    for name in ["cache-1", "cache-2"] {
        let now = stage.now;
        let node = stage.node(name);
        node.link_up = false;
        node.link_lost = Some(now);
    }
    stage.restart("cache-0", false);
    stage.node("cache-0").ip = std::net::IpAddr::from([10, 0, 7, 1]);
    stage.list_pods();
    assert!(stage.until(15 * SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.reasons());
    assert!(stage.until(15 * SECOND, |stage| stage.nodes[0].link_up));
}

/// Somebody points the master elsewhere.
#[test]
fn a_master_that_was_made_a_replica_of_a_stranger_is_replaced() {
    let mut stage = Stage::settled(3);
    let node = stage.node("cache-0");
    node.role = Role::Replica;
    node.master = ("10.9.9.9".to_owned(), 6379);
    for name in ["cache-1", "cache-2"] {
        stage.node(name).link_up = false;
    }
    assert!(
        stage.until(20 * SECOND, |stage| stage.masters().len() == 1 && stage.record().plan.is_none()),
        "{:?} {:?}",
        stage.record().plan,
        stage.reasons()
    );
}

/// The drain counts from the moment at which the last replica was cut, however late that was.
#[test]
fn a_replica_that_is_cut_late_starts_the_drain_anew() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    stage.node("cache-1").cut_off = true;
    stage.cut("cache-0", "cache-2");
    // A silent pair: permission needs both replicas, so the plan opens only when both answer.
    stage.run(2 * SECOND);
    stage.node("cache-1").cut_off = false;
    stage.cuts.push(("cache-0".to_owned(), "cache-1".to_owned()));
    assert!(stage.until(60 * SECOND, |stage| {
        stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Revoked)
    }));
    // It restarts: until a moment ago it could acknowledge.
    stage.run(4 * SECOND);
    stage.node("cache-1").master = (stage.nodes[0].ip.to_string(), 6379);
    let cut = stage.now;
    assert!(stage.until(30 * SECOND, |stage| stage.masters().len() == 2));
    assert!(stage.now.saturating_sub(cut) >= 5 * SECOND, "{:?}", stage.now.saturating_sub(cut));
}

#[test]
fn a_stranger_that_acknowledges_makes_the_write_quorum_worth_nothing() {
    let mut stage = Stage::settled(3);
    stage.strangers = 1;
    stage.run(3 * SECOND);
    assert_eq!(stage.condition("ReplicationHealthy").1, "ForeignReplica");
    // The master is cut off from everybody but the stranger, who goes on acknowledging.
    stage.node("cache-0").cut_off = true;
    stage.cut("cache-0", "cache-1");
    stage.cut("cache-0", "cache-2");
    stage.run(60 * SECOND);
    assert_eq!(stage.masters(), ["cache-0"]);
    assert_eq!(stage.condition("Held").1, "NoQuorum");
}

#[test]
fn the_write_quorum_stays_while_the_masters_replicas_acknowledge() {
    let mut stage = Stage::settled(3);
    // The operator loses the replicas; the master does not.
    stage.node("cache-1").cut_off = true;
    stage.node("cache-2").cut_off = true;
    stage.run(30 * SECOND);
    assert_eq!(stage.record().write_quorum.effective, 1);
    assert_eq!(stage.nodes[0].quorum, 1);
}

#[test]
fn the_record_never_claims_a_write_quorum_that_the_master_does_not_have() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").quorum = 0;
    assert!(stage.until(SECOND, |stage| stage.record().write_quorum.effective == 0));
    assert!(stage.until(5 * SECOND, |stage| stage.record().write_quorum.effective == 1));
    assert_eq!(stage.nodes[0].quorum, 1);
}

/// All keys are gone by the users' own will, and a new leader did not see that.
#[test]
fn a_flushed_cluster_survives_its_master_under_a_new_leader() {
    let mut stage = Stage::settled(3);
    stage.nodes.iter_mut().for_each(|node| node.keys = 0);
    stage.run(SECOND);
    stage.kill("cache-0");
    stage.restart("cache-0", false);
    stage.start_operator();
    assert!(
        stage.until(30 * SECOND, |stage| finished(stage, "cache-0")),
        "{:?} {:?}",
        stage.condition("Held"),
        stage.reasons()
    );
}

/// One replica follows somebody else; that says nothing about the master.
#[test]
fn a_replica_of_a_stranger_does_not_keep_a_dead_master_alive() {
    let mut stage = Stage::settled(3);
    stage.start_operator();
    stage.run(400 * MS);
    stage.kill("cache-0");
    let now = stage.now;
    let node = stage.node("cache-1");
    node.master = ("10.9.9.9".to_owned(), 6379);
    node.link_up = true;
    node.fed = now + 1000 * SECOND;
    assert!(stage.until(30 * SECOND, |stage| !stage.masters().is_empty()), "{:?}", stage.condition("Held"));
}

/// Behind a proxy a dead server looks like one that hangs up.
#[test]
fn a_master_that_hangs_up_on_every_connection_is_replaced_after_the_drain() {
    let mut stage = Stage::settled(3);
    stage.start_operator();
    stage.run(400 * MS);
    stage.kill("cache-0");
    stage.node("cache-0").proxied = true;
    assert!(stage.until(30 * SECOND, |stage| !stage.masters().is_empty()), "{:?}", stage.condition("Held"));
}

#[test]
fn a_death_that_nobody_can_confirm_is_said() {
    let mut stage = Stage::settled(2);
    stage.kill("cache-1");
    stage.run(5 * SECOND);
    stage.restart("cache-1", true);
    stage.node("cache-1").denies = true;
    stage.kill("cache-0");
    stage.run(20 * SECOND);
    assert_eq!(stage.condition("Held").1, "DeathUnconfirmed");
}

/// A new leader finds a plan that cut nobody, and a replica that happens to be freshly restarted.
#[test]
fn a_plan_of_a_predecessor_is_not_carried_out_against_a_living_master() {
    let mut stage = Stage::settled(3);
    stage.node("cache-2").cut_off = true;
    stage.run(9 * SECOND);
    stage.kill("cache-0");
    assert!(
        stage.until(SECOND, |stage| {
            stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Recorded)
        })
    );
    // The plan was recorded a moment before its cause turned out to be wrong.
    stage.nodes[0].up = true;
    let now = stage.now;
    let master = stage.nodes[0].ip.to_string();
    let node = stage.node("cache-1");
    node.master = (master, 6379);
    (node.link_up, node.link_lost, node.fed) = (true, None, now);
    node.role = Role::Replica;
    stage.node("cache-2").cut_off = false;
    stage.restart("cache-2", false);
    stage.node("cache-0").cut_off = true;
    stage.start_operator();
    stage.commands.clear();
    stage.run(20 * SECOND);
    assert_eq!(stage.masters(), ["cache-0"], "{:?}", stage.reasons());
    assert_eq!(stage.condition("Held").1, "SupervisorPartitioned");
}

/// What looked like a certain death was none, and the operator that recorded the successor is gone.
#[test]
fn a_recorded_successor_is_left_alone_when_the_master_turns_out_to_be_well() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    assert!(
        stage
            .until(SECOND, |stage| { stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Chosen) })
    );
    assert_eq!(stage.masters(), [] as [&str; 0]);
    let epoch = stage.record().epoch;
    stage.nodes[0].up = true;
    stage.start_operator();
    assert!(stage.until(9 * SECOND, |stage| stage.record().plan.is_none()), "{:?}", stage.record());
    stage.run(SECOND);
    assert!(stage.record().epoch > epoch);
    assert_eq!(stage.masters(), ["cache-0"]);
    assert!(stage.reasons().contains(&"FalseAlarm"), "{:?}", stage.reasons());
    assert!(stage.until(9 * SECOND, |stage| stage.condition("FailoverReady").0 == "True"));
}

/// Its only pod is gone and the next one finds no place.
#[test]
fn time_passes_for_a_cluster_without_a_pod_that_can_be_asked() {
    let mut stage = Stage::settled(1);
    stage.kill("cache-0");
    stage.node("cache-0").listed = false;
    stage.list_pods();
    stage.run(30 * SECOND);
    assert_eq!(stage.slice.as_ref().unwrap().ip, None, "its address may be given to another pod");
    assert_eq!(stage.condition("Available").0, "False");
}

#[test]
fn another_successor_is_chosen_when_the_first_one_ends_in_a_presumptive_failover() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    for name in ["cache-1", "cache-2"] {
        stage.cut(name, "cache-0");
    }
    assert!(stage.until(20 * SECOND, |stage| {
        stage.record().plan.is_some_and(|plan| plan.step == PlanStep::Chosen)
    }));
    let to = stage.record().plan.unwrap().to.unwrap().pod;
    stage.kill(&to);
    assert!(stage.until(20 * SECOND, |stage| finished(stage, "cache-0")), "{:?}", stage.reasons());
    assert_eq!(stage.broken, [] as [&str; 0]);
}

/// Right after a replica's restart the master dies as well.
#[test]
fn a_restarted_replica_is_no_witness_and_does_not_delay() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-2");
    stage.restart("cache-2", false);
    stage.node("cache-2").cut_off = false;
    // It cannot come back into sync before the master is gone.
    stage.cuts.push(("cache-2".to_owned(), "cache-0".to_owned()));
    stage.run(SECOND);
    let start = stage.now;
    stage.kill("cache-0");
    assert!(stage.until(20 * SECOND, |stage| !stage.masters().is_empty()));
    assert!(stage.now.saturating_sub(start) < SECOND, "{:?}", stage.now.saturating_sub(start));
}

#[test]
fn a_slice_with_a_newer_epoch_is_overtaken() {
    let mut stage = Stage::settled(3);
    let slice = stage.slice.as_mut().unwrap();
    (slice.epoch, slice.uid, slice.ip) = (99, Some("uid-2".to_owned()), Some("10.0.0.3".to_owned()));
    let slice = stage.slice.clone();
    stage.feed(Event::RouteSeen(slice));
    stage.run(5 * SECOND);
    assert_eq!(stage.slice.as_ref().unwrap().uid.as_deref(), Some("uid-0"));
}

/// While a replica hangs, the supervisor is starved again and again. The replica goes on, and is asked again.
#[test]
fn a_starved_supervisor_does_not_forget_which_questions_wait() {
    let mut stage = Stage::settled(3);
    stage.node("cache-1").frozen = true;
    for _ in 0..4 {
        stage.run(SECOND);
        stage.now += 3 * SECOND;
        stage.feed(Event::Tick);
    }
    stage.run(SECOND);
    let looks = |stage: &Stage| stage.status.as_ref().unwrap().members[1].state.clone();
    assert_eq!(looks(&stage), "Hung");
    stage.node("cache-1").frozen = false;
    assert!(stage.until(20 * SECOND, |stage| looks(stage) == "InSync"));
}
