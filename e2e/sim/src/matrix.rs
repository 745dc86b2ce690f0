//! Crash matrix: in each scenario the operator is crashed before and after each of its changes, and the answer to each of
//! its writes is lost, one at a time and all of them.

use crate::checkers::Violation;
use crate::points::Points;
use crate::run::{BEGIN, BOUND};
use crate::schedule::{Fault, Who};
use crate::setup::{Build, Setup};
use crate::story::Detail;
use crate::time::{MS, SECOND};
use crate::world::World;

/// A scenario: its name, what happens, and whether it is the very first start.
pub const SCENARIOS: &[(&str, &[Fault])] = &[
    ("bootstrap", &[]),
    ("kill", &[Fault::Kill { who: Who::Master, back: 2 * SECOND }]),
    ("delete", &[Fault::Delete { who: Who::Master }]),
    ("freeze", &[Fault::Freeze { who: Who::Master, time: 20 * SECOND }]),
    ("isolate", &[Fault::Isolate { place: crate::schedule::Place::Server(Who::Master), time: 20 * SECOND }]),
    ("scale out", &[Fault::Scale { to: 5 }]),
    ("scale in", &[Fault::Scale { to: 1 }]),
    ("cold start", &[Fault::Kill { who: Who::All, back: SECOND }]),
    ("switchover", &[Fault::Switchover { to: None }]),
];

/// One way through a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    None,
    Crash { at: u32, after: bool },
    LoseAnswer { at: u32 },
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Way {
    pub point: Point,
    pub points: Points,
    pub violation: Option<Violation>,
    pub story: Vec<String>,
}

/// Goes through a scenario once.
pub fn go(scenario: &[Fault], build: Build, point: Point, detail: Detail) -> Way {
    let setup = Setup { build, ..Setup::usual() };
    let mut world = World::new(7, setup, Vec::new(), detail);
    if !scenario.is_empty() {
        world.run_until(BEGIN);
    }
    world.points.counting = true;
    match point {
        Point::None => {}
        Point::Crash { at, after } => world.points.crash_at = Some((at, after)),
        Point::LoseAnswer { at } => world.points.lose_at = Some(at),
    }
    for fault in scenario {
        world.strike(*fault);
    }
    let limit = world.now + BOUND;
    let (mut rest, mut since) = (world.rest(), world.now);
    while world.checks.broken.is_empty() && world.now < limit {
        world.run_until(world.now + 100 * MS);
        rest = world.rest();
        if rest.is_err() || world.broken_things > 0 {
            since = world.now;
        }
        if world.now > since + 8 * SECOND {
            break;
        }
    }
    match rest {
        Ok(()) => world.check_data(),
        Err(missing) => world.broke("I11", |_| format!("not at rest after the scenario: {missing}")),
    }
    Way {
        point,
        points: world.points.clone(),
        violation: world.checks.broken.first().cloned(),
        story: world.story.lines().collect(),
    }
}

/// All points of a scenario: how many there were, and those at which something broke.
pub fn all(scenario: &[Fault], build: Build) -> (u32, Vec<Way>) {
    let plain = go(scenario, build, Point::None, Detail::Nothing);
    let (effects, writes) = (plain.points.effects, plain.points.writes);
    let crashes = (1..=effects).flat_map(|at| [false, true].map(|after| Point::Crash { at, after }));
    let losses = (1..=writes).map(|at| Point::LoseAnswer { at });
    let mut failed: Vec<Way> = Some(plain).filter(|way| way.violation.is_some()).into_iter().collect();
    let mut count = 1;
    for point in crashes.chain(losses) {
        count += 1;
        let way = go(scenario, build, point, Detail::Nothing);
        if way.violation.is_some() {
            failed.push(way);
        }
    }
    (count, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_end_well_without_a_crash_and_their_points_are_counted() {
        for (name, scenario) in SCENARIOS {
            let way = go(scenario, Build::Redis70, Point::None, Detail::Nothing);
            assert_eq!(way.violation, None, "{name}");
            assert!(way.points.effects > 0, "{name}");
        }
    }

    #[test]
    fn a_crash_at_a_point_happens_there() {
        let way = go(SCENARIOS[1].1, Build::Redis70, Point::Crash { at: 2, after: true }, Detail::Nothing);
        assert!(way.points.hit);
        assert_eq!(way.violation, None);
    }
}
