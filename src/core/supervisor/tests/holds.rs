//! Situations in which nothing may be done, and the reason is said.

use std::time::Duration;

use super::stage::{MS, Stage};
use crate::core::event::Event;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_master_cut_off_from_the_operator_only_stays_the_master() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    stage.run(60 * SECOND);
    assert_eq!(stage.masters(), ["cache-0"]);
    assert!(stage.record().plan.is_none());
    assert_eq!(stage.condition("Held"), ("True".to_owned(), "SupervisorPartitioned".to_owned()));
    stage.node("cache-0").cut_off = false;
    stage.run(5 * SECOND);
    assert_eq!(stage.condition("Held").0, "False");
    assert_eq!(stage.commands, []);
}

#[test]
fn when_nobody_can_be_reached_nothing_is_done() {
    let mut stage = Stage::settled(3);
    stage.nodes.iter_mut().for_each(|node| node.cut_off = true);
    stage.run(60 * SECOND);
    assert_eq!(stage.condition("Held"), ("True".to_owned(), "BlindSupervisor".to_owned()));
    assert_eq!(stage.commands, []);
    stage.nodes.iter_mut().for_each(|node| node.cut_off = false);
    stage.run(10 * SECOND);
    assert_eq!(stage.condition("Available").0, "True");
    assert_eq!(stage.commands, []);
}

#[test]
fn without_an_api_server_a_dead_master_is_not_replaced_until_it_is_back() {
    let mut stage = Stage::settled(3);
    stage.api_up = false;
    stage.kill("cache-0");
    stage.run(30 * SECOND);
    assert_eq!(stage.masters(), [] as [&str; 0]);
    assert_eq!(stage.commands, []);
    assert!(stage.reasons().contains(&"ControlPlaneLost"));
    stage.api_up = true;
    let term = stage.lease_holder.clone();
    stage.feed(Event::Lapsed);
    stage.feed(Event::Leading { term: format!("{term}b") });
    assert!(stage.until(3 * SECOND, |stage| stage.masters().len() == 1));
}

#[test]
fn a_lapsed_lease_is_said_and_the_evidence_stays_warm() {
    let mut stage = Stage::settled(3);
    stage.feed(Event::Lapsed);
    stage.run(SECOND);
    assert!(stage.reasons().contains(&"ControlPlaneLost"));
    stage.kill("cache-0");
    stage.run(10 * SECOND);
    assert_eq!(stage.commands, []);
    let start = stage.now;
    stage.feed(Event::Leading { term: "again".to_owned() });
    assert!(stage.until(3 * SECOND, |stage| stage.masters().len() == 1));
    assert!(stage.now.saturating_sub(start) < SECOND, "certain from what was seen meanwhile");
}

#[test]
fn a_master_and_a_replica_in_the_other_partition_are_not_replaced() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").cut_off = true;
    stage.node("cache-1").cut_off = true;
    stage.cut("cache-0", "cache-2");
    stage.run(60 * SECOND);
    assert_eq!(stage.masters(), ["cache-0"]);
    assert_eq!(stage.condition("Held").1, "NoQuorum");
}

#[test]
fn a_stalled_supervisor_forgets_what_it_saw() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-0");
    stage.now += 5 * SECOND;
    stage.feed(Event::Tick);
    stage.run(SECOND);
    assert_eq!(stage.masters(), [] as [&str; 0], "no certain death without fresh witnesses");
    assert!(stage.until(20 * SECOND, |stage| stage.masters().len() == 1));
    assert!(stage.reasons().contains(&"OldMasterRevoked"));
}

#[test]
fn a_hung_master_is_replaced_after_its_time_and_its_lease_and_its_pod_is_ended_later() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").frozen = true;
    stage.run(5 * SECOND);
    assert_eq!(stage.record().plan, None, "a long command looks like that");
    assert!(stage.until(20 * SECOND, |stage| stage.master() != "cache-0"), "{:?}", stage.reasons());
    stage.run(30 * SECOND);
    assert_eq!(stage.deleted, [] as [&str; 0]);
    stage.run(60 * SECOND);
    assert_eq!(stage.deleted, ["cache-0"], "it would wake as a master");
    assert_eq!(stage.broken, [] as [&str; 0]);
}

#[test]
fn an_operator_that_does_not_lead_sends_nothing() {
    let mut stage = Stage::settled(3);
    stage.feed(Event::Standby);
    stage.kill("cache-0");
    stage.run(60 * SECOND);
    assert_eq!(stage.effects, 0);
    assert!(stage.masters().is_empty());
}

/// One late answer is nothing that people need to hear of.
#[test]
fn a_replica_that_stalls_for_a_moment_causes_no_write() {
    let mut stage = Stage::settled(3);
    let (before, labels) = (stage.status_writes, stage.label_writes);
    stage.node("cache-1").frozen = true;
    stage.run(400 * MS);
    stage.node("cache-1").frozen = false;
    stage.run(5 * SECOND);
    assert_eq!((stage.status_writes, stage.label_writes), (before, labels));
    stage.node("cache-1").frozen = true;
    stage.run(3 * SECOND);
    assert!(stage.status_writes > before && stage.label_writes > labels);
    assert_eq!(stage.node("cache-1").label, None);
}
