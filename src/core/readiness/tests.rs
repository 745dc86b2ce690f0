//! The answer before the fault is the one that would be given then.

use std::time::Duration;

use super::*;
use crate::core::facts::Profile;
use crate::core::scene::Scene;

const SECOND: Duration = Duration::from_secs(1);

fn no(scene: &Scene) -> (&'static str, String) {
    readiness(&scene.situation()).unwrap_err()
}

#[test]
fn a_settled_cluster_on_three_nodes_is_ready() {
    assert_eq!(readiness(&Scene::settled(3).situation()).unwrap().0, "CandidateInSync");
    assert_eq!(readiness(&Scene::settled(2).situation()).unwrap().0, "CandidateInSync");
    assert_eq!(no(&Scene::settled(1)).0, "SinglePod");
}

#[test]
fn a_replica_that_cannot_be_seen_is_told_with_the_arithmetic() {
    let mut scene = Scene::settled(3);
    scene.unroutable(2, SECOND);
    let (reason, message) = no(&scene);
    assert_eq!(reason, "NoQuorum");
    assert!(message.contains("2 replicas, write quorum 1, 1 proven silent: 1 + 1 > 2 is false"), "{message}");
}

#[test]
fn a_replica_on_the_masters_node_is_told_before_the_node_is_lost() {
    let mut scene = Scene::settled(3);
    scene.member(1).pod.node = Some("node-0".to_owned());
    let (reason, message) = no(&scene);
    assert_eq!(reason, "MasterAndReplicaOnOneNode");
    assert!(message.contains("node-0") && message.contains("1 + 1 > 2 is false"), "{message}");
    let mut five = Scene::settled(5);
    five.member(1).pod.node = Some("node-0".to_owned());
    assert_eq!(
        no(&five).0,
        "MasterAndReplicaOnOneNode",
        "the one that is lost may be the one that acknowledges"
    );
}

#[test]
fn a_write_quorum_that_is_not_in_force_yet_is_told() {
    let mut scene = Scene::settled(3);
    scene.record.write_quorum.effective = 0;
    assert_eq!(no(&scene).0, "WriteQuorumNotInForce");
    scene.desired.profile = Profile::Cache;
    scene.desired.write_quorum = 0;
    assert!(readiness(&scene.situation()).is_ok(), "a cache has none");
}

#[test]
fn durable_needs_every_holder_of_confirmed_writes_also_after_a_certain_death() {
    let mut scene = Scene::settled(3);
    scene.desired.profile = Profile::Durable;
    assert!(readiness(&scene.situation()).is_ok());
    scene.unroutable(2, SECOND);
    assert!(no(&scene).1.contains("profile Durable"));
}
