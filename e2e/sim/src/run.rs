//! One world from its beginning to its end: a cluster is made, faults strike, then they stop and it has to come to rest.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checkers::Violation;
use crate::counts::Counts;
use crate::schedule::{self, Strike};
use crate::setup::Setup;
use crate::story::Detail;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// Until then the cluster is made.
pub const BEGIN: Time = 30 * SECOND;
/// When faults have stopped and all is mended, the cluster is at rest within this.
pub const BOUND: Time = 150 * SECOND;
/// At rest for this long before quiet time is jumped over.
const REST: Time = 6 * SECOND;
/// Ordinary time before a fault: what the supervisor saw before a jump is void, and it has to see all of it anew.
const BEFORE_FAULT: Time = 7 * SECOND;
/// Holds that end only when a person acts.
const NEEDS_PERSON: [&str; 7] =
    ["UnknownData", "ManualMode", "Flapping", "Diverged", "Ambiguous", "EmptyMaster", "ExternalFailover"];

/// How worlds are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Faults in an hour.
    pub faults: u64,
    /// Length of one world, without its beginning and its end.
    pub length: Time,
    /// Quiet time is jumped over.
    pub jump: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { faults: 60, length: 20 * 60 * SECOND, jump: true }
    }
}

/// What came of one world.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub counts: Counts,
    pub violation: Option<Violation>,
    pub hash: u64,
    pub story: Vec<String>,
    pub strikes: Vec<Strike>,
}

/// Runs a seed's world.
pub fn run(seed: u64, options: &Options, detail: Detail) -> Outcome {
    let setup = Setup::draw(seed);
    let strikes = schedule::draw(seed, &setup, options.faults, BEGIN, options.length);
    run_with(seed, setup, strikes, options, detail)
}

/// Runs a world with these faults.
pub fn run_with(seed: u64, setup: Setup, strikes: Vec<Strike>, options: &Options, detail: Detail) -> Outcome {
    let mut world = World::new(seed, setup, strikes.clone(), detail);
    let setup = world.setup.clone();
    world.say(|_| format!("seed {seed}: {setup:?}"));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        live(&mut world, seed, options);
        if world.checks.broken.is_empty() {
            end(&mut world);
        }
    }));
    if ended.is_err() {
        world.broke("Panic", |world| {
            format!("the supervisor or the simulator panicked in rule {}", world.operators[0].core.rule())
        });
    }
    world.counts.seeds = 1;
    world.counts.time = world.now + world.skipped;
    Outcome {
        seed,
        hash: world.hash(),
        violation: world.checks.broken.first().cloned(),
        story: world.story.lines().collect(),
        counts: world.counts,
        strikes,
    }
}

/// Faults strike at their time. Quiet time between them is jumped over.
fn live(world: &mut World, seed: u64, options: &Options) {
    for number in 0..world.strikes.len() {
        let at = world.strikes[number].at;
        while world.checks.broken.is_empty() {
            let left = at.saturating_sub(world.now + world.skipped);
            if left == 0 {
                break;
            }
            if options.jump && left > REST + BEFORE_FAULT && is_quiet(world, REST) {
                world.skipped += left - BEFORE_FAULT;
                if seed % 2 == 0 {
                    world.jumped += left - BEFORE_FAULT;
                }
                world.say(|_| "quiet time is jumped over".to_owned());
                continue;
            }
            world.run_until(world.now + left.min(SECOND));
        }
        if !world.checks.broken.is_empty() {
            return;
        }
        world.happen(Ev::Strike(number));
        world.check_always();
    }
}

/// Nothing is wrong, nothing is under way, and that for a while.
fn is_quiet(world: &mut World, rest: Time) -> bool {
    let well = world.broken_things == 0
        && world.now > world.mended_at + rest
        && world.checks.held.is_none()
        && world.operators.iter().all(|operator| operator.pause_next.is_none() && operator.paused.is_none())
        && world.api.size == world.api.wanted
        && world.rest().is_ok();
    if !well {
        world.rest_since = None;
        return false;
    }
    let since = *world.rest_since.get_or_insert(world.now);
    world.now >= since + rest
}

/// Faults have stopped.
fn end(world: &mut World) {
    world.say(|_| "FAULTS STOP".to_owned());
    // What is not mended yet will be, in its own time.
    let mut limit = world.now + 10 * 60 * SECOND;
    while world.broken_things > 0 && world.now < limit && world.checks.broken.is_empty() {
        world.run_until(world.now + SECOND);
    }
    for operator in &mut world.operators {
        operator.pause_next = None;
    }
    (world.api.lose_requests, world.api.lose_replies, world.api.late, world.api.conflicts) = (0, 0, 0, 0);
    limit = world.now + BOUND;
    let mut rest = world.rest();
    while world.checks.broken.is_empty() && world.now < limit {
        rest = world.rest();
        if rest.is_ok() && is_quiet(world, 2 * SECOND) {
            break;
        }
        world.run_until(world.now + 200 * MS);
    }
    if !world.checks.broken.is_empty() {
        return;
    }
    match (rest, world.checks.held) {
        (Ok(()), _) => world.check_data(),
        (Err(_), Some(held)) if NEEDS_PERSON.contains(&held) => {
            *world.counts.stuck.entry(held.to_owned()).or_default() += 1;
        }
        // Members that Kubernetes has deleted can prove nothing any more, and count until the master is well.
        (Err(_), Some("NoQuorum")) if misses_members(world) => {
            *world.counts.stuck.entry("NoQuorum, registered pods are gone".to_owned()).or_default() += 1;
        }
        (Err(missing), held) => {
            world.broke("I11", |_| {
                format!("not at rest {} s after the last fault: {missing}; held: {held:?}", BOUND / SECOND)
            });
        }
    }
}

fn misses_members(world: &World) -> bool {
    let listed = |uid: &String| world.pods.iter().any(|pod| pod.listed && pod.uid == *uid);
    world.api.record().is_some_and(|record| !record.registered.iter().all(listed))
}
