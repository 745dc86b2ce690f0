//! R + W > N, in numbers.

use super::*;
use crate::core::scene::Scene;

fn permitted(scene: &Scene, quorum: u32, silent: &[&str], death: &Death) -> bool {
    let situation = scene.situation();
    let from = situation.record.master.clone().unwrap();
    let is_silent = |member: &Member| silent.contains(&member.pod.name.as_str());
    permit(&situation, &from, death, quorum, is_silent) == Permission::Granted
}

#[test]
fn a_presumed_death_needs_enough_silent_replicas() {
    let presumed = Death::Presumptive("Test");
    for (replicas, quorum, silent, granted) in [
        (3, 1, &["red-1", "red-2"][..], true),
        (3, 1, &["red-1"], false),
        (3, 1, &[], false),
        (2, 1, &["red-1"], true),
        (2, 1, &[], false),
        (5, 1, &["red-1", "red-2", "red-3", "red-4"], true),
        (5, 1, &["red-1", "red-2", "red-3"], false),
        (5, 2, &["red-1", "red-2", "red-3"], true),
        (5, 2, &["red-1", "red-2"], false),
    ] {
        let scene = Scene::settled(replicas);
        assert_eq!(
            permitted(&scene, quorum, silent, &presumed),
            granted,
            "{replicas} pods, W {quorum}, {silent:?}"
        );
    }
}

#[test]
fn a_certain_death_needs_no_silence() {
    assert!(permitted(&Scene::settled(3), 1, &[], &Death::Definitive("Test")));
}

#[test]
fn with_write_quorum_0_the_pod_must_be_gone_and_most_replicas_silent() {
    let presumed = Death::Presumptive("Test");
    let mut scene = Scene::settled(3);
    assert!(!permitted(&scene, 0, &["red-1", "red-2"], &presumed));
    scene.member(0).listed = false;
    assert!(permitted(&scene, 0, &["red-1", "red-2"], &presumed));
    assert!(!permitted(&scene, 0, &["red-1"], &presumed));
}

#[test]
fn pods_that_were_members_count_even_when_they_are_gone() {
    let mut scene = Scene::settled(3);
    scene.record.registered.push("an older pod".to_owned());
    let master = scene.record.master.clone().unwrap();
    assert_eq!(replica_count(&scene.situation(), &master), 3);
    scene.desired.replicas = 9;
    assert_eq!(replica_count(&scene.situation(), &master), 8);
}

/// The master's pod was deleted by force while its process lives on: the new pod of its name was no replica of it.
#[test]
fn the_pod_in_the_masters_place_proves_nothing() {
    let presumed = Death::Presumptive("Test");
    let mut scene = Scene::settled(3);
    let mut successor = scene.member(0).clone();
    successor.pod.uid = "u0-anew".to_owned();
    scene.members.insert(successor.pod.uid.clone(), successor);
    scene.member(0).listed = false;
    for quorum in [0, 1] {
        assert!(!permitted(&scene, quorum, &["red-0", "red-1"], &presumed));
        assert!(permitted(&scene, quorum, &["red-1", "red-2"], &presumed));
    }
}

#[test]
fn a_foreign_replica_counts_as_write_quorum_0() {
    let presumed = Death::Presumptive("Test");
    let mut scene = Scene::settled(3);
    scene.info(0).attached[0].ip = "10.9.9.9".to_owned();
    assert!(!permitted(&scene, 1, &["red-1", "red-2"], &presumed));
}

#[test]
fn a_refusal_shows_its_arithmetic() {
    let scene = Scene::settled(3);
    let situation = scene.situation();
    let from = situation.record.master.clone().unwrap();
    let Permission::Refused(why) = permit(&situation, &from, &Death::Presumptive("Test"), 1, |_| false)
    else {
        panic!("nobody is silent");
    };
    assert!(why.contains("0 + 1 > 2 is false"), "{why}");
}
