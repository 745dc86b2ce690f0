//! First master, first replicas, nothing to do.

use std::time::Duration;

use super::stage::{MS, Stage};
use crate::core::event::{Event, RoleCommand};
use crate::core::facts::ControllerReport;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn first_ordinal_becomes_the_master_when_every_pod_answers_and_is_empty() {
    let mut stage = Stage::new(3);
    assert!(
        stage.until(3 * SECOND, |stage| stage.record().plan.is_none() && stage.record().master.is_some())
    );
    assert_eq!(stage.master(), "cache-0");
    assert_eq!(stage.masters(), ["cache-0"]);
    assert!(stage.reasons().contains(&"BootstrapStarted"));
}

#[test]
fn nobody_is_promoted_while_a_pod_does_not_answer() {
    let mut stage = Stage::new(3);
    stage.node("cache-2").up = false;
    stage.run(20 * SECOND);
    assert_eq!(stage.masters(), [] as [&str; 0]);
    assert_eq!(stage.condition("Progressing").1, "WaitingForPods");
}

#[test]
fn kept_data_without_a_record_is_taken_up_once_every_pod_answers() {
    let mut stage = Stage::new(3);
    stage.node("cache-1").keys = 5;
    stage.node("cache-2").keys = 4;
    stage.node("cache-0").up = false;
    stage.run(5 * SECOND);
    assert_eq!(stage.condition("Held").0, "False", "an ordinary start takes its time");
    stage.run(10 * SECOND);
    assert_eq!(stage.masters(), [] as [&str; 0]);
    assert_eq!(stage.condition("Held"), ("True".to_owned(), "WaitingForMembers".to_owned()));
    stage.node("cache-0").up = true;
    assert!(stage.until(9 * SECOND, |stage| stage.nodes.iter().all(|node| node.keys == 5)));
    assert_eq!(stage.masters(), ["cache-1"]);
    let said = stage.told.iter().find(|notice| notice.reason == "RecoveryStarted").unwrap();
    assert!(said.message.contains("the data of cache-2 is replaced by it"), "{}", said.message);
}

/// Somebody wipes the status of a running cluster.
#[test]
fn a_running_cluster_without_a_record_is_taken_up_as_it_is() {
    let mut stage = Stage::settled(3);
    let before = stage.nodes.iter().map(|node| (node.promotions, node.full_syncs)).collect::<Vec<_>>();
    stage.status = None;
    stage.start_operator();
    stage.node("cache-2").cut_off = true;
    assert!(stage.until(9 * SECOND, |stage| stage.record().master.is_some()), "{:?}", stage.status);
    stage.node("cache-2").cut_off = false;
    stage.run(3 * SECOND);
    assert_eq!(stage.masters(), ["cache-0"]);
    let after = stage.nodes.iter().map(|node| (node.promotions, node.full_syncs)).collect::<Vec<_>>();
    assert_eq!(before, after);
    assert!(stage.until(9 * SECOND, |stage| stage.condition("FailoverReady").0 == "True"));
}

#[test]
fn a_status_wiped_under_a_leader_that_remembers_is_made_anew_from_what_is_there() {
    let mut stage = Stage::settled(3);
    let epoch = stage.record().epoch;
    let report = |recorded| Event::Reported(ControllerReport { recorded, ..ControllerReport::default() });
    stage.feed(report(true));
    stage.run(SECOND);
    stage.status = None;
    stage.feed(report(false));
    assert!(stage.until(SECOND, |stage| stage.status.is_some()));
    assert!(stage.until(9 * SECOND, |stage| stage.condition("FailoverReady").0 == "True"));
    assert_eq!((stage.masters(), stage.master()), (vec!["cache-0".to_owned()], "cache-0".to_owned()));
    assert!(stage.record().epoch > epoch);
}

#[test]
fn two_masters_without_a_record_are_nobodys_choice() {
    let mut stage = Stage::settled(3);
    stage.status = None;
    stage.start_operator();
    let node = stage.node("cache-1");
    (node.role, node.link_up) = (crate::core::facts::Role::Master, false);
    stage.run(5 * SECOND);
    assert_eq!(stage.condition("Held"), ("True".to_owned(), "UnknownData".to_owned()));
    assert_eq!(stage.masters(), ["cache-0", "cache-1"]);
}

/// All pods are deleted at once, and come back on their volumes.
#[test]
fn when_all_pods_come_back_on_their_volumes_the_last_masters_data_is_everybodys() {
    let mut stage = Stage::settled(3);
    for name in ["cache-0", "cache-1", "cache-2"] {
        stage.replace_pod(name);
        stage.node(name).keys = 9;
    }
    stage.node("cache-0").keys = 10;
    assert!(stage.until(30 * SECOND, |stage| stage.masters() == ["cache-0"]), "{:?}", stage.reasons());
    assert!(stage.until(30 * SECOND, |stage| stage.nodes.iter().all(|node| node.keys == 10)));
}

#[test]
fn a_settled_cluster_has_its_lineage_quorum_and_members_on_record() {
    let stage = Stage::settled(3);
    let record = stage.record();
    assert_eq!(record.write_quorum.effective, 1);
    assert_eq!(record.registered.len(), 3);
    assert!(record.ever_had_data);
    assert_eq!(record.lineage.last().unwrap().id, stage.nodes[0].replid);
    assert_eq!(stage.slice.as_ref().unwrap().uid.as_deref(), Some("uid-0"));
    assert_eq!(stage.condition("FailoverReady").0, "True");
    assert_eq!(stage.nodes[0].label.as_deref(), Some("master"));
    assert_eq!(stage.nodes[1].label.as_deref(), Some("replica"));
}

#[test]
fn nothing_is_written_or_commanded_while_nothing_changes() {
    let mut stage = Stage::settled(3);
    stage.reads = 0;
    stage.run(120 * SECOND);
    assert_eq!((stage.status_writes, stage.route_writes, stage.reads, stage.effects), (0, 0, 0, 0));
    assert!(stage.commands.is_empty());
}

#[test]
fn a_new_leader_of_a_well_cluster_changes_nothing() {
    let mut stage = Stage::settled(3);
    stage.start_operator();
    stage.run(30 * SECOND);
    assert_eq!((stage.status_writes, stage.route_writes, stage.effects), (0, 0, 0));
}

#[test]
fn a_single_pod_is_promoted_and_promoted_again_after_its_restart() {
    let mut stage = Stage::settled(1);
    stage.kill("cache-0");
    stage.run(SECOND);
    stage.restart("cache-0", true);
    assert!(stage.until(3 * SECOND, |stage| stage.masters() == ["cache-0"]));
    assert!(stage.until(3 * SECOND, |stage| stage.record().plan.is_none()));
    assert!(stage.reasons().contains(&"RecoveryStarted"));
}

#[test]
fn a_lost_replica_comes_back_and_follows_the_recorded_master() {
    let mut stage = Stage::settled(3);
    stage.kill("cache-2");
    stage.run(2 * SECOND);
    stage.restart("cache-2", false);
    assert!(stage.until(5 * SECOND, |stage| stage.nodes[2].link_up));
    assert_eq!(stage.master(), "cache-0");
    stage.replace_pod("cache-1");
    assert!(stage.until(5 * SECOND, |stage| stage.nodes[1].link_up));
}

#[test]
fn a_replica_pointed_elsewhere_is_pointed_back() {
    let mut stage = Stage::settled(3);
    stage.node("cache-1").master = ("10.9.9.9".to_owned(), 6379);
    stage.node("cache-1").link_up = false;
    assert!(stage.until(5 * SECOND, |stage| stage.nodes[1].link_up));
    let follows = |(name, command): &(String, RoleCommand)| {
        name == "cache-1" && matches!(command, RoleCommand::Follow { .. })
    };
    assert!(stage.commands.iter().any(follows));
}

#[test]
fn an_unrecorded_master_is_demoted_and_its_clients_are_cut() {
    let mut stage = Stage::settled(3);
    let node = stage.node("cache-1");
    node.role = crate::core::facts::Role::Master;
    node.link_up = false;
    assert!(stage.until(5 * SECOND, |stage| stage.masters() == ["cache-0"]));
    let cut = |(_, command): &(String, RoleCommand)| {
        matches!(command, RoleCommand::Follow { cut_clients: true, .. })
    };
    assert!(stage.commands.iter().any(cut));
}

#[test]
fn a_changed_replication_id_of_the_recorded_master_is_recorded_at_once() {
    let mut stage = Stage::settled(3);
    stage.node("cache-0").replid = "changed".to_owned();
    assert!(stage.until(500 * MS, |stage| stage.record().lineage.last().unwrap().id == "changed"));
}

#[test]
fn the_write_quorum_is_relaxed_when_the_last_replica_is_silent_and_raised_when_it_is_back() {
    let mut stage = Stage::settled(2);
    assert_eq!(stage.record().write_quorum.effective, 1);
    stage.node("cache-1").cut_off = true;
    stage.node("cache-1").frozen = true;
    stage.node("cache-1").link_up = false;
    assert!(stage.until(15 * SECOND, |stage| stage.record().write_quorum.effective == 0));
    assert!(stage.until(SECOND, |stage| stage.nodes[0].quorum == 0));
    stage.node("cache-1").cut_off = false;
    stage.node("cache-1").frozen = false;
    assert!(stage.until(5 * SECOND, |stage| stage.record().write_quorum.effective == 1));
    assert_eq!(stage.nodes[0].quorum, 1);
}
