//! A planned switch on the stage: what clients keep, and what a fault at any step leaves.

use super::stage::{MS, Stage};
use crate::core::event::RoleCommand;
use crate::core::facts::{Mono, NodeState};

const SECOND: Mono = Mono::from_secs(1);

/// Runs in small steps while clients write wherever they may.
fn run_writing(stage: &mut Stage, time: Mono, until: impl Fn(&Stage) -> bool) -> bool {
    let end = stage.now + time;
    while stage.now < end && !stage.crashed {
        stage.write_everywhere();
        if until(stage) {
            return true;
        }
        stage.run(MS);
    }
    until(stage)
}

/// Every write that a client made is on the master.
fn assert_nothing_lost(stage: &Stage, context: &str) {
    let master = stage.master();
    let node = stage.nodes.iter().find(|node| node.name == master).unwrap();
    let lost: Vec<u64> = (1..=stage.written()).filter(|write| !node.writes.contains(write)).collect();
    assert_eq!(lost, [] as [u64; 0], "{context}: lost on {master}; {:?}", stage.reasons());
    assert_eq!(stage.broken, [] as [&str; 0], "{context}");
}

fn is_over(stage: &Stage) -> bool {
    let record = stage.record();
    let master = stage.master();
    let serves = stage.masters() == [master];
    let whole = stage.nodes.iter().filter(|node| node.link_up).count() + 1 == stage.nodes.len();
    record.plan.is_none() && serves && whole && record.write_quorum.effective == 1
}

#[test]
fn a_requested_switch_moves_the_master_and_takes_the_request_away() {
    let mut stage = Stage::settled(3);
    stage.ask_for_switch(Some("cache-2"));
    assert!(run_writing(&mut stage, SECOND, |stage| stage.master() == "cache-2" && is_over(stage)));
    assert_eq!(stage.desired.switchover, None);
    assert_eq!(stage.route_writes, 1);
    assert!(
        stage.reasons().contains(&"SwitchoverStarted") && stage.reasons().contains(&"SwitchoverCompleted")
    );
    let names: Vec<&str> = stage.commands.iter().map(|(pod, _)| pod.as_str()).collect();
    assert!(names.len() < 9, "{:?}", stage.commands);
    assert_nothing_lost(&stage, "undisturbed");
    let last = stage.status.clone().unwrap().last_failover.unwrap();
    assert_eq!((last.from.as_deref(), last.to.as_str()), (Some("cache-0"), "cache-2"));
}

#[test]
fn what_is_not_allowed_is_refused_once_and_taken_away() {
    for (wanted, reason) in [
        ("cache-9", "SwitchoverRefused"),
        ("nonsense", "SwitchoverRefused"),
        ("cache-0", "SwitchoverNotNeeded"),
    ] {
        let mut stage = Stage::settled(3);
        stage.ask_for_switch(Some(wanted));
        stage.run(SECOND);
        assert_eq!(stage.reasons(), [reason], "{wanted}");
        assert_eq!((stage.desired.switchover.as_deref(), stage.master().as_str()), (None, "cache-0"));
    }
}

#[test]
fn any_is_refused_within_a_minute_of_the_last_switch() {
    let mut stage = Stage::settled(3);
    stage.ask_for_switch(Some("any"));
    assert!(stage.until(2 * SECOND, |stage| stage.master() != "cache-0" && is_over(stage)));
    let master = stage.master();
    stage.run(5 * SECOND);
    stage.ask_for_switch(Some("any"));
    stage.run(5 * SECOND);
    assert_eq!(stage.master(), master);
    assert!(stage.reasons().contains(&"SwitchoverRefused"));
    stage.run(60 * SECOND);
    stage.ask_for_switch(Some("any"));
    assert!(stage.until(2 * SECOND, |stage| stage.master() != master));
}

#[test]
fn a_pod_or_node_that_is_to_go_hands_the_master_over() {
    let spoils: [fn(&mut Stage); 2] = [
        |stage| stage.node("cache-0").terminating = true,
        |stage| stage.node("cache-0").place = NodeState::Leaving,
    ];
    for spoil in spoils {
        let mut stage = Stage::settled(3);
        spoil(&mut stage);
        stage.list_pods();
        assert!(run_writing(&mut stage, SECOND, |stage| stage.master() != "cache-0"));
        assert_nothing_lost(&stage, "a pod that goes");
    }
}

#[test]
fn a_successor_that_hears_nothing_from_the_master_ends_the_switch_before_anybody_steps_down() {
    let mut stage = Stage::settled(3);
    stage.ask_for_switch(Some("cache-1"));
    assert!(stage.until(SECOND, |stage| stage.record().plan.is_some()));
    stage.cut("cache-0", "cache-1");
    stage.run(SECOND);
    assert_eq!((stage.record().plan, stage.master().as_str()), (None, "cache-0"));
    assert!(stage.reasons().contains(&"SwitchoverGivenUp"));
    assert!(!stage.commands.iter().any(|(_, command)| *command == RoleCommand::StepDown));
}

#[test]
fn a_successor_that_dies_after_the_master_stepped_down_gives_the_old_one_its_place_back() {
    let mut stage = Stage::settled(3);
    stage.ask_for_switch(Some("cache-1"));
    let stepped_down =
        |stage: &Stage| stage.commands.iter().any(|(_, command)| *command == RoleCommand::StepDown);
    assert!(run_writing(&mut stage, SECOND, stepped_down));
    stage.kill("cache-1");
    assert!(
        run_writing(&mut stage, 2 * SECOND, |stage| stage.masters() == ["cache-0"]),
        "{:?}",
        stage.reasons()
    );
    stage.restart("cache-1", false);
    assert!(run_writing(&mut stage, 20 * SECOND, is_over));
    assert_eq!(stage.master(), "cache-0");
    assert_nothing_lost(&stage, "undone");
}

#[test]
fn an_old_master_that_dies_after_it_stepped_down_is_replaced_by_the_recorded_successor() {
    let mut stage = Stage::settled(3);
    stage.ask_for_switch(Some("cache-2"));
    let stepped_down =
        |stage: &Stage| stage.commands.iter().any(|(_, command)| *command == RoleCommand::StepDown);
    assert!(run_writing(&mut stage, SECOND, stepped_down));
    stage.kill("cache-0");
    assert!(
        run_writing(&mut stage, 9 * SECOND, |stage| stage.master() == "cache-2"),
        "{:?}",
        stage.reasons()
    );
    assert_eq!(stage.broken, [] as [&str; 0]);
}

/// The operator ends at its n-th changing effect, or is paused with it in hand while another one leads; the effect lands
/// later.
fn disturb(point: u32, how: &str, idle: Mono) -> bool {
    let context = format!("effect {point}, {how}, {idle:?}");
    let mut stage = Stage::settled(3);
    match how {
        "killed before" => stage.crash_at = Some((point, false)),
        "killed after" => stage.crash_at = Some((point, true)),
        _ => stage.pause_at = Some(point),
    }
    stage.ask_for_switch(Some("cache-1"));
    run_writing(&mut stage, 2 * SECOND, |stage| {
        stage.crashed || (stage.master() == "cache-1" && is_over(stage))
    });
    if !stage.crashed {
        return false;
    }
    // Time passes without an operator; clients go on.
    stage.crashed = false;
    (stage.crash_at, stage.pause_at) = (None, None);
    let late = stage.in_hand.take();
    let end = stage.now + idle;
    while stage.now < end {
        stage.write_everywhere();
        stage.pass(MS);
    }
    let mut under_way = stage.depose_operator();
    under_way.extend(late);
    run_writing(&mut stage, 40 * MS, |_| false);
    for effect in under_way {
        if how == "paused" {
            stage.land(effect);
            run_writing(&mut stage, 5 * MS, |_| false);
        }
    }
    assert!(
        run_writing(&mut stage, 40 * SECOND, is_over),
        "{context}: {:?} {:?}",
        stage.record(),
        stage.reasons()
    );
    assert_nothing_lost(&stage, &context);
    true
}

#[test]
fn an_operator_killed_or_paused_at_any_effect_of_a_switch_loses_no_write() {
    for how in ["killed before", "killed after", "paused"] {
        for idle in [Mono::ZERO, 100 * MS, 500 * MS] {
            let mut point = 1;
            while disturb(point, how, idle) {
                point += 1;
            }
            assert!(point > 9, "a switch has more effects than {point}");
        }
    }
}
