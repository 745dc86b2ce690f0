//! The addresses of a node's pods. They are given out in turn, so that an
//! address is used again as late as possible.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// .1 stays free for people's expectation of a gateway.
const FIRST: u8 = 2;
const LAST: u8 = 251;

#[derive(Clone, Default)]
pub struct AddressPool(Arc<Mutex<Pool>>);

#[derive(Default)]
struct Pool {
    used: BTreeSet<u8>,
    last_given: Option<u8>,
}

impl AddressPool {
    /// The next free number, or nothing when all are taken.
    pub fn take(&self) -> Option<u8> {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = pool.last_given.filter(|last| *last < LAST).map_or(FIRST, |last| last + 1);
        let number = (after..=LAST).chain(FIRST..after).find(|number| !pool.used.contains(number))?;
        pool.used.insert(number);
        pool.last_given = Some(number);
        Some(number)
    }

    pub fn give_back(&self, number: u8) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).used.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_address_is_the_last_to_be_used_again() {
        let pool = AddressPool::default();
        assert_eq!(pool.take(), Some(2));
        assert_eq!(pool.take(), Some(3));
        pool.give_back(2);
        for number in 4..=LAST {
            assert_eq!(pool.take(), Some(number));
        }
        assert_eq!(pool.take(), Some(2));
        assert_eq!(pool.take(), None);
    }
}
