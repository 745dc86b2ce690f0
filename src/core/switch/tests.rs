//! Each step of a switch by what the servers say.

use std::time::Duration;

use super::*;
use crate::api::status::{PlanKind, PlanStep};
use crate::core::facts::PLACEHOLDER_HOST;
use crate::core::plan::Draft;
use crate::core::scene::{NOW, Scene, WALL};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A switch from `red-0` to `red-1` was recorded 5 ms ago.
fn switching() -> Scene {
    let mut scene = Scene::settled(3);
    let draft = Draft {
        to: scene.member(1).process(),
        ..Draft::new(PlanKind::Switchover, "Requested", scene.record.master.clone())
    };
    let author = Author { term: "term", next_epoch: 8 };
    scene.record = plan::open(&scene.record, &author, &draft, scene.desired.profile, WALL);
    scene.step_since = NOW.saturating_sub(5 * MS);
    scene.nothing_sent = true;
    scene
}

fn next(scene: &Scene) -> Advance {
    let plan = scene.record.plan.clone().unwrap();
    crate::core::advance::advance(
        &scene.situation(),
        &plan,
        &Author { term: "term", next_epoch: scene.record.epoch + 1 },
    )
}

fn commanded(scene: &Scene) -> (String, RoleCommand) {
    match next(scene).acts.as_slice() {
        [Act::Command { uid, command }] => (uid.clone(), command.clone()),
        other => panic!("expected one command, not {other:?}"),
    }
}

fn recorded(scene: &Scene) -> (crate::api::status::Supervision, Recorded) {
    match next(scene).acts.as_slice() {
        [Act::Record { next, what }] => ((**next).clone(), what.clone()),
        other => panic!("expected one record, not {other:?}"),
    }
}

fn look_at_successor() -> Advance {
    Advance { acts: vec![Act::Look { uid: "u1".to_owned() }], held: None }
}

fn paused(scene: &mut Scene, ago: Duration, position: i64) {
    scene.member(0).paused = Some(Paused { at: NOW.saturating_sub(ago), goal: position, ended: false });
}

/// The old master stepped down this long ago, at this position.
fn stepped_down(scene: &mut Scene, ago: Duration, end: i64) {
    scene.nothing_sent = false;
    let info = scene.info(0);
    info.role = Role::Replica;
    info.master_host = Some(PLACEHOLDER_HOST.to_owned());
    info.master_port = 0;
    info.replica_offset = Some(end);
    info.attached.clear();
    scene.member(0).fenced_since = Some(NOW.saturating_sub(ago));
}

/// Read as fenced: it was detached.
fn fence(scene: &mut Scene, ordinal: u32) {
    let info = scene.info(ordinal);
    info.master_host = Some(PLACEHOLDER_HOST.to_owned());
    info.master_port = 0;
    info.link_up = false;
}

#[test]
fn writes_are_held_back_until_the_successor_has_caught_up_then_the_master_steps_down() {
    let mut scene = switching();
    assert_eq!(commanded(&scene), ("u0".to_owned(), RoleCommand::Pause { millis: PAUSE_MS }));
    paused(&mut scene, 2 * MS, 1001);
    assert_eq!(next(&scene), look_at_successor(), "it lacks a byte");
    scene.info(1).replica_offset = Some(1001);
    assert_eq!(commanded(&scene), ("u0".to_owned(), RoleCommand::StepDown));
}

#[test]
fn a_successor_that_does_not_catch_up_ends_the_pause_and_then_the_switch() {
    let mut scene = switching();
    scene.step_since = NOW.saturating_sub(100 * MS);
    paused(&mut scene, 81 * MS, 1001);
    assert_eq!(commanded(&scene), ("u0".to_owned(), RoleCommand::Unpause));
    scene.member(0).paused.as_mut().unwrap().ended = true;
    let (next, what) = recorded(&scene);
    assert!(matches!(what, Recorded::SwitchGivenUp { why } if why.contains("did not catch up")));
    assert_eq!((next.plan, next.write_quorum.effective), (None, 1), "the write quorum is back");
}

#[test]
fn the_pause_of_an_earlier_switch_says_nothing() {
    let mut scene = switching();
    paused(&mut scene, SECOND, 900);
    assert_eq!(commanded(&scene), ("u0".to_owned(), RoleCommand::Pause { millis: PAUSE_MS }));
}

#[test]
fn a_master_that_is_cut_off_from_us_while_it_is_told_to_pause_stays_the_master() {
    let mut scene = switching();
    scene.step_since = NOW.saturating_sub(10 * SECOND);
    scene.hang(0, 9 * SECOND);
    scene.command_under_way(0);
    assert!(
        matches!(recorded(&scene).1, Recorded::SwitchGivenUp { .. }),
        "nobody was demoted, and its replicas hear it"
    );
}

#[test]
fn a_successor_that_hangs_on_its_promotion_is_said_and_ended_with_its_pod() {
    let mut scene = switching();
    stepped_down(&mut scene, 70 * SECOND, 1000);
    scene.step_since = NOW.saturating_sub(70 * SECOND);
    scene.command_under_way(1);
    assert_eq!(next(&scene), Advance::default(), "its reply may come");
    scene.hang(1, 65 * SECOND);
    let stuck = next(&scene);
    assert_eq!(stuck.held.unwrap().0, crate::core::held::Held::WaitingForTarget);
    assert_eq!(stuck.acts, [Act::DeletePod { uid: "u1".to_owned() }]);
}

#[test]
fn a_successor_that_is_no_replica_in_sync_any_more_ends_the_switch() {
    for spoil in [
        (|scene: &mut Scene| scene.lose_link(1, Duration::ZERO)) as fn(&mut Scene),
        |scene| scene.restart(1, 10),
        |scene| scene.unroutable(1, SECOND),
        |scene| scene.member(1).pod.terminating = true,
    ] {
        let mut scene = switching();
        spoil(&mut scene);
        assert!(matches!(recorded(&scene).1, Recorded::SwitchGivenUp { .. }));
    }
}

#[test]
fn the_successor_is_promoted_only_with_everything_that_the_old_master_had() {
    let mut scene = switching();
    stepped_down(&mut scene, MS, 1003);
    scene.info(1).replica_offset = Some(1002);
    assert_eq!(next(&scene), look_at_successor(), "the last bytes are on their way");
    scene.info(1).replica_offset = Some(1003);
    assert_eq!(commanded(&scene), ("u1".to_owned(), RoleCommand::Promote { write_quorum: 0 }));
}

#[test]
fn in_the_profile_durable_the_successor_begins_with_the_write_quorum() {
    let mut scene = Scene::settled(3);
    scene.desired.profile = crate::core::facts::Profile::Durable;
    let draft = Draft {
        to: scene.member(1).process(),
        ..Draft::new(PlanKind::Switchover, "Requested", scene.record.master.clone())
    };
    let author = Author { term: "term", next_epoch: 8 };
    scene.record = plan::open(&scene.record, &author, &draft, scene.desired.profile, WALL);
    stepped_down(&mut scene, MS, 1000);
    assert_eq!(commanded(&scene), ("u1".to_owned(), RoleCommand::Promote { write_quorum: 1 }));
}

#[test]
fn where_the_last_bytes_do_not_arrive_the_successor_is_fenced_and_the_old_master_comes_back() {
    let mut scene = switching();
    stepped_down(&mut scene, 101 * MS, 1003);
    assert_eq!(commanded(&scene), ("u1".to_owned(), RoleCommand::Detach), "never two that may be promoted");
    fence(&mut scene, 1);
    let (undo, what) = recorded(&scene);
    assert_eq!(what, Recorded::Undone);
    let plan = undo.plan.clone().unwrap();
    assert_eq!((undo.epoch, plan.step, plan.to.clone(), plan.w_before), (9, PlanStep::Chosen, plan.from, 0));
    scene.record = undo;
    assert_eq!(commanded(&scene), ("u0".to_owned(), RoleCommand::Promote { write_quorum: 0 }));
}

#[test]
fn a_replica_that_was_cut_at_the_demotion_is_not_waited_for() {
    // Redis 6.2 drops its replicas then.
    let mut scene = switching();
    stepped_down(&mut scene, MS, 1003);
    scene.lose_link(1, Duration::ZERO);
    assert_eq!(commanded(&scene), ("u1".to_owned(), RoleCommand::Detach));
}

#[test]
fn while_the_successor_cannot_be_read_nobody_is_promoted() {
    let mut scene = switching();
    stepped_down(&mut scene, SECOND, 1003);
    scene.unroutable(1, SECOND);
    let waits = next(&scene);
    assert!(waits.acts.is_empty());
    assert_eq!(waits.held.unwrap().0, crate::core::held::Held::WaitingForTarget);
    scene.refuse(1, SECOND);
    assert_eq!(recorded(&scene).1, Recorded::Undone, "it has ended");
}

#[test]
fn a_successor_found_as_the_master_is_put_on_record_by_whoever_finds_it() {
    let mut scene = switching();
    stepped_down(&mut scene, MS, 1000);
    let info = scene.info(1);
    info.role = Role::Master;
    info.replid = "new".to_owned();
    info.replid2 = "line".to_owned();
    info.second_offset = 1001;
    let (next, what) = recorded(&scene);
    assert_eq!((what, next.master.unwrap().pod.as_str()), (Recorded::Promoted, "red-1"));
}

#[test]
fn an_old_master_that_ends_after_it_stepped_down_makes_it_a_failover_with_the_same_successor() {
    let mut scene = switching();
    scene.nothing_sent = false;
    scene.refuse(0, SECOND);
    scene.lose_link(1, Duration::ZERO);
    scene.lose_link(2, Duration::ZERO);
    let (next, what) = recorded(&scene);
    let plan = next.plan.unwrap();
    assert_eq!(what, Recorded::SwitchBroken);
    assert_eq!((next.epoch, plan.step, plan.to.unwrap().pod.as_str()), (9, PlanStep::Revoked, "red-1"));
}

#[test]
fn an_old_master_that_falls_silent_before_anything_was_sent_is_left_to_the_table() {
    let mut scene = switching();
    scene.hang(0, SECOND);
    assert!(matches!(recorded(&scene).1, Recorded::SwitchGivenUp { .. }));
}

#[test]
fn an_old_master_that_falls_silent_when_it_may_have_stepped_down_is_lost_after_its_time() {
    // Its replicas still hear it: a demoted master goes on feeding them, so that is no sign of a master.
    let mut scene = switching();
    scene.nothing_sent = false;
    scene.hang(0, 2 * SECOND);
    scene.step_since = NOW.saturating_sub(2 * SECOND);
    assert_eq!(next(&scene), Advance::default());
    scene.hang(0, 7 * SECOND);
    scene.member(0).bad_since = Some(NOW.saturating_sub(7 * SECOND));
    scene.step_since = NOW.saturating_sub(7 * SECOND);
    assert_eq!(recorded(&scene).1, Recorded::SwitchBroken);
}

#[test]
fn a_broken_switch_chooses_nobody_else_before_the_recorded_successor_was_read_fenced() {
    let mut scene = switching();
    let author = Author { term: "term", next_epoch: 9 };
    scene.record = plan::revoke_switch(&scene.record, &author);
    scene.definitive = true;
    scene.refuse(0, SECOND);
    fence(&mut scene, 2);
    scene.info(2).replica_offset = Some(1100);
    scene.unroutable(1, SECOND);
    scene.step_since = NOW.saturating_sub(SECOND);
    assert_eq!(next(&scene).held.unwrap().0, crate::core::held::Held::WaitingForTarget);
    let mut readable = switching();
    readable.record = scene.record.clone();
    readable.definitive = true;
    readable.refuse(0, SECOND);
    fence(&mut readable, 2);
    readable.info(2).replica_offset = Some(1100);
    fence(&mut readable, 1);
    let (next, what) = recorded(&readable);
    assert_eq!(what, Recorded::Chosen { offset: 1100 });
    assert_eq!(next.plan.unwrap().to.unwrap().pod, "red-2");
    assert!(next.epoch > readable.record.epoch, "another successor is another decision");
}

#[test]
fn a_replica_in_sync_that_has_not_told_of_the_first_key_yet_may_take_over() {
    let mut scene = Scene::settled(3);
    scene.info(1).keys = 0;
    assert!(requested(&scene.situation(), "red-1").unwrap().is_some());
}

#[test]
fn only_the_last_minutes_switch_forbids_any() {
    let mut scene = Scene::settled(3);
    for (ago, allowed) in [(None, true), (Some(59), false), (Some(60), true), (Some(-5), true)] {
        scene.last_switch_ago = ago;
        assert_eq!(requested(&scene.situation(), ANY).is_ok(), allowed, "{ago:?}");
    }
    assert!(requested(&scene.situation(), "red-0").unwrap().is_none());
    assert!(requested(&scene.situation(), "red-7").unwrap_err().contains("no pod \"red-7\""));
}
