//! What the controller remembers between passes. All of it can be lost: a restart costs nothing but
//! the ability to rebuild a server Secret unchanged. Touches no API.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::core::facts::Desired;
use crate::core::objects::secrets::Passwords;
use crate::supervisor::ClusterKey;

/// First pause after a failed pass; doubled at each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub struct Memory {
    clusters: Mutex<HashMap<ClusterKey, Remembered>>,
}

/// About one cluster.
#[derive(Default)]
pub struct Remembered {
    /// Uid of the `RedisCluster` that all of this is about.
    pub uid: String,
    /// Passes that failed one after the other.
    failures: u32,
    /// The passwords that the servers have, as far as this process knows.
    pub passwords: Option<Passwords>,
    /// What the supervisor was asked by the last valid spec.
    pub desired: Option<Desired>,
    /// Warnings that people have been told.
    told: HashSet<String>,
}

impl Memory {
    /// Everything, locked: for steps that must not interleave with another pass. Never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Remembered>> {
        // A poisoned lock only means that a thread ended while it held it; each entry is still whole.
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes what is remembered of the cluster with this uid; an earlier one of the same name is
    /// forgotten.
    pub fn of<T>(&self, key: &ClusterKey, uid: &str, act: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut clusters = self.lock();
        let entry = clusters.entry(key.clone()).or_default();
        if entry.uid != uid {
            *entry = Remembered { uid: uid.to_owned(), ..Remembered::default() };
        }
        act(entry)
    }

    /// Counts a failed pass; returns how long to wait before the next.
    pub fn failed(&self, key: &ClusterKey) -> Duration {
        let mut clusters = self.lock();
        let entry = clusters.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(6)).min(LONGEST_PAUSE);
        entry.failures = entry.failures.saturating_add(1);
        pause
    }
}

impl Remembered {
    /// No call failed; `whole`: and all objects equal the spec, so what was told is over.
    pub fn succeeded(&mut self, whole: bool) {
        self.failures = 0;
        if whole {
            self.told.clear();
        }
    }

    /// True the first time that this is to be told.
    pub fn is_news(&mut self, message: &str) -> bool {
        self.told.insert(message.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ClusterKey {
        ClusterKey { namespace: "shop".to_owned(), name: "cache".to_owned() }
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_start_again_after_a_success() {
        let memory = Memory::default();
        memory.of(&key(), "u1", |_| ());
        let pauses: Vec<u64> = (0..9).map(|_| memory.failed(&key()).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        memory.of(&key(), "u1", |entry| entry.succeeded(true));
        assert_eq!(memory.failed(&key()).as_secs(), 1);
    }

    #[test]
    fn another_object_of_the_same_name_starts_afresh() {
        let memory = Memory::default();
        assert!(memory.of(&key(), "u1", |entry| entry.is_news("a")));
        assert!(!memory.of(&key(), "u1", |entry| entry.is_news("a")));
        assert!(memory.of(&key(), "u2", |entry| entry.is_news("a")));
    }
}
