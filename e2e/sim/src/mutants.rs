//! Mutation check: each mechanism that safety rests on is switched off, and some seed has to notice.

use redis_ha_operator::core::mechanism::{Mechanism, switch_off};

use crate::checkers::Violation;
use crate::run::{Options, run};
use crate::story::Detail;

/// A mechanism, and the first seed that noticed its absence.
#[derive(Clone, Debug)]
pub struct Noticed {
    pub mechanism: Mechanism,
    pub tried: u64,
    pub by: Option<(u64, Violation)>,
}

/// Runs seeds without this mechanism until one notices.
pub fn try_without(mechanism: Mechanism, seeds: std::ops::Range<u64>, options: &Options) -> Noticed {
    switch_off(Some(mechanism));
    let mut noticed = Noticed { mechanism, tried: 0, by: None };
    for seed in seeds {
        noticed.tried += 1;
        if let Some(violation) = run(seed, options, Detail::Nothing).violation {
            noticed.by = Some((seed, violation));
            break;
        }
    }
    switch_off(None);
    noticed
}
