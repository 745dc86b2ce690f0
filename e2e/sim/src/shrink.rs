//! Makes a failing schedule smaller: faults are left out as long as the same rule breaks.

use crate::run::{Options, Outcome, run_with};
use crate::schedule::Strike;
use crate::setup::Setup;
use crate::story::Detail;

/// Worlds tried at most.
const TRIES: u32 = 400;

/// The smallest schedule found, and what comes of it.
pub fn shrink(outcome: &Outcome, options: &Options, detail: Detail) -> Outcome {
    let Some(violation) = &outcome.violation else { return outcome.clone() };
    let (seed, setup, rule) = (outcome.seed, Setup::draw(outcome.seed), violation.rule);
    // And the one after it: without it the faults would have stopped.
    let before = outcome.strikes.iter().filter(|strike| strike.at <= violation.at).count();
    let mut kept: Vec<Strike> = outcome.strikes.iter().take(before + 1).copied().collect();
    let mut tries = 0;
    let mut fails = |strikes: &[Strike]| {
        tries += 1;
        let again = run_with(seed, setup.clone(), strikes.to_vec(), options, Detail::Nothing);
        (tries <= TRIES, again.violation.is_some_and(|again| again.rule == rule))
    };
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + size).min(kept.len()));
            let (goes_on, failed) = fails(&fewer);
            if failed {
                kept = fewer;
            } else {
                from += size;
            }
            if !goes_on {
                size = 1;
                break;
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    run_with(seed, Setup::draw(seed), kept, options, detail)
}
